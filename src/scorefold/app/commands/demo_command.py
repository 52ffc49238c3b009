"""`scorefold demo`: the story of one epidemic."""

from pathlib import Path
from typing import Annotated

import typer

from scorefold.app.commands.usage import aloud, folder


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the summary.")] = Path("demo"),
    budget: Annotated[int, typer.Option(min=1_000, help="Simulator calls for training.")] = 10_000,
    sims: Annotated[int, typer.Option(min=20, help="Data sets for the calibration check.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
) -> None:
    """An epidemic inferred from 1, 8 and 14 observations, next to the true posterior, on a page to look at."""
    from rich.console import Console

    from scorefold.app.demo import demo as run

    folder(out)
    console = Console()
    with aloud():
        page = run(out, console, budget, sims, seed)
    console.print(f"\nThe page is {page}; open it in any browser.", soft_wrap=True)
