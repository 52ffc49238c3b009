"""A posterior: something that was trained, ready to draw from p(θ | x_1 … x_n) for any observations.

Every method has its own final class below this abstract one, which checks what comes in. What a method does with n
observations is in `methods/`.
"""

import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from scorefold import settings
from scorefold.compose import Rule
from scorefold.errors import ScorefoldError, UnlikeSimulations, UntrustworthyDraws
from scorefold.posterior.check import CHECKED_DRAWS, Check, Checkable, Simulating, run_check
from scorefold.posterior.densities import Densities
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Draws, ManyDraws, Options, refuse_unknown
from scorefold.posterior.fitted import Fitted
from scorefold.posterior.how_long import foretell
from scorefold.posterior.many import draw_in_parts, draw_one_by_one, gathered, seeds_of
from scorefold.posterior.observations import many_sets, several_sets
from scorefold.posterior.refining import Refining
from scorefold.posterior.trust import Doubts, Trust, judge
from scorefold.prior import Prior
from scorefold.prior.given_values import with_given
from scorefold.prior.prior_ratio import check_overlap
from scorefold.progress import step, track
from scorefold.sample import Sampler
from scorefold.simulation.likeness import unlike
from scorefold.simulation.simulations import Simulations
from scorefold.simulation.workers import Workers
from scorefold.train.training import Training
from scorefold.types import single_precision


