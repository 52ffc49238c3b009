"""Warnings as the command line gives them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def aloud() -> Iterator[None]:
    """Every warning as a line on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest, **others: typer.echo(f"scorefold: {message}", err=True)
        yield
