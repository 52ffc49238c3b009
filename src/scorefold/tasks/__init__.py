"""Problems with a known answer, by name.

A task has a prior, a simulator, the true likelihood and a sampler of the true posterior, so that an answer can be compared with
the truth. `names()` lists them, and `get(name)` makes one.
"""

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
    """The names of the tasks that come with the package, as `get` takes them.

    Returns:
        A list of names, in the order in which reports show them.

    Example:
        >>> from scorefold import tasks
        >>> "two_moons" in tasks.names()
        True
    """
    return list(TASKS)


@cache
def get(name: str) -> Task:
    """The task of this name, to try methods on a problem whose posterior is known.

    Args:
        name: One of `names()`.

    Returns:
        A `Task`; the same object every time, so that compiled functions are kept.

    Raises:
        ScorefoldError: There is no task of this name; the message names the closest.

    Example:
        >>> from scorefold import tasks
        >>> task = tasks.get("gaussian")
        >>> task.title, task.prior.dim
        ('Gaussian, 10-D (G-G)', 10)
    """
    if name not in TASKS:
        raise ScorefoldError(f"unknown task {name!r}. {closest(name, names())}")
    return TASKS[name]()


__all__ = ["TASKS", "Task", "get", "names"]
