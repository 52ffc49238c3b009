"""Run a simulator on parameters drawn from the prior.

Who runs it (`sources/`: this process, a compiled program, worker processes) and where the results go (`store/`: memory, a
folder) do not matter for what comes out: simulation i is a pure function of (prior, simulator, seed, i). Whatever happens to a
simulation is a status of that one, and the others go on.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from scorefold import settings
from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.simulation.calls import LARGEST_BUDGET, Calls, plan
from scorefold.simulation.columns import outcome_names
from scorefold.simulation.failures import Guard
from scorefold.simulation.given import check_missing
from scorefold.simulation.holes import holed
from scorefold.simulation.inputs import Inputs, inputs_from, joined
from scorefold.simulation.outcome import LARGEST_X
from scorefold.simulation.run import Memory, check_simulator, count_done, run, source_of
from scorefold.simulation.simulations import FEWEST_CASES, Simulations
from scorefold.simulation.store.filling import StoreFilling
from scorefold.simulation.workers import Workers, as_workers

SMALLEST_BUDGET = 100


def simulate(
    prior: Prior,
    simulator: Callable[..., Any],
    budget: int,
    set_size: int = 1,
    seed: int | None = 0,
    *,
    store: str | os.PathLike[str] | None = None,
    workers: int | Workers | None = None,
    progress: bool = False,
    x_names: Sequence[str] | None = None,
    inputs: Any = None,
    input_names: Sequence[str] | None = None,
    missing: bool = False,
) -> Simulations:
    """Call a simulator on draws from the prior: the training cases for `sf.fit`.

    Simulation i depends on the prior, the simulator, the seed and i alone: with or without a store, in this process or in many,
    it is the same up to the last bit, and a larger budget continues a smaller one. A simulation that raises, returns NaN or
    another shape than the others, hangs or crashes is left out and counted. `docs/simulating.md` has more examples.

    Args:
        prior: An `sf.Prior`.
        simulator: `simulator(theta, rng) -> x` for one parameter draw θ (dim,) and a `numpy.random.Generator`, its only source
            of random numbers; x are numbers in an array of one fixed shape. Or an `sf.Batched` one.
        budget: How many simulator calls to make, 100 at least.
        set_size: Every parameter draw gets a set of 1 … set_size observations, as PF-NPSE and NPSE need. Default 1.
        seed: Of parameters and of simulations. Default 0; None takes a fresh one, and says which.
        store: A folder that keeps every simulation as soon as it is done; the same call continues it. Default None: in memory.
        workers: A number of local processes, 0 for this one, or an `sf.Workers` with limits or an executor. Default None: this
            process, or with a store one to a core. `sf.Batched` simulators always run compiled in this process.
        progress: Whether to show a progress bar. Default False.
        x_names: Names of the numbers that the simulator returns, by which observations in a table are matched. Default None.
        inputs: What is known of each observation beforehand, such as a dose: `inputs(rng)`, or a table whose rows are drawn.
            The simulator is then called as `simulator(theta, rng, inputs)`. They should cover the inputs to come. Default None.
        input_names: Names of the inputs. Default None: a DataFrame's columns, or numbers.
        missing: Whether NaN means "not observed" (`docs/densities.md`). Default False: it is a failure.

    Returns:
        `Simulations`. If some failed, a ScorefoldWarning says how many, and `failures` of what is returned has the first 100.

    Raises:
        SimulatorError: More than a tenth of the simulations failed (`sf.Workers(max_failures=…)`), or each of the first 20.
        ScorefoldError: An argument is not what is expected, or the store holds something else.
        Interrupted: Ctrl-C. Without a store, `simulations` of each of these holds the complete cases if there are 50 or more.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=3), budget=100)
        Simulations(100 cases from 100 simulator calls, 0 failed; θ = (rate), x 3, sets of up to 1)
    """
    _check_prior(prior, missing)
    workers, known = as_workers(workers), inputs_from(inputs, input_names)
    check_simulator(simulator, workers, known is not None)
    calls, names = _planned(prior, budget, set_size, seed, known), outcome_names(x_names)
    place: Memory | StoreFilling = Memory(calls, prior, names, () if known is None else known.names, missing)
    if store is not None:
        place = StoreFilling(settings.folder(store), prior, simulator, calls, names, known, missing)
    return _filled(place, _called(simulator, prior, known, missing), workers, progress)


def _called(simulator: Callable[..., Any], prior: Prior, known: Inputs | None, missing: bool) -> Callable[..., Any]:
    """The simulator as sources call it: with θ and known inputs in one array, and NaN marked where numbers may be missing."""
    together = simulator if known is None else joined(simulator, prior.dim)
    return holed(together, 0 if known is None else len(known.names)) if missing else together


def _filled(place: Memory | StoreFilling, simulator: Callable[..., Any], workers: Workers, progress: bool) -> Simulations:
    """Make what a place lacks, and take the training cases from it."""
    guard, stored = Guard(workers.max_failures, place.calls.describe, place.calls.names), isinstance(place, StoreFilling)
    with source_of(simulator, place.calls.seed, workers, stored) as source, closing(place):
        try:
            run(source, place, guard, progress)
        except KeyboardInterrupt:
            raise _interrupted(place, guard) from None
        except ScorefoldError as error:
            _keep(error, place, guard)
            raise
    return _enough(_with_texts(place.simulations(), guard), guard)


def _enough(sims: Simulations, guard: Guard) -> Simulations:
    """The simulations, with a word about those that failed, or a SimulatorError where too few are left."""
    if len(sims.theta) < FEWEST_CASES:
        raise SimulatorError(
            f"expected a simulator that mostly returns finite observations; {guard.sentence('and were left out')} Narrow the "
            f"prior, or take logarithms of numbers beyond ±{LARGEST_X:.0e}."
        )
    if sims.failed:
        warnings.warn(
            f"{guard.sentence('and were left out')} The posterior counts every observation as one that did not fail.",
            ScorefoldWarning,
            stacklevel=4,
        )
    return sims


def _interrupted(place: Memory | StoreFilling, guard: Guard) -> Interrupted:
    """How much is done, and where it is."""
    done = count_done(place)
    begun = f"simulating was interrupted after {done:,} of {place.calls.budget:,} simulations"
    if isinstance(place, StoreFilling):
        return Interrupted(f"{begun}; they are kept in {place.path}. The same call continues.")
    sims = _complete(place, guard)
    if sims is None:
        return Interrupted(f"{begun}, which are lost. A store (store=folder) would have kept them.")
    error = Interrupted(
        f"{begun}. A store (store=folder) would have kept them; as it is, {len(sims.theta):,} cases are in the attribute "
        "`simulations` of this exception."
    )
    error.simulations = sims
    return error


def _keep(error: ScorefoldError, place: Memory | StoreFilling, guard: Guard) -> None:
    """Have an error that ended the run in memory hold what was done before it."""
    if isinstance(place, Memory) and (sims := _complete(place, guard)) is not None:
        error.simulations = sims
        error.add_note(f"{len(sims.theta):,} cases are complete, and in the attribute `simulations` of this error.")


def _complete(place: Memory, guard: Guard) -> Simulations | None:
    """The cases of a run that ended early, if there are enough of them to train with."""
    sims = _with_texts(place.simulations(), guard)
    return sims if len(sims.theta) >= FEWEST_CASES else None


def _with_texts(sims: Simulations, guard: Guard) -> Simulations:
    """What was wrong with the simulations that failed in this run."""
    texts = guard.texts
    return sims._replace(failures=tuple(replace(one, text=texts.get(one.index, one.text)) for one in sims.failures))


def _check_prior(prior: Any, missing: Any) -> None:
    if not isinstance(prior, Prior):
        raise ScorefoldError(f"expected a scorefold.Prior; got {type(prior).__name__}. Build one with sf.Prior({{...}}).")
    if missing is not False:
        check_missing(missing, prior)


def _planned(prior: Prior, budget: Any, set_size: Any, seed: int | None, known: Inputs | None) -> Calls:
    """The calls to make, or a ScorefoldError where they are too few or too many."""
    seed, budget, set_size = settings.seed(seed), _checked_budget(budget), settings.count("set_size", set_size, 1)
    if max(budget, set_size) > LARGEST_BUDGET:
        raise ScorefoldError(
            f"expected budget and set_size up to {LARGEST_BUDGET:,}; got {budget:,} and {set_size:,}. Use several stores, with "
            "a seed each."
        )
    calls = plan(prior, budget, set_size, seed, known)
    if len(calls.theta) < FEWEST_CASES:
        raise ScorefoldError(
            f"expected a budget for at least {FEWEST_CASES} training cases; {calls.budget:,} simulator calls in sets of "
            f"up to {calls.set_size} make {len(calls.theta)}. Raise the budget or lower set_size."
        )
    return calls


def _checked_budget(budget: Any) -> int:
    try:
        return settings.count("budget", budget, SMALLEST_BUDGET)
    except ScorefoldError as error:
        raise ScorefoldError(f"{error}. Fewer simulations cannot be split into training and validation.") from None
