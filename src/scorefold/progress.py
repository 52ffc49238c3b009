"""Progress bars for anything that takes longer than a glance; silent where nobody asked for one."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


Report = Callable[[str], None]
"""Called after each unit of work with a short text to show beside the bar."""


@contextmanager
def bar(title: str, total: int, show: bool) -> Iterator[Report]:
    """Show a bar over `total` units of work with the time left; call what it gives after each unit, with a text to show."""
    if not show:
        yield lambda text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, transient=False) as progress:
        task = progress.add_task(title, total=total, text="")
        yield lambda text: progress.update(task, advance=1, text=text)


def track(items: Iterable[T], title: str, show: bool) -> Iterator[T]:
    """Iterate over the items with a bar that shows how many are done; with `show` off, iterate in silence."""
    listed = list(items)
    with bar(title, len(listed), show) as report:
        for item in listed:
            yield item
            report("")


@contextmanager
def gauge(title: str, total: int, done: int, show: bool) -> Iterator[Callable[[int, str], None]]:
    """Show a bar over `total` units, `done` of them there already, with count, rate and time left; the function it gives takes
    (more, text).
    """
    if not show:
        yield lambda more, text: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    began, made = time.monotonic(), 0
    with Progress(*columns, transient=False) as progress:
        task = progress.add_task(title, total=total, completed=done, text="", rate="")

        def report(more: int, text: str) -> None:
            nonlocal made
            made += more
            rate = made / max(time.monotonic() - began, 1e-9)
            progress.update(task, advance=more, text=text, rate=f"{rate:,.1f}/s")

        yield report


def record_time(seconds: dict[str, float], name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function with the arguments that follow, note the seconds it took under `name`, and return its result."""
    started = time.perf_counter()
    value = function(*args, **kwargs)
    seconds[name] = time.perf_counter() - started
    return value
