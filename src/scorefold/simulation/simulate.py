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
from scorefold.simulation.inputs import inputs_from, joined
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

    Simulation i depends on the prior, the simulator, the seed and i alone: with or without a store, in this process or in
    many, it is the same up to the last bit, and a larger budget continues a smaller one. A simulation that raises, returns NaN
    or another shape than the others, hangs or crashes is left out and counted, and the others go on.

    Args:
        prior: An `sf.Prior`.
        simulator: `simulator(theta, rng) -> x` for one parameter draw θ (dim,) and a `numpy.random.Generator`, the only source
            of random numbers it should use; x are numbers in an array of one fixed shape. Or an `sf.Batched` one.
        budget: How many simulator calls to make, 100 at least.
        set_size: Every parameter draw gets a set of 1 … set_size observations, as PF-NPSE and NPSE need. Default 1.
        seed: Of parameters and of simulations. Default 0; None takes a fresh one, and says which.
        store: A folder that keeps every simulation as soon as it is done. Called again, after a kill or with a larger budget,
            the run continues. Default None: in memory.
        workers: A number of local processes, 0 for this process, or an `sf.Workers` with a timeout, a limit of memory, an
            executor, or another fraction of failures than 0.1. Default None: this process, or with a store one process to a
            core. `sf.Batched` simulators always run compiled in this process.
        progress: Whether to show a progress bar. Default False.
        x_names: The names of the numbers that the simulator returns, such as ("rt", "choice"). They are kept with the
            simulations and with the model; observations in a table are then matched by name. Default None: none.
        inputs: What is known of each observation before it is made, such as a motion coherence or the size of a household:
            `inputs(rng)`, which draws a number or a list of them, or a table (an array or a DataFrame) whose rows are drawn at
            random. The simulator is then called as `simulator(theta, rng, inputs)`, with an array. Inputs should cover those
            of the observations to come; how often each is drawn does not matter for the posterior. Default None: none.
        input_names: The names of the inputs. Default None: a DataFrame's columns, or numbers.
        missing: Whether numbers of an observation may be missing. NaN that the simulator returns, and NaN in `x_obs`, then
            mean "not observed", and training drops further numbers at random (`docs/densities.md`). Inputs are never
            missing. Default False: NaN is a failure.

    Returns:
        `Simulations`. If some failed, a ScorefoldWarning says how many, of which kinds, and shows the first; `failures` of
        what is returned holds the first 100.

    Raises:
        SimulatorError: More than a fraction `max_failures` of the simulations failed, or each of the first 20; the message
            has the first one's parameters and traceback, and `simulations` of the error the cases that are complete, as below.
        ScorefoldError: An argument is not what is expected, or the store holds something else.
        Interrupted: On Ctrl-C. It says how many simulations are done; without a store its attribute `simulations` holds the
            cases that are complete if there are 50 or more, and otherwise None.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=3)
        >>> sf.simulate(prior, simulator, budget=100, seed=0)
        Simulations(100 cases from 100 simulator calls, 0 failed; θ = (rate), x 3, sets of up to 1)
        >>> def response(theta, rng, inputs):
        ...     return rng.normal(theta[0] * inputs[0])
        >>> sf.simulate(prior, response, budget=100, inputs=lambda rng: rng.uniform(1, 2), input_names=["dose"])
        Simulations(100 cases from 100 simulator calls, 0 failed; θ = (rate), x 1 (x[0]) given inputs (dose), sets of up to 1)
    """
    _check_prior(prior)
    check_missing(missing, prior)
    seed, budget, set_size = settings.seed(seed), _checked_budget(budget), settings.count("set_size", set_size, 1)
    _check_size(budget, set_size)
    path = None if store is None else settings.folder(store)
    workers = as_workers(workers)
    known = inputs_from(inputs, input_names)
    check_simulator(simulator, workers, known is not None)
    calls = plan(prior, budget, set_size, seed, known)
    _check_cases(calls)
    names, own = outcome_names(x_names), () if known is None else known.names
    place: Memory | StoreFilling = Memory(calls, prior, names, own, missing)
    if path is not None:
        place = StoreFilling(path, prior, simulator, calls, names, known, missing)
    guard = Guard(workers.max_failures, calls.describe, prior.names)
    run_by = simulator if known is None else joined(simulator, prior.dim)
    run_by = holed(run_by, len(own)) if missing else run_by
    with source_of(run_by, calls.seed, workers, stored=path is not None) as source, closing(place):
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
            stacklevel=3,
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


def _check_prior(prior: Any) -> None:
    if not isinstance(prior, Prior):
        raise ScorefoldError(f"expected a scorefold.Prior; got {type(prior).__name__}. Build one with sf.Prior({{...}}).")


def _checked_budget(budget: Any) -> int:
    try:
        return settings.count("budget", budget, SMALLEST_BUDGET)
    except ScorefoldError as error:
        raise ScorefoldError(f"{error}. Fewer simulations cannot be split into training and validation.") from None


def _check_size(budget: int, set_size: int) -> None:
    if max(budget, set_size) > LARGEST_BUDGET:
        raise ScorefoldError(
            f"expected budget and set_size up to {LARGEST_BUDGET:,}; got {budget:,} and {set_size:,}. Use several stores, with "
            "a seed each."
        )


def _check_cases(calls: Calls) -> None:
    if len(calls.theta) < FEWEST_CASES:
        raise ScorefoldError(
            f"expected a budget for at least {FEWEST_CASES} training cases; {calls.budget:,} simulator calls in sets of "
            f"up to {calls.set_size} make {len(calls.theta)}. Raise the budget or lower set_size."
        )
