"""How long a plan takes, roughly: for two CPU cores and for one accelerator.

Training costs a constant for compilation and then so much a step: on cores in proportion to the networks trained together, on
an accelerator hardly. A draw costs so much for each evaluation of a score, of which there are levels × steps × draws × sets.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from scorefold.app.bench.bench_plan import BASELINES, Cell, grouped, sampler
from scorefold.app.bench.setups import configured
from scorefold.methods.npse import NPSE
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.sample import DPM, SelfTuned


class Machine(NamedTuple):
    """Seconds, of the right order. On two cores `step`, `network`, `level` and `score` are fitted to a run of the preset
    `quick` (`benchmarks/calibrate_estimate.py`)."""

    start: float
    """A configuration: simulation, compilation."""
    step: float
    """A training step, whatever is trained."""
    network: float
    """A training step, for each network of width 64 and each observation in a set."""
    draw: float
    """A cell: reference, C2ST, MMD."""
    level: float
    """One step of a sampler, whatever it moves."""
    score: float
    """A score of one set for one draw."""
    other: float
    """Training and drawing with a method that is not by scores, for each cell."""
    refine: float = 0.0
    """Refining for one cell."""
    peer: float = 0.0
    """A training of a peer's, or one of its cells."""


MACHINES = {
    "two cores": Machine(5.0, 0.001, 0.0035, 2.0, 5.6e-4, 2.5e-7, 5.0, 120.0, 60.0),
    "one GPU": Machine(35.0, 0.003, 0.0002, 0.3, 2e-4, 4e-9, 1.0, 60.0, 30.0),
}


def seconds(cells: Iterable[Cell], machine: Machine) -> float:
    """Seconds that all of the cells take."""
    groups = grouped(cells)
    alike = Counter((group, cell.n, cell.draws, cell.sampler) for group, own in groups.items() for cell in own)
    drawing = sum(
        count * draw_seconds(replace(group, n=n, draws=draws, sampler=sampler), machine)
        for (group, n, draws, sampler), count in alike.items()
    )
    return drawing + sum(training_seconds(group, machine) for group in groups)


def training_seconds(group: Cell, machine: Machine) -> float:
    """Seconds that training takes for one configuration with all its seeds."""
    if group.setting == "peer":
        return machine.peer
    method = configured(group.method, group.setting, group.m, group.steps, group.conservative)
    if not isinstance(method, NPSE):
        return machine.start
    training = method.training
    networks = training.members * len(training.learning_rates) * len(group.together)
    load = networks * (method.width / 64) ** 2 * (1 + 0.1 * (group.m - 1)) * (2 if group.conservative else 1)
    return machine.start + training.steps * (machine.step + machine.network * load)


def draw_seconds(cell: Cell, machine: Machine) -> float:
    """Seconds that drawing takes for one cell of a trained configuration."""
    if cell.setting == "peer":
        return machine.peer
    if cell.setting == "refined":
        return machine.refine + draw_seconds(replace(cell, setting="default"), machine)
    method = configured(cell.method, cell.setting, cell.m, cell.steps, cell.conservative)
    if not isinstance(method, NPSE):
        return machine.draw + machine.other
    sets = -(-cell.n // cell.m) if method.composes else 1
    given = sampler(cell.sampler) if cell.sampler else method.sampler
    chosen = (DPM() if sets == 1 else SelfTuned()) if given is None else get_sampler(given)
    moves = (chosen.levels or method.T) * getattr(chosen, "steps", 1)
    return machine.draw + moves * (machine.level + machine.score * sets * max(cell.draws, 128) * method.training.members)


def part(cell: Cell) -> str:
    """Which part of the benchmark a cell belongs to."""
    if cell.task in ("bimodal", "weinberg"):
        return cell.task
    if cell.setting == "peer":
        return "peers"
    if cell.setting == "refined":
        return "refined"
    if cell.sampler:
        return "samplers"
    if cell.conservative:
        return "conservative networks"
    if cell.method in BASELINES:
        return "other methods"
    if cell.method == "pf-npse" and cell.m != 6:
        return "study of m"
    return f"budgets × n, {cell.setting} setting"
