"""A posterior: something that was trained, ready to draw from p(θ | x_1 … x_n) for any observations.

Every method has its own final class below this abstract one, which checks what comes in. What a method does with n
observations is in `methods/`.
"""

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.compose import Rule
from scorefold.disk import folder as model
from scorefold.errors import Diverged, ModelError, ScorefoldError, UntrustworthyDraws
from scorefold.posterior import saved
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Draws, ManyDraws, Options
from scorefold.prior import Prior
from scorefold.sample import Sampler
from scorefold.simulation.outcome import LARGEST
from scorefold.simulation.simulations import Simulations
from scorefold.train.training import Training

FORMAT = model.Format("scorefold model", 2, {})
"""Of a folder with a posterior. A new version gets an entry that takes configurations of the one before to it; there is none
for version 1, of which no release wrote any."""


class Made(NamedTuple):
    """Where a posterior comes from."""

    seed: int
    """Of training."""
    simulation_seed: int
    budget: int
    """Simulator calls."""
    failed: int
    """Of them."""
    packages: dict[str, str]
    """Versions that trained it."""


class Refining(NamedTuple):
    """What `refine` is asked for, as its arguments say."""

    budget: int
    rounds: int
    seed: int
    proposal: str
    training: Training | None
    store: str | os.PathLike[str] | None
    workers: Any
    progress: bool


