"""`scorefold bench`: plan, run, figures."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scorefold.app.commands import usage
from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    from rich.console import Console

    from scorefold.app.bench.plan import Cell

app = typer.Typer(no_args_is_help=True, help="Every figure of the paper, measured again: plan, run, draw.")

Preset = Annotated[
    str, typer.Option(help="tiny (seconds, for tests), smoke (minutes), quick (half an hour) or paper (all of it).")
]
Only = Annotated[
    str, typer.Option(help="Only some cells, as name=value,name=value; several values of one name are alternatives.")
]


@app.command()
def plan(preset: Preset = "paper", only: Only = "") -> None:
    """Say what a preset would run, and about how long that takes."""
    from rich.table import Table

    from scorefold.app.bench import estimate

    cells, console = _cells(preset, only), _console()
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(estimate.part(cell), []).append(cell)
    table = Table("part", "cells", "trainings", *estimate.MACHINES, box=None, pad_edge=False)
    for name, own in [*parts.items(), ("all", cells)]:
        times = [duration(estimate.seconds(own, machine)) for machine in estimate.MACHINES.values()]
        table.add_row(name, f"{len(own):,}", f"{_trainings(own):,}", *times)
    console.print(table)
    console.print("\nThe times are rough; trainings that several parts share are counted in each of them, once in all.")
    console.print("Those of a GPU are for one process. Nine (--executor processes=9) took about a quarter of that.")


@app.command()
def run(
    out: Annotated[Path, typer.Option(help="Folder for the records. What has a record there is not run again.")],
    preset: Preset = "smoke",
    only: Only = "",
    executor: Annotated[
        str, typer.Option(help="local, processes=N (on this machine) or dask=ADDRESS (of a scheduler).")
    ] = "local",
) -> None:
    """Run a preset's cells, as far as they have no record in the folder yet."""
    from scorefold.app.bench.drive import drive, missing, parse_executor, share_accelerator

    usage.known("--executor", lambda: parse_executor(executor))
    if parse_executor(executor)[0] == "processes":
        share_accelerator()  # before JAX starts
    cells, console = _cells(preset, only), _console()
    usage.folder(out)
    left = missing(cells, out)
    console.print(
        f"{len(cells):,} cells, {_trainings(cells):,} trainings; {len(cells) - len(left):,} cells are there, "
        f"{len(left):,} to run"
    )
    about = {"preset": preset, "only": only, "executor": executor, "version": _version()}
    with Watch(left, console) as watch:
        drive(cells, out, executor, about, watch)
    console.print(f"All {len(cells):,} records are in {out}. Next: scorefold report {out}", soft_wrap=True)


@app.command()
def figures(
    folder: Annotated[Path, typer.Argument(help="A folder that `scorefold bench run` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures; by default DIR/figures.")] = None,
) -> None:
    """Draw the paper's figures from the records in a folder, those for which there are records."""
    from scorefold.app.bench import bench_figures
    from scorefold.report.canvas import save

    target = out or folder / "figures"
    for name, figure in bench_figures.all_figures(records_in(folder)).items():
        _console().print(str(save(figure, target / f"{name}.png")), soft_wrap=True)


class Watch:
    """A bar with the time left, by the estimated cost of what is done and what is not; lines where there is no terminal."""

    def __init__(self, left: "list[Cell]", console: "Console") -> None:
        from scorefold.app.bench.estimate import MACHINES, draw_seconds, training_seconds
        from scorefold.app.bench.plan import grouped

        machine = MACHINES["two cores"]
        groups = grouped(left)
        self._console, self._shown = console, console.is_terminal
        self._training = {group: training_seconds(group, machine) for group in groups}
        self._cell = {cell.key: draw_seconds(cell, machine) for cell in left}
        self._left = {group: {cell.key for cell in own} for group, own in groups.items()}
        self._total = sum(self._training.values()) + sum(self._cell.values())
        self._done, self._cells, self._sent, self._started = 0.0, 0, 0, time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> "Watch":
        if self._shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[text]}"), console=self._console)
            self._bar.start()
            self._task = self._bar.add_task("bench", total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, what: str, group: "Cell", said: Any) -> None:
        """A configuration starts, is sent to workers or has failed, or a record is there."""
        from scorefold.app.bench.drive import title

        if what == "start":
            self._say(f"{title(group)}: training {len(group.together)}", line=True)
        elif what == "sent":
            self._sent += 1
            self._say(f"{self._sent} configurations sent to the workers", line=self._sent == len(self._left))
        elif what == "failed":
            self._total -= self._training.pop(group, 0.0) + sum(self._cell[key] for key in self._left[group])
            self._console.print(f"{title(group)}: failed, {said}", soft_wrap=True, markup=False)
        else:
            self._done += self._training.pop(group, 0.0) + self._cell[said["key"]]
            self._cells += 1
            self._left[group].remove(said["key"])
            words = f"{title(group)}: n = {said['cell']['n']}, C2ST {said['measures']['c2st']:.2f}"
            self._say(words, line=not self._left[group])

    def _say(self, text: str, line: bool) -> None:
        spent = time.monotonic() - self._started
        started, finished = self._done > 0, self._cells == len(self._cell)
        left = f"about {duration(spent * max(self._total / self._done - 1, 0.0))} left; " if started and not finished else ""
        if self._bar:
            self._bar.update(self._task, total=self._total, completed=self._done, text=f"{left}{text}")
        elif line:
            self._console.print(f"{self._cells}/{len(self._cell)} cells, {duration(spent)}; {left}{text}", soft_wrap=True)


def duration(seconds: float) -> str:
    """In words that fit their size."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"


def _cells(preset: str, only: str) -> "list[Cell]":
    from scorefold.app.bench.plan import cells

    try:
        return cells(preset, only)
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint="--preset" if "preset" in str(error) else "--only") from None


def records_in(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder; one without is wrong usage."""
    from scorefold.app.bench.record import RECORDS, read

    if not (found := read(folder / RECORDS)):
        raise typer.BadParameter(f"expected a folder with records in {RECORDS}; got {folder}", param_hint="FOLDER")
    return found


def _trainings(cells: "list[Cell]") -> int:
    from scorefold.app.bench.plan import grouped

    return sum(len(group.together) for group in grouped(cells))


def _version() -> str:
    from importlib.metadata import version

    return version("scorefold")


def _console() -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout)
