"""All cells of a plan that have no record yet → records on disk, here or on workers elsewhere.

`local` runs one configuration after the other and writes each record as soon as it is known. `processes=N` and
`dask=ADDRESS` hand whole configurations to workers, and their records come back when the configuration is done; the records
are the same, since each is a function of its cell (up to an accelerator's rounding).

A configuration that raises is reported, and the others go on; the run then ends with an error. Its cells get no record, so that
the next run tries them again.
"""

import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from scorefold.app.bench.bench_plan import Cell, grouped
from scorefold.app.bench.record import RECORDS, RUNS, Event, appending, done
from scorefold.errors import ScorefoldError

Groups = dict[Cell, list[Cell]]
Stream = Generator[Event, None, None]
Listener = Callable[[Event], None]
"""Called with every event."""
SHOWN_FAILURES = 3


def drive(
    cells: Sequence[Cell],
    out: Path,
    executor: str | Callable[[Groups], Stream] = "local",
    about: dict[str, Any] | None = None,
    watch: Listener | None = None,
) -> int:
    """Run the cells that have no record in the folder yet, and return how many those were.

    An executor is named, or a function from groups of cells to what becomes of them.
    """
    out.mkdir(parents=True, exist_ok=True)
    run = _executor_named(executor) if isinstance(executor, str) else executor
    with appending(out / RECORDS) as append:
        groups = grouped(missing(cells, out))
        with appending(out / RUNS) as note:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            left = sum(map(len, groups.values()))
            # A run that finds nothing to do is noted too: the notes are the folder's history.
            note({"key": f"{now} {time.time_ns()}", "started": now, "cells": len(cells), "missing": left, **(about or {})})
        failed: list[str] = []
        with closing(run(groups)) as events:
            for event in events:
                if event.record is not None:
                    append(event.record)
                elif event.what == "failed":
                    failed.append(f"{title(event.group)}: {event.error}")
                if watch:
                    watch(event)
    if failed:
        raise ScorefoldError(_summary(failed, len(groups)))
    return left


def _executor_named(executor: str) -> Callable[[Groups], Stream]:
    kind, argument = parse_executor(executor)
    return lambda groups: _EXECUTORS[kind](groups, argument)


def title(group: Cell) -> str:
    """A configuration in a few words."""
    return f"{group.task} {group.method} ({group.setting}) {group.budget:,}"


def _summary(failed: Sequence[str], configurations: int) -> str:
    more = len(failed) - SHOWN_FAILURES
    lines = [f"{len(failed)} of {configurations} configurations failed:", *failed[:SHOWN_FAILURES]]
    lines += [f"and {more} more."] if more > 0 else []
    return "\n".join([*lines, "All other records are kept; the same command tries what failed again."])


def missing(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """The cells without a record in the folder."""
    there = done(out / RECORDS)
    return [cell for cell in cells if cell.key not in there]


def parse_executor(text: str) -> tuple[str, str]:
    """`local`, `processes=2` or `dask=tcp://host:8786`."""
    kind, _, argument = text.partition("=")
    good = {"local": argument == "", "processes": argument.isdigit() and int(argument) > 0, "dask": argument != ""}
    if not good.get(kind, False):
        raise ScorefoldError(f"expected the executor as local, processes=2 or dask=tcp://host:8786; got {text!r}")
    return kind, argument


def share_accelerator() -> None:
    """Let no process take an accelerator's memory beforehand, this one (if JAX has not started) and those it starts.

    One worker needs it too: the process that drives it has started JAX as well.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def end_with_parent() -> None:
    """In a worker process: end when its parent does, also by SIGKILL, for then nobody waits for the records."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _local(groups: Groups, argument: str) -> Stream:
    from scorefold.app.bench.bench_cells import attempt

    for group, cells in groups.items():
        yield Event("start", group)
        yield from attempt(cells)


def _processes(groups: Groups, argument: str) -> Stream:
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

    from scorefold.app.bench.bench_cells import collect

    share_accelerator()
    workers = min(int(argument), len(groups) or 1)
    waiting = iter(groups.items())
    running: dict[Future[list[Event]], Cell] = {}
    # Fresh interpreters: a fork of a process in which JAX runs threads may hang.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        try:
            while True:
                # No more than there are workers, so that what is told to start does.
                for group, cells in islice(waiting, workers - len(running)):
                    running[pool.submit(collect, cells)] = group
                    yield Event("start", group)
                if not running:
                    return
                finished = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(finished, key=lambda future: future.exception() is not None):  # what is good is kept
                    yield from _returned(future, running.pop(future))
        except BrokenExecutor:
            raise ScorefoldError(
                "a worker process died. What was finished is kept; run the same command again to continue, with fewer "
                "processes if memory was short."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _dask(groups: Groups, argument: str) -> Stream:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ScorefoldError(
            "expected dask.distributed for --executor dask=…; it is not installed: pip install 'scorefold[cluster]'"
        ) from None
    from scorefold.app.bench.bench_cells import collect

    try:
        client = Client(argument, timeout="20s")
    except (OSError, ValueError) as error:
        raise ScorefoldError(f"expected a Dask scheduler at {argument}; could not connect ({error})") from None
    with client:
        futures = {}
        for group, cells in groups.items():
            futures[client.submit(collect, cells, pure=False)] = group
            yield Event("sent", group)  # the scheduler does not say when it starts
        try:
            for future in as_completed(list(futures)):
                yield from _returned(future, futures.pop(future))
        except CancelledError as error:
            raise ScorefoldError(
                f"the Dask scheduler is gone, or has dropped the work ({error}). What was finished is kept; run the same "
                "command again to continue."
            ) from None


def _returned(future: Any, group: Cell) -> list[Event]:
    """What a worker sent back, or why nothing came."""
    from scorefold.app.bench.bench_cells import failure

    try:
        return future.result()
    except (BrokenExecutor, CancelledError):  # not the configuration's fault
        raise
    except Exception as error:
        return [failure(group, error)]


_EXECUTORS: dict[str, Callable[[Groups, str], Stream]] = {"local": _local, "processes": _processes, "dask": _dask}


def history(out: Path) -> list[dict[str, Any]]:
    """The notes of every run in the folder."""
    path = out / RUNS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
