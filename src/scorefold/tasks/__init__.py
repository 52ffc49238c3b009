"""Problems with a known answer, by name."""

from functools import cache

from scorefold.errors import ScorefoldError, closest
from scorefold.tasks import (
    bernoulli_glm,
    bimodal,
    correlated,
    drift_diffusion,
    gaussian,
    lotka_volterra,
    mixture,
    mixture_uniform,
    sir,
    slcp,
    two_moons,
    weinberg,
)
from scorefold.tasks.task import Task

TASKS = {
    "gaussian": gaussian.task,
    "mixture": mixture.task,
    "bimodal": bimodal.task,
    "correlated": correlated.task,
    "sir": sir.task,
    "lotka_volterra": lotka_volterra.task,
    "weinberg": weinberg.task,
    "slcp": slcp.task,
    "two_moons": two_moons.task,
    "mixture_uniform": mixture_uniform.task,
    "bernoulli_glm": bernoulli_glm.task,
    "drift_diffusion": drift_diffusion.task,
}


def names() -> list[str]:
    """The known tasks."""
    return list(TASKS)


@cache
def get(name: str) -> Task:
    """The task of this name; the same object every time, so that compiled functions are kept."""
    if name not in TASKS:
        raise ScorefoldError(f"unknown task {name!r}. {closest(name, names())}")
    return TASKS[name]()


__all__ = ["TASKS", "Task", "get", "names"]
