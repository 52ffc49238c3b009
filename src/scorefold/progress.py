"""Progress of anything that takes longer than a glance; silent where nobody asked for it.

On a terminal and in a notebook it is a bar; anywhere else (a pipe, a log file) it is one line on standard error every few
seconds, and one at the end. In a notebook nothing but IPython is needed: the bar is HTML that is replaced as work goes on, and
its last state is saved with the notebook.
"""

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

SECONDS_A_LINE = 5.0
SECONDS_A_LOOK = 0.2
"""In a notebook, where every look at a bar is a message."""
LONG = 60.0
"""Seconds: what will take longer is said as soon as that is known."""


class Report(NamedTuple):
    """How far the work is: call it after each unit with a short text, and `end` it with a reason where it ended early."""

    update: Callable[[int, str], None]
    """(units done since the last call, text); with none done, the text is shown at once"""
    end: Callable[[str], None]
    """The work is done, though not all units are: this is why."""
    expect: Callable[[int], None]
    """It is known now that there will be so many units, and no more."""

    def __call__(self, text: str) -> None:
        """One unit more is done."""
        self.update(1, text)


SILENT = Report(lambda more, text: None, lambda text: None, lambda total: None)


class Pace:
    """Counts units of work and writes how far it is as a line of text.

    The first units take their time to compile, or to start processes, so that what is left is told from those after them.
    """

    def __init__(self, title: str, total: int, done: int = 0, may_end_early: bool = False):
        self.title, self.total, self.done, self.may_end_early = title, total, done, may_end_early
        self.began, self.later = time.monotonic(), 0
        self.warm: float | None = None

    def add(self, more: int) -> None:
        """So many units more."""
        self.done += more
        if self.warm is not None:
            self.later += more
        elif more:
            self.warm = time.monotonic()

    def expect(self, total: int) -> None:
        """So many units in all: the time left is no bound any more."""
        self.total, self.may_end_early = total, False

    @property
    def rate(self) -> float:
        """Units a second after the first ones; 0 while that cannot be told."""
        return 0.0 if self.warm is None else self.later / max(time.monotonic() - self.warm, 1e-9)

    @property
    def left(self) -> float:
        """Seconds, as far as can be told."""
        return (self.total - self.done) / self.rate if self.later else 0.0

    def line(self, text: str, ended: bool = False) -> str:
        """As it stands in a log; work that has ended has no time left."""
        spent, shown = clock(time.monotonic() - self.began), f", {text}" if text else ""
        if self.total == 1:
            return f"{self.title}: done, {spent}{shown}"
        known = self.later and self.done < self.total and not ended
        left = f", {'at most ' if self.may_end_early else ''}{clock(self.left)} left" if known else ""
        of = f"of at most {self.total:,}" if self.may_end_early else f"of {self.total:,} ({self.done / max(self.total, 1):.0%})"
        return f"{self.title}: {self.done:,} {of}, {spent}{left}{shown}"


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some.

    >>> clock(75.0), clock(4_000.0)
    ('1:15', '1:06:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def bar(title: str, total: int, show: bool, done: int = 0, may_end_early: bool = False) -> Iterator[Report]:
    """Show the progress of a `with` block: on a terminal or in a notebook a bar, elsewhere lines on standard error.

    Args:
        title: What is done, in a word.
        total: Units of work, at most.
        show: Whether to show anything.
        done: Units that are done already.
        may_end_early: Whether there may be fewer units, so that the time left is a bound.

    Yields:
        A `Report`, to be called after each unit.
    """
    if not show:
        yield SILENT
        return
    from rich import get_console

    pace, console = Pace(title, total, done, may_end_early), get_console()
    way = _in_a_notebook if console.is_jupyter else _drawn if console.is_terminal else _logged
    with way(pace) as report:
        yield report


@contextmanager
def _drawn(pace: Pace) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    def bound() -> str:
        return "at most" if pace.may_end_early else "left"

    columns = (
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[bound]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns, transient=False) as progress:
        task = progress.add_task(pace.title, total=pace.total, completed=pace.done, text="", bound=bound())

        def update(more: int, text: str) -> None:
            pace.add(more)
            rate = f"{pace.rate:,.1f}/s  " if pace.later else ""
            progress.update(task, advance=more, text=f"{rate}{text}")

        def end(text: str) -> None:
            progress.update(task, total=max(pace.done, 1), completed=max(pace.done, 1), text=text)

        def expect(total: int) -> None:
            pace.expect(total)
            progress.update(task, total=total, bound=bound())

        yield Report(update, end, expect)


class NotebookBar(NamedTuple):
    """A bar as a notebook shows and keeps it."""

    line: str
    """How far the work is, in words."""
    done: int
    total: int

    def __repr__(self) -> str:
        return self.line

    def _repr_html_(self) -> str:
        known = "" if self.done < self.total == 1 else f" value='{self.done}'"  # a step that has no parts has no place either
        bar = f"<progress{known} max='{max(self.total, 1)}' style='width:16em;vertical-align:middle'></progress>"
        return f"<div>{bar} <code>{html.escape(self.line)}</code></div>"


@contextmanager
def _in_a_notebook(pace: Pace) -> Iterator[Report]:
    """Rich needs ipywidgets there, and without them shows a warning in place of each bar."""
    from IPython.display import display

    latest, shown, ended = "", pace.began, False

    def look() -> NotebookBar:
        if pace.done < pace.total == 1:
            return NotebookBar(f"{pace.title}: begun", 0, 1)
        total = pace.done if ended else pace.total
        return NotebookBar(pace.line(latest, ended), pace.done, total)

    handle = display(look(), display_id=True)

    def update(more: int, text: str) -> None:
        nonlocal latest, shown
        latest, now = text, time.monotonic()
        pace.add(more)
        if not more or now - shown >= SECONDS_A_LOOK:
            shown = now
            handle.update(look())

    def end(text: str) -> None:
        nonlocal latest, ended
        latest, ended = text, True

    try:
        yield Report(update, end, pace.expect)
    finally:  # after an error it stays where it was
        handle.update(look())


@contextmanager
def _logged(pace: Pace) -> Iterator[Report]:
    latest, said, ended = "", pace.began, False
    if pace.total == 1:
        print(f"{pace.title}: begun", file=sys.stderr, flush=True)

    def say(text: str) -> None:
        nonlocal said
        said = time.monotonic()
        print(pace.line(text, ended), file=sys.stderr, flush=True)

    def update(more: int, text: str) -> None:
        nonlocal latest
        latest = text
        unknown = not pace.later
        pace.add(more)
        due = not more or time.monotonic() - said >= SECONDS_A_LINE or (unknown and pace.left > LONG)
        if due and pace.done < pace.total:  # the last line comes at the end
            say(text)

    def end(text: str) -> None:
        nonlocal ended
        ended = True
        say(text)

    yield Report(update, end, pace.expect)
    if not ended:
        say(latest)


@contextmanager
def step(title: str, show: bool) -> Iterator[None]:
    """Show that something has begun and when it is over: a `with` block for work that has no parts to count, so that nobody
    knows how long it takes.
    """
    with bar(title, 1, show) as report:
        yield
        report("")


def say(text: str, show: bool) -> None:
    """A line among the bars, as they are: on a terminal, in a notebook, or on standard error."""
    if not show:
        return
    from rich import get_console

    console = get_console()
    if console.is_terminal or console.is_jupyter:
        console.print(text, markup=False, highlight=False)
    else:
        print(text, file=sys.stderr, flush=True)


def track(items: Iterable[T], title: str, show: bool) -> Iterator[T]:
    """The items of a list, one after the other, with a bar that counts those that the caller's loop has done; with `show` off,
    in silence.
    """
    listed = list(items)
    with bar(title, len(listed), show) as report:
        for item in listed:
            yield item
            report("")


def record_time(seconds: dict[str, float], name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function with the arguments that follow, note the seconds it took under `name`, and return its result."""
    started = time.perf_counter()
    value = function(*args, **kwargs)
    seconds[name] = time.perf_counter() - started
    return value
