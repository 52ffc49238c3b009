"""Posterior draws, and how they came about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold import settings
from scorefold.compose import Rule
from scorefold.errors import Interrupted, ScorefoldError, closest
from scorefold.posterior.arviz_groups import Groups, inference_data
from scorefold.posterior.observations import checked_inputs
from scorefold.posterior.summary import Summary, shortest, summarise
from scorefold.posterior.trust import Trust
from scorefold.prior import Prior
from scorefold.sample import Sampler
from scorefold.shown import listed, observations
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import replicate
from scorefold.simulation.workers import Workers


@runtime_checkable
class Health(Protocol):
    """What every method's Info says of the draws."""

    @property
    def converged(self) -> Any:
        """The sampler settled, by its own checks; whether what it followed is right they cannot say."""

    @property
    def diverged(self) -> Any:
        """The draws are not to be used."""


@dataclass(frozen=True, eq=False, repr=False)
class Draws:
    """Posterior draws and how they came about: what `posterior.sample` returns.

    `draws["v"]` are the draws of one parameter, `len(draws)` how many there are, `for name in draws` goes through the
    parameters' names, and `np.asarray(draws)` is θ (draws, dim). `draws.summary()` is a table of means, sds and intervals.

    `draws.trust` says how far they may be off, `draws.info` how the sampler's run went, and `draws.how` what was used to draw.
    `draws.n` is the number of observations, and `draws.x_obs` and `draws.inputs` are the observations themselves.

    Example:
        >>> import numpy as np, scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"v": scipy.stats.norm(0, 1), "a": scipy.stats.norm(0, 1)})
        >>> sims = sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=500)
        >>> draws = sf.fit(sims, "abc").sample([[0.5, 0.7]], draws=100)
        >>> draws["v"].shape, len(draws), list(draws), np.asarray(draws).shape
        ((100,), 100, ['v', 'a'], (100, 2))
        >>> draws.n, bool(draws.info.converged), draws.trust.verdict
        (1, True, 'not known')
    """

    theta: np.ndarray
    """(draws, dim), in the prior's order"""
    names: tuple[str, ...]
    info: Health
    """How the sampler's run went, not how right the answer is; what it holds depends on the method, `converged` and `diverged`
    are always there."""
    n: int
    """Observations that the draws are given."""
    how: Any
    """What was used to draw: for composed scores a `Composition`."""
    seconds: float
    x_obs: np.ndarray | None = None
    """(n, *shape), what the draws are given"""
    prior: Prior | None = None
    trust: Trust | None = None
    """How far the draws may be from the true posterior; `sample` always says."""
    x_names: tuple[str, ...] = ()
    """Of the numbers of an observation, where they have names."""
    noticed: str = ""
    """How the observations are unlike anything simulated; nothing where they are like it."""
    inputs: np.ndarray | None = None
    """(n, inputs), the known inputs of the observations, where they have some"""
    input_names: tuple[str, ...] = ()
    missing: bool = False
    """Numbers of an observation may be missing (NaN)."""

    def __len__(self) -> int:
        return len(self.theta)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def keys(self) -> tuple[str, ...]:
        """The parameters' names. With them draws are a mapping: `dict(draws)` has an array (draws,) for each parameter, and
        `draws["beta"]` is one of them.
        """
        return self.names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.names:
            hint = closest(name, list(self.names)) if isinstance(name, str) else "draws.theta is the array."
            raise ScorefoldError(f"expected the name of a parameter, such as {self.names[0]!r}; got {name!r:.60}. {hint}")
        return self.theta[:, self.names.index(name)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array: np.ndarray = np.asarray(self.theta, dtype)
        return array.copy() if copy else array

    def summary(self, level: float = 0.9) -> Summary:
        """A table of the draws: mean, sd, median and a central interval of each parameter.

        Args:
            level: The probability of the interval, between 0 and 1. Default 0.9: from the 5 % to the 95 % quantile.

        Returns:
            A `Summary`, to print or to show in a notebook; its numbers are in `mean`, `sd`, `low`, `median` and `high`.

        Raises:
            ScorefoldError: `level` is not between 0 and 1.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> theta = np.array([[0.5, 1.0], [1.5, 2.0]])
            >>> draws = Draws(theta, ("v", "a"), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1)
            >>> print(draws.summary())
            parameter  mean      sd   5 %  median  95 %
            v             1  0.7071  0.55       1  1.45
            a           1.5  0.7071  1.05     1.5  1.95
            <BLANKLINE>
            2 draws given 10 observations; the sampler settled; 0.1 s
        """
        if not settings.fits(level, float) or not 0 < level < 1:
            raise ScorefoldError(f"expected level between 0 and 1, such as 0.9; got {level!r:.60}")
        return summarise(self.names, self.theta, float(level), self._notes(), self.trust)

    def _notes(self) -> tuple[str, ...]:
        """What a reader of a table should know of the draws, a sentence each; what else is found out goes here."""
        notes = [f"{len(self):,} draws given {observations(self.n)}; {self._health()}; {self.seconds:.1f} s"]
        if self.trust is not None:
            notes.append(f"Trust: {self.trust}")
        if self.noticed:
            notes.append(self.noticed)
        if hasattr(self.how, "sets"):
            notes.append(f"Sets: {self.how.sets:,}; {self.how.partition}")
        return tuple(notes)

    def _health(self) -> str:
        """How the sampler's run went, by its own checks."""
        sampler = "settled" if self.info.converged else "DIVERGED" if self.info.diverged else "has NOT SETTLED"
        return f"the sampler {sampler}"

    def hdi(self, level: float = 0.9) -> dict[str, tuple[float, float]]:
        """The shortest interval of each parameter that holds this share of the draws (of highest density, if it has one mode).

        Args:
            level: The probability of the interval, between 0 and 1. Default 0.9.

        Returns:
            (low, high) by the parameters' names.

        Raises:
            ScorefoldError: `level` is not between 0 and 1.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> theta = np.array([[0.0], [1.0], [1.1], [1.2], [9.0]])
            >>> Draws(theta, ("v",), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1).hdi(0.6)
            {'v': (1.0, 1.2)}
        """
        if not settings.fits(level, float) or not 0 < level < 1:
            raise ScorefoldError(f"expected level between 0 and 1, such as 0.9; got {level!r:.60}")
        return dict(zip(self.names, shortest(self.theta, float(level)), strict=True))

    def to_arviz(self, posterior_predictive: np.ndarray | None = None, log_likelihood: np.ndarray | None = None) -> Any:
        """As ArviZ's groups with one chain: posterior, prior and observed_data.

        Args:
            posterior_predictive: (draws, n, *shape), as `predict` simulates it; one more group. Default None: without it.
            log_likelihood: (draws, n), as `posterior.log_likelihood` gives it for these draws; one more group, for
                `arviz.loo`. Default None: without it.

        Returns:
            An `arviz.InferenceData`, or with ArviZ 1 and later an `xarray.DataTree`, which ArviZ's functions take in its place.
            The posterior's attributes hold `trust`, `trust_why` and `sampler_settled`, and for each parameter
            `expected_shift_…` and `expected_width_…`. A "/" in a parameter's name, which both take for a path, becomes "∕".

        Raises:
            ScorefoldError: `posterior_predictive` or `log_likelihood` has another shape.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> draws = Draws(np.ones((50, 1)), ("v",), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1)
            >>> draws.to_arviz()["posterior"]["v"].shape
            (1, 50)
        """
        groups: Groups = {"posterior": self._by_name(self.theta)}
        if self.prior is not None:
            groups["prior"] = self._by_name(self.prior.sample(len(self.theta), 0))
        if self.x_obs is not None:
            groups["observed_data"] = {"x": self.x_obs}
        if self.inputs is not None:
            groups["constant_data"] = {name: self.inputs[:, i] for i, name in enumerate(self.input_names)}
        if posterior_predictive is not None:
            replicated = settings.numbers("posterior_predictive", posterior_predictive)
            if self.x_obs is not None and replicated.shape != (len(self.theta), *self.x_obs.shape):
                raise ScorefoldError(
                    f"expected posterior_predictive of shape {(len(self.theta), *self.x_obs.shape)}, a data set for each draw; "
                    f"got {replicated.shape}. draws.predict(simulator) makes one."
                )
            groups["posterior_predictive"] = {"x": replicated[None]}
        if log_likelihood is not None:
            each = settings.numbers("log_likelihood", log_likelihood)
            if each.shape != (len(self.theta), self.n):
                raise ScorefoldError(
                    f"expected log_likelihood of shape {(len(self.theta), self.n)}, one for each draw and observation; "
                    f"got {each.shape}. posterior.log_likelihood(draws.theta, x_obs) makes them."
                )
            groups["log_likelihood"] = {"x": each[None]}
        return inference_data(groups, self._attributes())

    def _attributes(self) -> dict[str, Any]:
        """Trust and health, as a file of arrays can hold them."""
        found: dict[str, Any] = {"sampler_settled": int(bool(self.info.converged))}
        if self.trust is None:
            return found
        told = self.trust.summary()
        for word in ("shift", "width"):
            found |= {f"expected_{word}_{name}": value for name, value in told.get(word, {}).items()}
        return {"trust": told["verdict"], "trust_why": told["why"], **found}

    def to_pandas(self) -> Any:
        """As a pandas DataFrame.

        Returns:
            One column for each parameter, one row for each draw.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> draws = Draws(np.ones((50, 2)), ("v", "a"), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1)
            >>> list(draws.to_pandas().columns)
            ['v', 'a']
        """
        import pandas

        return pandas.DataFrame(self.theta, columns=list(self.names))

    def to_numpy(self) -> np.ndarray:
        """As a NumPy array with named fields, one for each parameter.

        Returns:
            An array (draws,), so that `array["v"]` are the draws of v. `np.asarray(draws)` is θ (draws, dim) without names.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> draws = Draws(np.ones((50, 2)), ("v", "a"), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1)
            >>> draws.to_numpy()["a"].shape
            (50,)
        """
        named = np.empty(len(self.theta), [(name, np.float64) for name in self.names])
        for i, name in enumerate(self.names):
            named[name] = self.theta[:, i]
        return named

    def predict(
        self,
        simulator: Any,
        n: int | None = None,
        seed: int | None = 0,
        *,
        workers: int | Workers | None = None,
        inputs: Any = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Simulate a data set for each draw: what the model, so informed, expects to see.

        Args:
            simulator: The one that the posterior was trained on.
            n: Observations in each. Default None: as many as were given.
            seed: Of the simulations. Default 0.
            workers: Who runs the simulator, as in `sf.simulate`.
            inputs: The known inputs of the observations to be, an array (n, inputs) or a DataFrame. Default None: those that
                the draws are given.
            progress: Whether to show a bar. Default False.

        Returns:
            x (draws, n, *shape), the outcomes, NaN where a simulation failed, which a warning counts, or where a number is
            missing, if simulations were made with `missing=True`.

        Raises:
            ScorefoldError: The number of observations is not that of their inputs.
            SimulatorError: Too many of them failed. Its `x` has the data sets of the first draws, as many as are complete.
            Interrupted: On Ctrl-C, with the same as its `x`.

        Example:
            >>> from scorefold.posterior.amortised import FlowInfo
            >>> draws = Draws(np.ones((50, 2)), ("v", "a"), FlowInfo(1.0, True, False), n=10, how=None, seconds=0.1)
            >>> draws.predict(lambda theta, rng: theta + rng.normal(size=2)).shape  # draws, observations, numbers
            (50, 10, 2)
        """
        if self.inputs is None:
            if inputs is not None:
                raise ScorefoldError("expected no inputs, as the simulations have none; got some. Leave them out.")
            calls = repeat(self.theta, self.n if n is None else n, seed)
            return replicate(calls, simulator, workers, progress, self.missing)
        given = self.inputs if inputs is None else inputs
        known = checked_inputs(given, self.input_names, len(given) if n is None else n)
        outcomes = (..., slice(None, -known.shape[1]))
        calls = repeat(self.theta, len(known), seed, known)
        try:
            return replicate(calls, simulator, workers, progress, self.missing)[outcomes]
        except (Interrupted, ScorefoldError) as stopped:
            stopped.x = None if stopped.x is None else stopped.x[outcomes]
            raise

    def _by_name(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {name: theta[None, :, i] for i, name in enumerate(self.names)}

    def __repr__(self) -> str:
        trust = "" if self.trust is None else f" trust: {self.trust};"
        return (
            f"Draws({len(self):,} × ({listed(self.names)}) given {observations(self.n)};{trust} {self._health()}; "
            f"{self.seconds:.1f} s)"
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


class ManyDraws(NamedTuple):
    """Draws for many data sets, as `posterior.sample_many` returns them: θ, and for which data sets the sampler settled.

    Leave out the data sets whose draws diverged, and count them: `many.theta[~many.diverged]`. Those that have not converged
    may be used for averages over data sets, as `sf.diagnose` does. The example of `Posterior.sample_many` makes some.
    """

    theta: np.ndarray
    """(data sets, draws, dim); NaN where a data set's draws were not finite, and then it has diverged"""
    converged: np.ndarray
    """(data sets,) booleans"""
    diverged: np.ndarray
    """(data sets,) booleans: draws not to be used"""
    seconds: float
    """Of drawing, for all of them."""


class Options(NamedTuple):
    """How draws are to be made, where it is not to be as the method says."""

    rule: str | Rule | None = None
    sampler: str | Sampler | None = None
    set_size: int | str | None = None
    chains: int | None = None
    prior: Prior | None = None
    given: Mapping[str, float | int] | None = None
    power: float | None = None
    """Of a likelihood, below 1 for wider draws, as refinement begins with."""


AS_THE_METHOD_SAYS = Options()


def refuse_unknown(options: Options, known: tuple[str, ...], method: str) -> None:
    """A ScorefoldError for options that a method does not have."""
    unknown = [word for word, value in options._asdict().items() if value is not None and word not in known]
    if not unknown:
        return
    hint = ". For another prior, or given values, use method='nle' or 'f-npse'" if {"prior", "given"} & {*unknown} else ""
    raise ScorefoldError(
        f"expected only {', '.join(known) or 'x_obs, draws and seed'} for {method}; got {', '.join(unknown)}{hint}."
    )


class Drawn(NamedTuple):
    """What a method hands back, in the N(0, I) space."""

    u: np.ndarray
    """(draws, dim)"""
    info: Health
    how: Any
