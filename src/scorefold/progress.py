"""Progress bars for anything that takes longer than a glance; silent where nobody asked for one."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


Report = Callable[[str], None]
"""Called after each unit of work with a short text to show beside the bar."""


@contextmanager
def bar(title: str, total: int, show: bool) -> Iterator[Report]:
    """A bar over `total` units, with the time left."""
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
    """Iterate with a bar."""
    listed = list(items)
    with bar(title, len(listed), show) as report:
        for item in listed:
            yield item
            report("")
