"""A benchmark run as it is seen on the terminal: a bar with the time left, or lines where there is no terminal."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from scorefold.app.bench.bench_plan import Cell, grouped
from scorefold.app.bench.drive import title
from scorefold.app.bench.estimate import MACHINES, draw_seconds, training_seconds
from scorefold.app.bench.record import Event


class Watch:
    """Shows every event of a run; the time left is by the estimated cost of what is done and what is not."""

    def __init__(self, left: list[Cell], console: Console) -> None:
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
            columns = (BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[text]}"), console=self._console)
            self._bar.start()
            self._task = self._bar.add_task("bench", total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """A configuration starts, is sent to workers or has failed, or a record is there."""
        group, record = event.group, event.record
        if event.what == "start":
            self._say(f"{title(group)}: training {len(group.together)}", line=True)
        elif event.what == "sent":
            self._sent += 1
            self._say(f"{self._sent} configurations sent to the workers", line=self._sent == len(self._left))
        elif record is None:
            self._total -= self._training.pop(group, 0.0) + sum(self._cell[key] for key in self._left[group])
            self._console.print(f"{title(group)}: failed, {event.error}", soft_wrap=True, markup=False)
        else:
            self._done += self._training.pop(group, 0.0) + self._cell[record["key"]]
            self._cells += 1
            self._left[group].remove(record["key"])
            found = record["measures"]["c2st"]
            words = f"{title(group)}: n = {record['cell']['n']}, " + (
                f"C2ST {found:.2f}" if found is not None else record["failed"]
            )
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
    """A time in seconds, minutes or hours, by how long it is."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"
