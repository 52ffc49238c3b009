"""What to run: a preset → cells.

A cell is one posterior compared with the true one: a task, a method and how it is set, a budget, a training and a set of
n observations. Its record is a function of this description alone, up to an accelerator's rounding. Trainings of one
configuration are one compiled program that stops when all of them have, so who is trained together belongs to the description
too.

Training r of R is evaluated on parameter draws of its own, P of them: `task.observe(n, 1000 + 6 r + p)`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

from scorefold import methods, tasks
from scorefold.app.bench.setups import STUDY_SAMPLERS, configured
from scorefold.errors import ScorefoldError, closest
from scorefold.methods.npse import NPSE
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.sample import Sampler

PROTOCOL = 2
"""Raised when the same description would give another result. Which draws are kept for figures does not count as one."""
PAPER_SET_SIZE = 6
FIRST_PARAMETERS, PARAMETERS_A_TRAINING = 1_000, 6
SIZES = (1, 8, 14, 22, 30)
BUDGETS = (1_000, 3_000, 10_000, 30_000)
PAPER_TASKS = ("gaussian", "mixture", "sir", "lotka_volterra")
SCORE_METHODS = ("f-npse", "pf-npse", "npse")
BASELINES = ("npe", "nre", "nle")
BOARD_TASKS = (
    *("gaussian", "mixture", "mixture_uniform", "sir", "lotka_volterra"),
    *("slcp", "two_moons", "bernoulli_glm", "drift_diffusion"),
)
BOARD_SIZES = (1, 8, 30, 100, 1_000)
BOARD_METHODS = ("f-npse", "nle")
"""Ours on the board, amortised and refined; the default of `sf.fit` is the second on all its tasks."""
PEERS = {
    "sbi-npse": ("fnpe", "gauss", "auto_gauss", "jac_gauss"),
    "sbi-nle": ("",),
    "sbi-nre": ("",),
    "bayesflow": ("direct", "jac"),
}
"""Methods of other packages, and the ways in which one training of each composes observations."""


@dataclass(frozen=True)
class Cell:
    """One benchmark run, described."""

    task: str
    method: str
    setting: str
    budget: int
    m: int
    """Observations in a training set at most."""
    training: int
    """The seed of simulations and training."""
    together: tuple[int, ...]
    """The seeds trained as one program, this one among them."""
    parameters: int
    """The seed of the true parameters and observations."""
    n: int
    draws: int
    steps: int = 0
    """Of training at most; 0: as the setting has it."""
    conservative: bool = False
    sampler: str = ""
    """Another one than the setting's."""

    @property
    def group(self) -> "Cell":
        """What is trained for this cell: all cells with the same group share it."""
        return replace(self, training=self.together[0], parameters=0, n=0, draws=0, sampler="")

    @property
    def key(self) -> str:
        """A hash of the description."""
        described = json.dumps({"protocol": PROTOCOL, **vars(self)}, sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Extent:
    """How much of a grid is run."""

    trainings: int
    parameters: int
    sizes: tuple[int, ...]
    draws: int
    steps: dict[str, int]
    """Of training at most, for each setting; where there is none, as the setting has it."""


Variant = tuple[str, str]
"""A method and its setting."""


@dataclass(frozen=True)
class Grid:
    """Every combination of tasks, methods and budgets."""

    tasks: Sequence[str]
    variants: Sequence[Variant]
    budgets: Sequence[int]
    m: int | None = None
    """Observations in a training set; where None, as in the paper."""
    samplers: Sequence[str] = ("",)
    conservative: bool = False
    apart: bool = False
    """Each training is a program of its own."""

    def cells(self, extent: Extent) -> Iterator[Cell]:
        """As many of them as the extent says, those of one training next to each other."""
        every = tuple(range(extent.trainings))
        for task, (method, setting), budget, training in product(self.tasks, self.variants, self.budgets, every):
            together = (training,) if self.apart else every
            for sampler, n, p in product(self.samplers, extent.sizes, range(extent.parameters)):
                yield Cell(
                    task=task, method=method, setting=setting, budget=budget, m=self.m or set_size(method, max(extent.sizes)),
                    training=training, together=together, n=n, draws=extent.draws, steps=extent.steps.get(setting, 0),
                    parameters=FIRST_PARAMETERS + PARAMETERS_A_TRAINING * training + p, conservative=self.conservative,
                    sampler=sampler,
                )  # fmt: skip


def set_size(method: str, largest: int) -> int:
    """Observations in a training set: as in the paper."""
    return {"pf-npse": PAPER_SET_SIZE, "npse": largest, "npe": largest}.get(method, 1)


def both(names: Iterable[str]) -> list[Variant]:
    """Every score method in the paper's setting and in ours."""
    return [(name, setting) for name in names for setting in ("paper", "default")]


def known_baselines() -> list[Variant]:
    """The paper's other methods, as far as they are there."""
    return [(name, "default") for name in BASELINES if name in methods.METHODS]


def paper() -> Iterator[Cell]:
    """Everything the paper shows; the parts in order of importance."""
    extent = Extent(5, PARAMETERS_A_TRAINING, SIZES, 1_000, {})
    yield from Grid(PAPER_TASKS, both(SCORE_METHODS), BUDGETS).cells(extent)
    yield from Grid(PAPER_TASKS, known_baselines(), BUDGETS).cells(extent)
    for m in (3, 12, 18, 30):  # m = 1 and 6 are F-NPSE and PF-NPSE above
        yield from Grid(PAPER_TASKS, both(["pf-npse"]), (10_000,), m).cells(extent)
    yield from Grid(PAPER_TASKS, [("pf-npse", "paper")], (10_000,), samplers=tuple(STUDY_SAMPLERS)).cells(extent)
    yield from Grid(PAPER_TASKS, [(name, "paper") for name in SCORE_METHODS], (10_000,), conservative=True).cells(extent)
    few = Extent(1, PARAMETERS_A_TRAINING, (1, 2, 3, 4, 5), 1_000, {})
    yield from Grid(["bimodal"], [*both(SCORE_METHODS), *known_baselines()], (10_000,)).cells(few)
    yield from Grid(["weinberg"], both(["f-npse"]), (10_000,)).cells(few)


def quick() -> Iterator[Cell]:
    """Two tasks, two budgets, two trainings."""
    extent = Extent(2, 2, (1, 8, 30), 500, {"paper": 4_000, "default": 1_500})
    yield from Grid(("gaussian", "sir"), both(["f-npse", "pf-npse"]), (1_000, 10_000)).cells(extent)


def smoke() -> Iterator[Cell]:
    """One task, enough for every kind of line on the page."""
    extent = Extent(2, 1, (1, 8), 200, {"paper": 400, "default": 200})
    yield from Grid(["gaussian"], [("f-npse", "default")], (1_000, 3_000)).cells(extent)
    yield from Grid(["gaussian"], [("f-npse", "paper"), ("pf-npse", "default")], (1_000,)).cells(extent)


def board_extent() -> Extent:
    """What our methods and the peers' have in common."""
    return Extent(2, 3, BOARD_SIZES, 1_000, {})


def many_observations() -> Iterator[Cell]:
    """Our methods for many observations; trainings apart, so that seconds are those of one."""
    variants = [(name, setting) for name in BOARD_METHODS for setting in ("default", "refined")]
    yield from Grid(BOARD_TASKS, variants, (10_000,), apart=True).cells(board_extent())


def peers() -> Iterator[Cell]:
    """Other packages on the same simulations and observations; `make peers` runs them in an environment of their own."""
    for method, ways in PEERS.items():
        yield from Grid(BOARD_TASKS, [(method, "peer")], (10_000,), samplers=ways, apart=True).cells(board_extent())


def tiny() -> Iterator[Cell]:
    """The preset for tests: tiny networks, through the same code."""
    extent = Extent(2, 2, (1, 4), 50, {})
    yield from Grid(["bimodal"], [("f-npse", "tiny")], (500, 1_000)).cells(extent)


PRESETS: dict[str, Callable[[], Iterator[Cell]]] = {
    "tiny": tiny,
    "smoke": smoke,
    "quick": quick,
    "paper": paper,
    "many-observations": many_observations,
    "peers": peers,
}


def cells(preset: str, only: str = "") -> list[Cell]:
    """The cells of a preset that match `only`, checked, each once."""
    if preset not in PRESETS:
        raise ScorefoldError(f"unknown preset {preset!r}. {closest(preset, list(PRESETS))}")
    planned = list(dict.fromkeys(PRESETS[preset]()))
    wanted = parse_only(only)
    chosen = [cell for cell in planned if all(str(getattr(cell, key)) in values for key, values in wanted.items())]
    if not chosen:
        there = {key: ", ".join(dict.fromkeys(str(getattr(cell, key)) for cell in planned)) for key in wanted}
        raise ScorefoldError(
            f"expected --only to leave some of the {len(planned):,} cells of {preset!r}; got {only!r}, which leaves none. "
            + " ".join(f"There is {key} = {values}." for key, values in there.items())
        )
    for cell in {(cell.group, cell.sampler): cell for cell in chosen}.values():
        check(cell)
    return chosen


def parse_only(text: str) -> dict[str, set[str]]:
    """`task=gaussian,task=sir,n=8`: a cell has one of the values given for each name."""
    names = [field.name for field in fields(Cell) if field.name != "together"]
    wanted: dict[str, set[str]] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in names:
            raise ScorefoldError(f"expected --only as name=value,name=value; got {part!r}. {closest(name, names)}")
        wanted.setdefault(name, set()).add(value)
    return wanted


def check(cell: Cell) -> None:
    """Refuse, before any work, a cell that cannot be run."""
    task = tasks.get(cell.task)
    method = None
    if cell.setting == "peer":
        check_peer(cell)
    else:
        method = configured(cell.method, cell.setting, cell.m, cell.steps, cell.conservative)
        if cell.sampler:
            sampler(cell.sampler)
    if cell.n < 1 or cell.draws < 20 or cell.budget < 100 or cell.training not in cell.together:
        raise ScorefoldError(f"expected n ≥ 1, draws ≥ 20, budget ≥ 100 and the training among those together; got {cell}")
    if isinstance(method, NPSE) and cell.setting == "paper" and not task.prior.has_density:
        raise ScorefoldError(f"the paper's setting needs a prior that is N(0, I) after transformation; {cell.task} has none")


def check_peer(cell: Cell) -> None:
    """Refuse a method, or a way of composing, that no peer is asked for."""
    if cell.sampler not in PEERS.get(cell.method, ()):
        known = ", ".join(f"{name} {way}".strip() for name, ways in PEERS.items() for way in ways)
        raise ScorefoldError(f"expected a peer's method: {known}; got {cell.method!r} {cell.sampler!r}")


def sampler(name: str) -> Sampler:
    """A sampler of the study, or one of the package's."""
    return STUDY_SAMPLERS[name] if name in STUDY_SAMPLERS else get_sampler(name)


def grouped(chosen: Iterable[Cell]) -> dict[Cell, list[Cell]]:
    """Cells by what is trained for them, in the order planned."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in chosen:
        groups.setdefault(cell.group, []).append(cell)
    return groups
