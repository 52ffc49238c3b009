"""What the commands share: wrong usage is found out before the work, and warnings are said aloud."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from scorefold.errors import ScorefoldError


def known(option: str, look_up: Callable[[], object]) -> None:
    """An unknown name is wrong usage."""
    try:
        look_up()
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def folder(out: Path) -> None:
    """A folder that cannot be made is wrong usage."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint="--out") from None


@contextmanager
def aloud() -> Iterator[None]:
    """Every warning as a line on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest, **others: typer.echo(f"scorefold: {message}", err=True)
        yield
