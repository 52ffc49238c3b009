"""Cells → records.

Cells that share a training run together: simulate and train once for all seeds of the configuration, then draw for one cell
after the other, on an accelerator for all data sets of one size together. C2ST trains its classifiers in batches of one fixed
size, so that a cell's number does not depend on which cells are measured with it. Draws that the sampler itself refuses count
as wholly wrong: C2ST 1, squared MMD 2 - 2 e^{-1/2}, the value of two clouds far apart. The sliced Wasserstein distance has no
largest value: for such draws there is none.
"""

import math
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scorefold import tasks
from scorefold.app.bench.bench_plan import Cell, sampler
from scorefold.app.bench.record import Event, Record, described
from scorefold.app.bench.setups import configured, simulated_before
from scorefold.diagnostics.c2st import c2st_many
from scorefold.diagnostics.mmd import squared_mmd
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.diagnostics.sliced_wasserstein import sliced_wasserstein
from scorefold.errors import ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.fit import fit_many
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import Simulations

MMD2_FAR_APART = 2 - 2 * math.exp(-0.5)
"""Of two clouds that lie far apart."""
REFERENCE_SEED = 0
SHOWN_TASKS, SHOWN_DRAWS = ("bimodal", "weinberg"), 250
"""Draws kept in the record, of the tasks with a figure that shows draws."""
MEASURED_TOGETHER = 30
"""Cells, on an accelerator."""
LONGEST_ERROR = 300


class Trained(NamedTuple):
    """One configuration, trained for each of its seeds."""

    posteriors: dict[int, Posterior]
    simulations: dict[int, Simulations]
    seconds: dict[str, float]


class DrawnCloud(NamedTuple):
    """What the sampler gave for one data set."""

    theta: np.ndarray | None
    """None where the draws were refused."""
    converged: bool
    diverged: bool
    failed: str = ""
    """Why they were refused."""
    refining: float = 0.0
    """Seconds of refinement before."""


class Drawn(NamedTuple):
    """One cell's draws before they are measured; none where the sampler refused."""

    cell: Cell
    theta: np.ndarray | None
    record: Record


def run_group(cells: Sequence[Cell]) -> Iterator[Record]:
    """The records of cells that share a training, each as soon as it is known."""
    group = cells[0].group
    if any(cell.group != group for cell in cells):
        raise ScorefoldError("expected cells that share a training; got several configurations")
    trained = train(group)
    batch = 1 if jax.default_backend() == "cpu" else MEASURED_TOGETHER
    for start in range(0, len(cells), batch):
        some = cells[start : start + batch]
        together: dict[Cell, list[Cell]] = {}
        for cell in some:
            together.setdefault(replace(cell, parameters=0), []).append(cell)
        drawn = {one.cell: one for own in together.values() for one in draw(own, trained)}
        yield from measure([drawn[cell] for cell in some], batch)


def attempt(cells: Sequence[Cell]) -> Iterator[Event]:
    """What becomes of cells that share a training: their records and, where an error ends them, that error."""
    group = cells[0].group
    try:
        for record in run_group(cells):
            yield Event("record", group, record)
    except Exception as error:
        yield failure(group, error)


def collect(cells: Sequence[Cell]) -> list[Event]:
    """The events of `attempt` as a list, for a worker elsewhere."""
    return list(attempt(cells))


def failure(group: Cell, error: Exception) -> Event:
    """An error as an event: in one line, with its place unless it is one of ours."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    if len(words) > LONGEST_ERROR:
        words = words[: LONGEST_ERROR - 1] + "…"
    if not isinstance(error, ScorefoldError) and (frames := traceback.extract_tb(error.__traceback__)):
        words += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return Event("failed", group, error=words)


def train(group: Cell) -> Trained:
    """Simulate and train for every seed of a configuration, as one program."""
    task, method = tasks.get(group.task), configured(group.method, group.setting, group.m, group.steps, group.conservative)
    calls, started = simulated_before(group.budget, group.setting), time.perf_counter()
    sims = [simulate(task.prior, task.simulator, calls, group.m, seed) for seed in group.together]
    simulated = time.perf_counter()
    posteriors = fit_many(sims, method, list(group.together))
    seconds = {"simulate": simulated - started, "train": time.perf_counter() - simulated}
    return Trained(dict(zip(group.together, posteriors, strict=True)), dict(zip(group.together, sims, strict=True)), seconds)


def draw(cells: Sequence[Cell], trained: Trained) -> list[Drawn]:
    """The draws of cells that differ in their parameters alone, and what is known of them but C2ST."""
    first = cells[0]
    posterior = trained.posteriors[first.training]
    truths, x_obs = zip(*map(observed, cells), strict=True)
    started = time.perf_counter()
    if first.setting == "refined":
        clouds = [_refined(trained, cell, x) for cell, x in zip(cells, x_obs, strict=True)]
    else:
        clouds = _clouds(posterior, cells, np.stack(x_obs))
    drawing = time.perf_counter() - started - sum(cloud.refining for cloud in clouds)
    shown = first.task in SHOWN_TASKS
    drawn = []
    for cell, truth, cloud in zip(cells, truths, clouds, strict=True):
        record = described(cell)
        record["truth"], record["training"] = _plain(truth), _history(posterior)
        if cloud.theta is None:
            record["failed"] = cloud.failed
        elif shown:
            record["draws"] = [_plain(row) for row in cloud.theta[:SHOWN_DRAWS]]
        record["converged"], record["diverged"] = cloud.converged, cloud.diverged
        seconds = trained.seconds | ({"refine": cloud.refining} if cloud.refining else {}) | {"draw": drawing / len(cells)}
        record["seconds"] = {name: round(value, 3) for name, value in seconds.items()}
        record["memory"] = peak_memory()
        drawn.append(Drawn(cell, cloud.theta, record))
    return drawn


def _clouds(posterior: Posterior, cells: Sequence[Cell], x_obs: np.ndarray) -> list[DrawnCloud]:
    """The draws for each data set, none where they were refused, and how the sampler's run went."""
    first = cells[0]
    asked: Any = sampler(first.sampler) if first.sampler else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # it is in the record
        try:
            if len(cells) == 1:
                draws = posterior.sample(x_obs[0], first.draws, first.parameters, sampler=asked)
                return [DrawnCloud(draws.theta, bool(draws.info.converged), bool(draws.info.diverged))]
            many = posterior.sample_many(x_obs, first.draws, [cell.parameters for cell in cells], sampler=asked)
        except ScorefoldError as error:
            return [DrawnCloud(None, False, True, str(error))] * len(cells)
    return [
        DrawnCloud(theta, bool(converged), bool(diverged))
        if np.isfinite(theta).all()
        else DrawnCloud(None, False, True, "draws are not finite")
        for theta, converged, diverged in zip(many.theta, many.converged, many.diverged, strict=True)
    ]