class Posterior(ABC):
    """What `fit` returns. Abstract: methods have a final class each, a frozen dataclass with `made` as its last field.

    Such a class can be saved as it stands: `posterior/saved.py` writes its fields by their annotations, which may be numbers,
    words, tuples, dictionaries, NamedTuples, NumPy arrays with named axes, a `Prior`, settings (`Any`) and other posteriors. To
    make it savable,

    - give it a `kind`, its name in files, and a line in `POSTERIORS` of `methods/load.py`, and its settings one in `SETTINGS`;
    - name the fields that are networks in `networks`, and write `blank`, which gives them as trees of shapes and types;
    - if its numbers must obey more than the annotations say, write `fault`.
    """

    prior: Prior
    method: Any
    history: Any
    """How training went."""
    shape: tuple[int, ...]
    """Of one observation."""
    options: ClassVar[tuple[str, ...]] = ()
    """What `sample` takes besides observations, draws and seed."""
    kind: ClassVar[str] = ""
    """Its name in files."""
    networks: ClassVar[tuple[str, ...]] = ()
    """The fields that are networks: trees of JAX arrays."""
    made: Made | None = None
    """Where it comes from; `fit` says so."""

    @abstractmethod
    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Draws for finite observations x (n, features)."""

    @classmethod
    def blank(cls, about: saved.About) -> tuple[Any, ...]:
        """The `networks` as trees of shapes and types; the sizes are not to be trusted, so call `about.fits` first."""
        return ()

    def fault(self) -> str:
        """What is wrong with the numbers of one that comes from a file, besides their types; nothing where all is right."""
        return ""

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write a folder that `sf.load` reads: config.json and weights.safetensors, whole or not at all.

        A model that is there already is replaced only with `overwrite`, and anything else never.
        """
        path = settings.folder(folder)
        if not isinstance(overwrite, bool):
            raise ScorefoldError(f"expected overwrite to be True or False; got {overwrite!r:.60}")
        if path.is_symlink() or path.exists():
            ours = model.holds(path, FORMAT)
            if not ours or not overwrite:
                why = "a model. Write save(folder, overwrite=True) to replace it" if ours else "something else, which is kept"
                raise ModelError(f"expected a new folder; at {path} there is {why}.")
        config, arrays = saved.parts(self)
        try:
            model.write(path, FORMAT, {"kind": self.kind, "posterior": config}, arrays)
        except OSError as error:
            raise ModelError(f"the model could not be written to {path}: {error.strerror or error}.") from error
        return path

    def sample(
        self,
        x_obs: Any,
        draws: int = 1_000,
        seed: int = 0,
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
        chains: int | None = None,
    ) -> Any:
        """Draw from p(θ | x_1 … x_n).

        Args:
            x_obs: the observations, an array of shape (n, *shape); or a list of such arrays, one for each data set.
            draws: how many draws.
            seed: a whole number; the same seed gives the same draws.
            rule: for composed scores, how the sets' scores become one: a name (`"diffused"`, `"gauss"`, …) or an object such as
                `sf.rules.Gauss(pilots=200)`. By default as the method says.
            sampler: how draws are made: for composed scores a name or an object such as `sf.samplers.Langevin(steps=20)`, for
                NLE and NRE `"smc"`, `"nuts"` or `"vi"`. By default as the method says.
            set_size: for composed scores, the most observations in one set: at most as many as were trained, by default just
                as many; `"auto"` takes the size that unseen simulations favour.
            chains: for NLE and NRE with `"nuts"`, how many chains.

        Returns:
            `Draws`, or a list of them for a list of data sets.

        Raises:
            ScorefoldError: for observations of another shape than the simulations', that are not finite, or that the method
                cannot take, and for options that this method does not have.
        """
        settings.count("draws", draws, 1)
        settings.count("seed", seed, 0)
        options = self._checked_options(Options(rule, sampler, set_size, chains))
        if isinstance(x_obs, list) and x_obs and _depth(x_obs[0]) == 1 + len(self.shape):
            checked = [self.checked(x) for x in x_obs]
            return [self._sample(x, draws, (seed, i), options) for i, x in enumerate(checked)]
        return self._sample(self.checked(x_obs), draws, (seed, 0), options)

    def using(self, *, rule: str | Rule | None = None, sampler: str | Sampler | None = None) -> "Posterior":
        """The same posterior with another rule or sampler as its default, for `sample` and for `sf.diagnose`.

        Args:
            rule: as in `sample`; None leaves it as it is.
            sampler: likewise.

        Returns:
            A posterior that shares everything else with this one.

        Raises:
            ScorefoldError: if the method has no such setting.
        """
        given = {word: value for word, value in (("rule", rule), ("sampler", sampler)) if value is not None}
        self._checked_options(Options(rule=rule, sampler=sampler))
        own: Any = self
        return replace(own, method=replace(self.method, **given))

    def refine(
        self,
        x_obs: Any,
        simulator: Callable[..., Any],
        budget: int = 5_000,
        rounds: int = 6,
        seed: int = 0,
        *,
        sims: Simulations | None = None,
        proposal: str = "gaussian",
        training: Training | None = None,
        store: str | os.PathLike[str] | None = None,
        workers: Any = None,
        progress: bool = False,
    ) -> "Posterior":
        """Spend more simulations where the posterior of one data set is, and get a posterior for that data set.

        Args:
            x_obs: the observations, (n, *shape).
            simulator: the one that the posterior was trained on.
            budget: simulator calls: up to half of them locate the posterior in rounds, the others are made there.
            rounds: at most so many, the last one included.
            seed: of simulations, training and draws.
            sims: the simulations that this posterior was trained on, to be used again where they can be.
            proposal: the form of a region: `"gaussian"`, or `"truncated"` for the prior cut to a box.
            training: how the last round's networks are trained; by default as this posterior's, but shorter.
            store: a folder that keeps every round's simulations, so that the same call goes on after a kill.
            workers: who runs the simulator, as in `sf.simulate`.
            progress: show bars.

        Returns:
            A posterior for this data set and its neighbourhood, not for any other.

        Raises:
            ScorefoldError: if this kind of posterior cannot be refined, or an argument cannot be right.
        """
        plan = Refining(budget, rounds, seed, proposal, training, store, workers, progress)
        return self.method.refine(self, x_obs, simulator, sims, plan)

    def _sample(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options) -> Draws:
        started = time.perf_counter()
        drawn = self.draw(x, draws, seed, options)
        theta = self.prior.from_normal(drawn.u)
        seconds = time.perf_counter() - started
        x_obs = x.reshape(len(x), *self.shape)
        return Draws(theta, self.prior.names, drawn.info, len(x), drawn.how, seconds, x_obs, self.prior)

    def sample_many(
        self,
        x_obs: Any,
        draws: int = 100,
        seed: int | Sequence[int] = 0,
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
        chains: int | None = None,
    ) -> ManyDraws:
        """Draws for each of many data sets of n observations, `x_obs` of shape (data sets, n, *shape), as calibration needs.

        With a list of seeds every data set has its own, the one that `sample` would draw the same with, up to rounding (which
        the chains of NLE and NRE amplify on an accelerator). One warning says how many data sets did not converge; which ones
        is in the result.
        """
        settings.count("draws", draws, 1)
        given: list[Any] = list(seed) if isinstance(seed, list | tuple) else [seed]
        for one in given:
            settings.count("seed", one, 0)
        options = self._checked_options(Options(rule, sampler, set_size, chains))
        x = settings.numbers("x_obs", x_obs)
        if x.ndim != 2 + len(self.shape) or len(x) == 0:
            raise ScorefoldError(
                f"expected x_obs of shape (data sets, n, {', '.join(map(str, self.shape))}); got {x.shape}. Data sets of "
                "different sizes go to sample, as a list."
            )
        each = isinstance(seed, list | tuple)
        if each and len(given) != len(x):
            raise ScorefoldError(f"expected one seed, or one for each of the {len(x)} data sets; got {len(given)}")
        flat = self.checked(x.reshape(-1, *self.shape)).reshape(*x.shape[:2], -1)
        started = time.perf_counter()
        seeds = [(one, 0) for one in given] if each else [(given[0], i) for i in range(len(x))]
        u, converged, diverged = self.draw_many(flat, draws, seeds, options)
        finite = np.isfinite(u).all(axis=(1, 2))
        theta = np.full(u.shape, np.nan)
        theta[finite] = self.prior.from_normal(u[finite])
        many = ManyDraws(theta, converged & finite, diverged | ~finite, time.perf_counter() - started)
        if not many.converged.all():
            warnings.warn(
                f"the draws of {np.sum(~many.converged)} of {len(x)} data sets have not converged, {many.diverged.sum()} of "
                "these diverged; `converged` and `diverged` say which.",
                UntrustworthyDraws,
                stacklevel=2,
            )
        return many

    def draw_many(
        self, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options = AS_THE_METHOD_SAYS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For x (data sets, n, features): u (data sets, draws, dim), converged and diverged. One data set after the other."""
        return draw_one_by_one(self, x, draws, seeds, options)

    def _checked_options(self, options: Options) -> Options:
        """The options, if this kind of posterior has them."""
        unknown = [word for word, value in options._asdict().items() if value is not None and word not in self.options]
        if unknown:
            raise ScorefoldError(
                f"expected only {', '.join(self.options) or 'x_obs, draws and seed'} for {type(self.method).__name__}; got "
                f"{', '.join(unknown)}"
            )
        return options

    def checked(self, x_obs: Any) -> np.ndarray:
        """x_obs as (n, features) float64, or a ScorefoldError."""
        wanted = "(n, " + ", ".join(map(str, self.shape)) + ")" if self.shape else "(n,)"
        try:
            x = settings.numbers("x_obs", x_obs)
        except ScorefoldError as error:
            raise ScorefoldError(
                f"expected x_obs to be numbers of shape {wanted}; got {type(x_obs).__name__} ({error}). For several data sets "
                "pass a list of such arrays."
            ) from None
        if x.shape[1:] != self.shape or x.ndim == 0:
            hint = " For one observation write x_obs[None]." if x.shape == self.shape else ""
            raise ScorefoldError(
                f"expected x_obs of shape {wanted}, as the simulations were; got {x.shape}. The first axis counts "
                f"observations.{hint}"
            )
        if len(x) == 0:
            raise ScorefoldError(
                "expected at least one observation; got n = 0. Without observations the posterior is the prior: use "
                "prior.sample(count, seed)."
            )
        bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            raise ScorefoldError(
                f"expected finite observations; {bad.sum()} of {len(x)} hold NaN or infinity (first: x_obs[{bad.argmax()}]). "
                "Leave them out if they are missing at random."
            )
        within_reach(x)
        return x.reshape(len(x), -1)


def draw_one_by_one(
    posterior: Posterior, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`Posterior.draw_many`, one data set after the other."""
    u = np.full((len(x), draws, posterior.prior.dim), np.nan)
    converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # sample_many says it once for all of them
        for i, (one, seed) in enumerate(zip(x, seeds, strict=True)):
            try:
                drawn = posterior.draw(one, draws, seed, options)
            except Diverged:
                continue
            u[i], converged[i], diverged[i] = drawn.u, drawn.info.converged, drawn.info.diverged
    return u, converged, diverged


def within_reach(x: np.ndarray) -> None:
    """Refuse observations that no simulation can be like."""
    if np.abs(x).max(initial=0.0) > LARGEST:
        raise ScorefoldError(
            f"expected observations that fit in single precision, within ±{LARGEST:.0e}, as the simulations do; got "
            f"{x.flat[np.abs(x).argmax()]:.3g}"
        )


def _depth(value: Any) -> int:
    """How deeply nested; -1 where it is ragged."""
    try:
        return np.ndim(value)
    except ValueError:
        return -1
