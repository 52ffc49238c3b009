"""Problems with a known answer, by name."""

from functools import cache

from scorefold.errors import ScorefoldError, closest
from scorefold.tasks import bimodal, correlated, gaussian, lotka_volterra, mixture, sir, weinberg
from scorefold.tasks.task import Task

TASKS = {
    "gaussian": gaussian.task,
    "mixture": mixture.task,
    "bimodal": bimodal.task,
    "correlated": correlated.task,
    "sir": sir.task,
    "lotka_volterra": lotka_volterra.task,
    "weinberg": weinberg.task,
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