class Posterior(Fitted, Densities):
    """What `sf.fit` returns: ask it for draws, given any observations from the simulator that it was trained on.

    `sample` draws, `check` finds out how far the draws of one data set are off, `corrected` subtracts what was found, `refine`
    simulates where the posterior of one data set is, `using` gives the same posterior with another rule or sampler, and `save`
    keeps it. `print(posterior)` tells what it was trained on.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> posterior = sf.fit(sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=200), "abc")
        >>> posterior.sample([[0.5, 0.7]], draws=100).names
        ('rate',)
    """

    options: ClassVar[tuple[str, ...]] = ()
    """What `sample` takes besides observations, draws and seed."""

    @abstractmethod
    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Draw, for observations that have been checked. Every method writes it; `sample` calls it, in single precision.

        Args:
            x: (n, features), finite (or with NaN for missing numbers where the method takes them).
            draws: How many.
            seed: The seed that was given, and the number of the data set.
            options: What `sample` was told besides; only what is in the class's `options` is ever set.

        Returns:
            Draws in the N(0, I) space of the prior, the sampler's `Info`, and how they were made.
        """

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """What a method knows about the errors of draws that it made; `judge` makes `draws.trust` of it.

        Args:
            x: The observations.
            u: (draws, dim), what `draw` returned for them.
            seed: As for `draw`.
            options: As for `draw`.

        Returns:
            The disagreement of an ensemble's members and what else tells; or the reason why nothing does, as here.
        """
        return Doubts(f"{type(self.method).__name__} has no ensemble whose members could disagree")

    def sample(
        self,
        x_obs: Any,
        draws: int = 1_000,
        seed: int | None = 0,
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
        chains: int | None = None,
        inputs: Any = None,
        prior: Prior | None = None,
        given: Mapping[str, float | int] | None = None,
        progress: bool = False,
    ) -> Any:
        """Draw from p(θ | x_1 … x_n).

        Args:
            x_obs: the observations, (n, *shape), as an array, a DataFrame or, where numbers may be missing, a list of series
                that differ in length; or a list of these, one for each data set.
            draws: how many draws.
            seed: a whole number; the same seed gives the same draws. None takes a fresh one, and says which.
            rule: for composed scores, how the sets' scores become one: a name (`"diffused"`, `"gauss"`, …) or an object such as
                `sf.rules.Gauss(pilots=200)`. By default as the method says.
            sampler: how draws are made: for composed scores a name or an object such as `sf.samplers.Langevin(steps=20)`, for
                NLE and NRE `"smc"`, `"nuts"` or `"vi"`. By default as the method says.
            set_size: for composed scores, the most observations in one set, at most and by default as many as were trained;
                `"auto"` takes the size that unseen simulations favour.
            chains: for NLE and NRE with `"nuts"`, how many chains.
            inputs: where simulations have known inputs, those of each observation: an array (n, inputs) or a DataFrame, or a
                list of them. Not needed where `x_obs` holds them too, as columns of these names or behind the outcomes.
            prior: another prior of the same parameters; nothing is trained or simulated anew (`docs/densities.md`).
            given: values of some parameters by name: draws of the others given these.
            progress: show how long drawing takes, if more than a minute; for a list of data sets a bar.

        Returns:
            `Draws`, or a list of them for a list of data sets.

        Raises:
            ScorefoldError: for observations of another shape than the simulations', not finite, or that the method cannot
                take, for options that it does not have, and for another prior with weight where nothing was simulated.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
            >>> posterior = sf.fit(sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=500), "abc")
            >>> posterior.sample([[0.5, 0.7]], draws=100).theta.shape
            (100, 1)
            >>> one, other = posterior.sample([[[0.5, 0.7]], [[-0.1, 0.2]]], draws=100)  # two data sets
        """
        draws, seed = settings.count("draws", draws, 1), settings.seed(seed)
        options = self._checked_options(Options(rule, sampler, set_size, chains, prior, given))
        self.say_if_unfinished()
        several, drawn = several_sets(x_obs, inputs, self.shape, self.checked), []
        data = several or [self.checked(x_obs, inputs)]
        if progress and len(data) == 1:
            foretell(self, data[0], draws, options)
        for i, x in enumerate(track(data, "drawing", progress)):
            drawn.append(self._sample(x, draws, (seed, i), options))
        return drawn if several else drawn[0]

    def using(self, *, rule: str | Rule | None = None, sampler: str | Sampler | None = None) -> "Posterior":
        """The same posterior with another rule or sampler as its default, for `sample` and for `sf.diagnose`.

        Args:
            rule: as in `sample`; None leaves it as it is.
            sampler: likewise.

        Returns:
            A posterior that shares everything else with this one.

        Raises:
            ScorefoldError: if the method has no such setting.

        `docs/rules.md` says which rule goes with which sampler.
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
        seed: int | None = 0,
        *,
        sims: Simulations | None = None,
        proposal: str = "gaussian",
        training: Training | None = None,
        store: str | os.PathLike[str] | None = None,
        workers: Any = None,
        progress: bool = False,
        inputs: Any = None,
    ) -> Any:
        """Spend more simulations where the posterior of one data set is, and get a posterior for that data set.

        Args:
            x_obs: the observations, (n, *shape); or a list of them, one for each data set, as in `sample`.
            simulator: the one that the posterior was trained on.
            budget: simulator calls: up to half of them locate the posterior in rounds, the others are made there. Each of
                several data sets may cost so many, or fewer where its region overlaps with that of one before.
            rounds: at most so many, the last one included.
            seed: of simulations, training and draws; None takes a fresh one, and says which.
            sims: the simulations that this posterior was trained on, to be used again where they can be.
            proposal: the form of a region: `"gaussian"`, or `"truncated"` for the prior cut to a box.
            training: how the last round's networks are trained; by default as this posterior's, but shorter.
            store: a folder that keeps every round's simulations, so that the same call goes on after a kill.
            workers: who runs the simulator, as in `sf.simulate`.
            progress: show bars.
            inputs: the known inputs of the observations, as in `sample`; simulations are made with these inputs.

        Returns:
            A posterior for this data set and its neighbourhood, not for any other, or a list of them. `print` shows a log of
            the rounds, and `sf.plots.rounds` a figure.

        Raises:
            ScorefoldError: before the first simulation, if it cannot be refined, or an argument cannot be right.
            Interrupted: on Ctrl-C with a store, which keeps what is done, or before 50 simulations of the round are done. Later
                the refinement ends with the simulations that are done, or the best networks so far, and a ScorefoldWarning
                says so. Of several data sets, the posteriors of the first ones are its `posteriors`.

        `docs/refining.md` has examples that the tests run.
        """
        budget, rounds = settings.count("budget", budget, 1), settings.count("rounds", rounds, 1)
        plan = Refining(budget, rounds, settings.seed(seed), proposal, training, store, workers, progress)
        several = several_sets(x_obs, inputs, self.shape, self.checked)
        refined = self.method.refine(self, several or [self.checked(x_obs, inputs)], simulator, sims, plan)
        return refined if several else refined[0]

    def check(
        self,
        x_obs: Any,
        simulator: Callable[..., Any],
        sims: int = 300,
        seed: int | None = 0,
        workers: int | Workers | None = None,
        progress: bool = False,
        *,
        inputs: Any = None,
    ) -> Check:
        """Find out, by simulations at its own draws, how far the posterior of one data set is off.

        Take it where `draws.trust` is not good enough, or not known. The answer is about this data set, not an average, and
        is signed: which mean is too high, which width too large.

        Args:
            x_obs: the observations, (n, *shape).
            simulator: the one that the posterior was trained on.
            sims: simulator calls. Shifts have a standard error of about √(n / sims) posterior sd: 100 n of them tell 0.1 sd.
            seed: of draws and simulations; None takes a fresh one, and says which.
            workers: who runs the simulator, as in `sf.simulate`.
            progress: show a bar.
            inputs: the known inputs of the observations, as in `sample`; simulations are made with these inputs.

        Returns:
            A `Check`; print it. `posterior.corrected(check)` takes the errors away that it found.

        Raises:
            ScorefoldError: if the method has no score to check, or an argument cannot be right.
            Interrupted: on Ctrl-C while there are fewer than 50 simulated sets; later the check rests on those that are done,
                and a ScorefoldWarning says so.

        `docs/trust.md` has an example that the tests run.
        """
        sims, seed = settings.count("sims", sims, 1), settings.seed(seed)
        x = self.checked(x_obs, inputs)
        return self.check_observations(x, Simulating(simulator, sims, seed, workers, progress, self.inputs_of(x)))

    def check_observations(self, x: np.ndarray, how: Simulating) -> Check:
        """`check` of observations x (n, features) that have been looked at; `how` says how to simulate."""
        own, _ = self._checkable(x)
        with warnings.catch_warnings(), single_precision(), step("drawing", how.progress):
            warnings.simplefilter("ignore", UntrustworthyDraws)  # the check is about to say
            drawn = self.draw(x, CHECKED_DRAWS, (how.seed, 0))
        return run_check(own, x, self._own_space(drawn.u), how, lambda some: self._checkable(some)[1])

    def corrected(self, check: Check) -> "Posterior":
        """The posterior with the errors that a check found taken away, as far as its simulations can tell.

        It is for the checked data set and its neighbourhood, and is saved and loaded like any other; trust rests on the check.

        Args:
            check: what `check` of this posterior returned; with 100 n simulations shifts are corrected to about 0.1 sd.

        Returns:
            A posterior of the same kind.

        Raises:
            ScorefoldError: if this posterior has no scores or likelihood, was corrected before, the check is of another one, or
                the draws have several modes.

        `docs/trust.md` has an example that the tests run.
        """
        raise ScorefoldError(
            f"expected a posterior of scores, a likelihood or a ratio to correct; got one by {type(self.method).__name__}. Use "
            "method='nle', 'nre', 'f-npse' or 'pf-npse'."
        )

    def _checkable(self, x: np.ndarray) -> tuple[Checkable, np.ndarray]:
        """What a check is to look at, and the observations as it sees them."""
        if self.missing:
            raise ScorefoldError(
                "expected a posterior for complete observations to check; got one trained with missing=True. Check the whole "
                "with sf.diagnose instead."
            )
        if not isinstance(self, Checkable):
            raise ScorefoldError(
                f"expected a posterior with a score, to check by simulations; {type(self.method).__name__} has none. Use "
                "method='f-npse', 'pf-npse', 'nle' or 'nre'."
            )
        return self, x

    def _own_space(self, u: np.ndarray) -> np.ndarray:
        """Draws in the space that scores are learned in."""
        return u

    def _sample(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options) -> Draws:
        seen = None if self.made is None else self.made.seen
        noticed = "" if seen is None else unlike(seen, x)
        if noticed:
            warnings.warn(f"{noticed} Draws for them are not to be trusted.", UnlikeSimulations, stacklevel=3)
        started = time.perf_counter()
        with single_precision():
            drawn = self.draw(x, draws, seed, options)
            doubts = self.doubts(x, drawn.u, seed, options)
        theta, trust = self.prior.from_normal(drawn.u), judge(self.prior.names, doubts, drawn.info)
        if options.given is not None:
            theta = with_given(theta, self.prior, options.given)
        self.warn_of(trust)
        seconds = time.perf_counter() - started
        x_obs, inputs = x.reshape(len(x), *self.shape), self.inputs_of(x)
        x_obs = x_obs if inputs is None else x[:, : -inputs.shape[1]]
        about = (x_obs, options.prior or self.prior, trust, self.outcome_names, noticed, inputs, self.input_names)
        return Draws(theta, self.prior.names, drawn.info, len(x), drawn.how, seconds, *about, missing=self.missing)

    def warn_of(self, trust: Trust) -> None:
        """Warn of draws that are not to be trusted, where a kind of posterior does so; by default it is only printed."""

    def sample_many(
        self,
        x_obs: Any,
        draws: int = 100,
        seed: int | Sequence[int] | None = 0,
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
        chains: int | None = None,
        inputs: Any = None,
        prior: Prior | None = None,
        given: Mapping[str, float | int] | None = None,
        progress: bool = False,
    ) -> ManyDraws:
        """Draws for each of many data sets of n observations, `x_obs` of shape (data sets, n, *shape), as calibration needs.

        With a list of seeds every data set has its own, the one that `sample` would draw the same with, up to rounding (which
        the chains of NLE and NRE amplify on an accelerator). One warning says for how many data sets the sampler did not
        settle; which ones is in the result. There is no trust in it: `sample` says how far one data set's draws may be off.

        Args:
            x_obs: (data sets, n, *shape).
            draws: For each data set. Default 100.
            seed: One, or one for each data set. Default 0.
            rule: As in `sample`.
            sampler: As in `sample`.
            set_size: As in `sample`.
            chains: As in `sample`.
            inputs: (data sets, n, inputs), known inputs; not needed where they are the last numbers of `x_obs`.
            prior: As in `sample`, the same for all data sets.
            given: As in `sample`, the same for all data sets.
            progress: Whether to show a bar. Default False.

        Returns:
            `ManyDraws`, with θ (data sets, draws, dim).

        Raises:
            ScorefoldError: As `sample`.
            Interrupted: On Ctrl-C, with the draws for the data sets that are done as its `draws`.

        Example:
            >>> import numpy as np, scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
            >>> sims = sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=500)
            >>> sf.fit(sims, "abc").sample_many(np.zeros((3, 1, 2)), draws=50).theta.shape  # three data sets of one
            (3, 50, 1)
        """
        draws = settings.count("draws", draws, 1)
        options = self._checked_options(Options(rule, sampler, set_size, chains, prior, given))
        x = many_sets(x_obs, inputs, self.shape, len(self.input_names), self.missing)
        seeds = seeds_of(seed, len(x))
        x = self.checked(x.reshape(-1, *self.shape)).reshape(*x.shape[:2], -1)
        started = time.perf_counter()
        with single_precision():
            draw = self.draw_many if prior is None else partial(draw_one_by_one, self.draw, self.prior.dim)
            found = draw_in_parts(draw, self.together(draws), x, draws, seeds, options, progress)
        return gathered(self.prior, options.given, found, len(x), time.perf_counter() - started)

    def draw_many(
        self, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options = AS_THE_METHOD_SAYS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw for many data sets of one size; one after the other, unless a method knows better.

        Args:
            x: (data sets, n, features).
            draws: For each of them.
            seeds: A seed and a number for each of them, as for `draw`.
            options: As for `draw`.

        Returns:
            u (data sets, draws, dim) and, for each data set, whether the sampler converged and whether it diverged.
        """
        return draw_one_by_one(self.draw, self.prior.dim, x, draws, seeds, options)

    def together(self, draws: int) -> int:
        """How many data sets `draw_many` had best be given at a time; progress is shown after so many."""
        return 1

    def _checked_options(self, options: Options) -> Options:
        """The options, if this kind of posterior has them."""
        refuse_unknown(options, self.options, type(self.method).__name__)
        if options.prior is not None:
            check_overlap(self.prior, options.prior)
        return options
