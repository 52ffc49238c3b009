"""What the commands share: wrong usage is refused before any work is done, warnings become lines, programs are kept.

An option that counts something is declared by `counted`, so that 1e4 is as good as 10000.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


def known(option: str, look_up: Callable[[], T]) -> T:
    """What `look_up` returns; a ScorefoldError in it is wrong usage of the option."""
    try:
        return look_up()
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def counted(least: int, words: str, *names: str) -> Any:
    """An option that is a whole number of at least `least`, written 10000, 10_000 or 1e4; `words` are its help."""

    def whole_number(text: Any) -> int:
        from scorefold import settings

        try:
            return settings.count("it", float(text), least)
        except (ScorefoldError, ValueError):
            raise typer.BadParameter(f"expected a whole number ≥ {least}, such as 1000 or 1e3; got {text}") from None

    return typer.Option(*names, parser=whole_number, metavar=f"<number ≥ {least}>", help=words)


def target(path: Path, option: str = "--out") -> None:
    """A file that could not be written, since its folder is not there or not ours to write to, is wrong usage."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise typer.BadParameter(f"expected a folder that is there; got {path}, but there is no {parent}", param_hint=option)
    if not os.access(parent, os.W_OK):
        raise typer.BadParameter(f"expected a folder that can be written to; got {path} in {parent}", param_hint=option)


def folder(out: Path) -> None:
    """Make the folder of --out; one that cannot be made is wrong usage."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint="--out") from None
    if not os.access(out, os.W_OK):
        raise typer.BadParameter(f"expected a folder that can be written to; got {out}", param_hint="--out")


def model_folder(path: Path, option: str = "--out") -> None:
    """A model that could not be saved, since its folder cannot be made, is wrong usage: nothing is simulated or trained."""
    above = next(one for one in path.absolute().parents if os.path.exists(one))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise typer.BadParameter(
            f"expected a folder that can be made; got {path}, and nothing can be written to {above}", param_hint=option
        )


def new_model(save: Path) -> None:
    """Where --save keeps a model there must be nothing yet."""
    if save.is_symlink() or save.exists():
        raise typer.BadParameter(f"{save} exists already; name a new folder", param_hint="--save")
    model_folder(save, "--save")


def screen() -> "Console":
    """Where a command's tables go: a terminal with its own width; a pipe or a file with that of `print`, where rich would take
    80 letters and break numbers.
    """
    from rich.console import Console

    from scorefold.report.rendered import LINE_LENGTH

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=LINE_LENGTH)


@contextmanager
def stoppable(kept: str = "") -> Iterator[None]:
    """After Ctrl-C a line says what is kept, in the words of the exception or in these; typer itself would say nothing."""
    try:
        yield
    except KeyboardInterrupt as stop:
        typer.echo(f"scorefold: {str(stop) or kept or 'stopped'}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def at_work() -> Iterator[None]:
    """Every warning, and what Ctrl-C leaves, as a line on standard error; programs that are compiled meanwhile are kept for the
    next command.
    """
    from scorefold.disk.program_cache import cache

    cache()
    with stoppable(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest, **others: typer.echo(f"scorefold: {message}", err=True)
        yield