def _refined(trained: Trained, cell: Cell, x_obs: np.ndarray) -> DrawnCloud:
    """The draws of a posterior that the rest of the budget refined for these observations."""
    started = time.perf_counter()
    sims, simulator = trained.simulations[cell.training], tasks.get(cell.task).simulator
    budget = cell.budget - simulated_before(cell.budget, cell.setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)  # C2ST says how well it went
        try:
            own = trained.posteriors[cell.training].refine(x_obs, simulator, budget, seed=cell.parameters, sims=sims)
        except ScorefoldError as error:
            return DrawnCloud(None, False, True, str(error), time.perf_counter() - started)
    spent = time.perf_counter() - started
    return _clouds(own, [cell], x_obs[None])[0]._replace(refining=spent)


def peak_memory() -> dict[str, int]:
    """The most that this process has had so far, in MB, and on an accelerator."""
    found = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e3 if sys.platform != "darwin" else 1e6)}
    on_device = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {name: round(value) for name, value in (found | ({"device": on_device / 1e6} if on_device else {})).items()}


def measure(drawn: Sequence[Drawn], batch: int) -> Iterator[Record]:
    """The records of several cells, their classifiers trained in batches of one size."""
    there = [(one.cell, one.theta, reference_of(one.cell)) for one in drawn if one.theta is not None]
    told: dict[str, float] = {}
    # Only clouds of one shape go together.
    for shape in dict.fromkeys(theta.shape for _, theta, _ in there):
        alike = [one for one in there if one[1].shape == shape]
        padded = [alike[i % len(alike)] for i in range(batch)]
        found = c2st_many([theta for _, theta, _ in padded], [reference for _, _, reference in padded])
        told |= {cell.key: value for (cell, _, _), value in zip(padded, found, strict=True)}
    device = jax.devices()[0].device_kind
    for one in drawn:
        yield one.record | {"measures": _measures(one, told.get(one.cell.key)), "device": device}


def _measures(one: Drawn, accuracy: float | None) -> dict[str, float | None]:
    if one.theta is None or accuracy is None:
        return {"c2st": 1.0, "mmd2": MMD2_FAR_APART, "shift": None, "sd_ratio": None, "sliced_wasserstein": None}
    reference = reference_of(one.cell)
    return {
        "c2st": accuracy,
        "mmd2": _number(squared_mmd(one.theta, reference)),
        "shift": _number(np.sqrt((mean_shift(one.theta, reference) ** 2).mean())),
        "sd_ratio": _number(sd_ratio(one.theta, reference).mean()),
        "sliced_wasserstein": _number(sliced_wasserstein(one.theta, reference)),
    }


def observed(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The true parameters and the observations, made by the processor, so that an accelerator's rounding is not in them."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return tasks.get(cell.task).observe(cell.n, cell.parameters)


def reference_of(cell: Cell) -> np.ndarray:
    """Draws of the true posterior of a cell."""
    return reference_draws(cell.task, cell.n, cell.parameters, cell.draws)


@lru_cache(maxsize=2_000)
def reference_draws(task: str, n: int, parameters: int, draws: int) -> np.ndarray:
    """Draws of the true posterior: the same for every method."""
    found = tasks.get(task)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return found.reference(found.observe(n, parameters)[1], draws, REFERENCE_SEED)


def _history(posterior: Posterior) -> dict[str, float]:
    """The learning rate kept and its validation loss, where the method has them."""
    history = posterior.history
    losses, rate = getattr(history, "losses", None), getattr(history, "learning_rate", None)
    if not isinstance(losses, dict) or rate is None or rate not in losses:
        return {}
    return {"learning_rate": float(rate), "validation": float(losses[rate])}


def _plain(values: Iterable[Any]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: Any) -> float | None:
    """A number to six digits, which is what single precision has; None for one that is not finite."""
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
