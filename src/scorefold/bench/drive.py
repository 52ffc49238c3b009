"""All cells of a plan that have no record yet → records on disk, here or on workers elsewhere.

`local` runs one configuration after the other and writes a record as soon as a cell is done. `processes=N` and
`dask=ADDRESS` hand whole configurations to workers, and their records come back when the configuration is done; the records
are the same, since each is a function of its cell.
"""

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from scorefold.bench.plan import Cell, grouped
from scorefold.bench.record import RECORDS, RUNS, Record, appending, done
from scorefold.errors import ScorefoldError

Groups = dict[Cell, list[Cell]]
Stream = Generator[Record, None, None]
Watch = Callable[[str, Cell, Record | None], None]
"""Called with "start" and the configuration, and with "record", the configuration and each record."""


def drive(
    cells: Sequence[Cell], out: Path, executor: str = "local", about: dict[str, Any] | None = None, watch: Watch | None = None
) -> int:
    """Run what is missing in the folder; how many cells that was."""
    out.mkdir(parents=True, exist_ok=True)
    kind, argument = parse_executor(executor)
    with appending(out / RECORDS) as append:
        groups = grouped(missing(cells, out))
        with appending(out / RUNS) as note:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            left = sum(map(len, groups.values()))
            # A run that finds all done says so too: the notes are the folder's history.
            note({"key": f"{now} {time.time_ns()}", "started": now, "cells": len(cells), "missing": left, **(about or {})})
        with closing(_EXECUTORS[kind](groups, argument, watch)) as records:
            for record in records:
                append(record)
    return left


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
    """Let no process take an accelerator's memory beforehand, this one (if JAX has not started) and those it starts."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _local(groups: Groups, argument: str, watch: Watch | None) -> Stream:
    from scorefold.bench.run import run_group

    for group, cells in groups.items():
        if watch:
            watch("start", group, None)
        for record in run_group(cells):
            yield record
            if watch:
                watch("record", group, record)


def _processes(groups: Groups, argument: str, watch: Watch | None) -> Stream:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    from scorefold.bench.run import collect

    share_accelerator()
    # Fresh interpreters: a fork of a process in which JAX runs threads may hang.
    with ProcessPoolExecutor(int(argument), multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(collect, cells): group for group, cells in groups.items()}
        try:
            yield from _gathered(as_completed(futures), futures, watch)
        except BrokenProcessPool:
            raise ScorefoldError(
                "a worker process died. What was finished is kept; run the same command again to continue, with fewer "
                "processes if memory was short."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _dask(groups: Groups, argument: str, watch: Watch | None) -> Stream:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ScorefoldError(
            "expected dask.distributed for --executor dask=…; it is not installed: pip install distributed"
        ) from None
    from scorefold.bench.run import collect

    try:
        client = Client(argument, timeout="20s")
    except (OSError, ValueError) as error:
        raise ScorefoldError(f"expected a Dask scheduler at {argument}; could not connect ({error})") from None
    with client:
        futures = {client.submit(collect, cells, pure=False): group for group, cells in groups.items()}
        yield from _gathered(as_completed(list(futures)), futures, watch)


def _gathered(finished: Any, futures: dict[Any, Cell], watch: Watch | None) -> Iterator[Record]:
    for future in finished:
        group = futures[future]
        if watch:
            watch("start", group, None)
        for record in future.result():
            yield record
            if watch:
                watch("record", group, record)


_EXECUTORS: dict[str, Callable[[Groups, str, Watch | None], Stream]] = {"local": _local, "processes": _processes, "dask": _dask}


def history(out: Path) -> list[dict[str, Any]]:
    """The notes of every run in the folder."""
    path = out / RUNS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
