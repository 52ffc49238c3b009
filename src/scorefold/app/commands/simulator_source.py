"""Whose simulator a command uses on saved posteriors: that of a task or of a TOML file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from scorefold.app.commands.usage import known
from scorefold.shown import listed

if TYPE_CHECKING:
    from scorefold.posterior.posterior import Posterior
    from scorefold.tasks.task import Task


class Source(NamedTuple):
    """Where simulations come from."""

    title: str
    names: tuple[str, ...]
    """Of the parameters."""
    simulator: Any
    log_likelihood: Any
    workers: Any = None
    """Who runs the simulator and within which limits, as the file says; None for a task."""


def source_of(task: "Task", config: Path | None) -> Source:
    """The simulator of a TOML file if there is one, else the task's."""
    from scorefold.app import config as files

    if config is None:
        return Source(task.title, task.prior.names, task.simulator, task.log_likelihood)
    own = known("--config", lambda: files.read(config))
    names, simulator = known("--config", own.prior).names, known("--config", own.simulator)
    workers = known("--config", own.arguments)["workers"]
    return Source(f"{own.function} of {config}", names, simulator, None, workers)


def belongs(posterior: "Posterior", names: tuple[str, ...], option: str) -> None:
    """A simulator other than the one that the model was trained on is wrong usage."""
    if posterior.prior.names != names:
        raise typer.BadParameter(
            f"expected the simulator that the model was trained on, with parameters {listed(posterior.prior.names)}; got one "
            f"with {listed(names)}. Name it: --config FILE.toml for your own, --task NAME for one of `scorefold tasks`.",
            param_hint=option,
        )
