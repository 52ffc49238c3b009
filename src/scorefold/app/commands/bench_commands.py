"""`scorefold bench`: plan, run, figures, board, table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands import usage
from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    from rich.console import Console

    from scorefold.app.bench.bench_plan import Cell
    from scorefold.app.bench.record import Record

bench_app = typer.Typer(no_args_is_help=True, help="Measure every figure of the paper again: plan, run, draw.")

Preset = Annotated[
    str,
    typer.Option(
        help="tiny (seconds, for tests), smoke (minutes), quick (half an hour), paper (all of it) or many-observations."
    ),
]
Only = Annotated[
    str, typer.Option(help="Only these cells, as name=value,name=value. Several values for one name are alternatives.")
]


@bench_app.command()
def plan(preset: Preset = "paper", only: Only = "") -> None:
    """List what a preset would run, and about how long that takes."""
    from rich.table import Table

    from scorefold.app.bench import estimate
    from scorefold.app.bench.watch import duration

    cells, console = _cells(preset, only), _console()
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(estimate.part(cell), []).append(cell)
    listing = Table("part", "cells", "trainings", *estimate.MACHINES, box=None, pad_edge=False)
    for name, own in [*parts.items(), ("all", cells)]:
        times = [duration(estimate.seconds(own, machine)) for machine in estimate.MACHINES.values()]
        listing.add_row(name, f"{len(own):,}", f"{_trainings(own):,}", *times)
    console.print(listing)
    console.print(
        "\nThe times are rough. A training that several parts share is counted in each of them, and once in the total."
    )
    console.print("On a GPU they are for one process; nine of them (--executor processes=9) took about a quarter of that.")


@bench_app.command()
def run(
    out: Annotated[Path, typer.Option(help="Folder for the records. A cell with a record there is not run again.")],
    preset: Preset = "smoke",
    only: Only = "",
    executor: Annotated[
        str, typer.Option(help="local, processes=N (on this machine) or dask=ADDRESS (of a scheduler).")
    ] = "local",
) -> None:
    """Run the cells of a preset that have no record in the folder yet."""
    from scorefold.app.bench.drive import drive, missing, parse_executor, share_accelerator
    from scorefold.app.bench.watch import Watch

    usage.known("--executor", lambda: parse_executor(executor))
    if parse_executor(executor)[0] == "processes":
        share_accelerator()  # before JAX starts
    cells, console = _cells(preset, only), _console()
    usage.folder(out)
    left = missing(cells, out)
    console.print(
        f"{len(cells):,} cells, {_trainings(cells):,} trainings; {len(cells) - len(left):,} cells have a record, "
        f"{len(left):,} to run"
    )
    about = {"preset": preset, "only": only, "executor": executor, "version": _version()}
    again = "stopped; the records so far are kept, and the same command makes the others."
    with usage.stoppable(again), Watch(left, console) as watch:
        drive(cells, out, executor, about, watch)
    console.print(f"All {len(cells):,} records are in {out}. Next: scorefold report {out}", soft_wrap=True)


@bench_app.command()
def figures(
    folder: Annotated[Path, typer.Argument(help="A folder that `scorefold bench run` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures; by default figures in the folder.")] = None,
) -> None:
    """Draw those of the paper's figures that the folder has records for."""
    from scorefold.app.bench import bench_figures
    from scorefold.report.canvas import save

    target = out or folder / "figures"
    for name, figure in bench_figures.all_figures(records_in(folder)).items():
        _console().print(str(save(figure, target / f"{name}.png")), soft_wrap=True)


Folders = Annotated[list[Path], typer.Argument(help="Folders of records, one or several: ours and those of others.")]


@bench_app.command()
def board(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="The page; by default board.html in the first folder.")] = None,
) -> None:
    """Write the page of the board: who is right, and at what cost."""
    from scorefold.app.bench.board_page import board_page
    from scorefold.app.bench.standings import gathered
    from scorefold.report.results_folder import write_page

    text, target = board_page(gathered(folders)), out or folders[0] / "board.html"
    usage.known("--out", lambda: write_page(target, text))
    _console().print(f"The page is {target}; {len(text.encode()) / 1e6:.2f} MB.", soft_wrap=True)


@bench_app.command()
def table(
    folders: Folders,
    n: Annotated[list[int] | None, typer.Option(help="Numbers of observations; by default all.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Tasks; by default all.")] = None,
    metric: Annotated[str, typer.Option(help="c2st, sliced_wasserstein or mmd2.")] = "c2st",
) -> None:
    """Print a table in Markdown: a row for each method, a column for each task, from the data sets that all methods have."""
    from scorefold.app.bench.points import METRICS, values
    from scorefold.app.bench.standings import comparable, gathered, markdown

    if metric not in METRICS:
        raise typer.BadParameter(f"expected one of {', '.join(METRICS)}; got {metric!r}", param_hint="--metric")
    records = comparable(gathered(folders))
    typer.echo(markdown(records, n or values(records, "n"), metric, task or ()))


def _cells(preset: str, only: str) -> "list[Cell]":
    from scorefold.app.bench.bench_plan import cells

    try:
        return cells(preset, only)
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint="--preset" if "preset" in str(error) else "--only") from None


def records_in(folder: Path) -> "list[Record]":
    """The records of a folder; one without is wrong usage."""
    from scorefold.app.bench.record import RECORDS, read

    if not (found := read(folder / RECORDS)):
        raise typer.BadParameter(f"expected a folder with records in {RECORDS}; got {folder}", param_hint="FOLDER")
    return found


def _trainings(cells: "list[Cell]") -> int:
    from scorefold.app.bench.bench_plan import grouped

    return sum(len(group.together) for group in grouped(cells))


def _version() -> str:
    from importlib.metadata import version

    return version("scorefold")


def _console() -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout)
