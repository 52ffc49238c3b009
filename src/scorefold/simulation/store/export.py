"""A store's simulations in formats of others, a shard at a time.

Parquet: one row a simulation, with its number, case, status, seconds, each parameter under its name, and the observation as a
list of float32, row by row if it has several axes. Zarr: arrays `theta`, `x`, `case`, `status` and `seconds`. A number that is
missing is NaN. Both carry the store's description.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scorefold.disk import durable
from scorefold.disk.trouble import told
from scorefold.errors import ScorefoldError
from scorefold.simulation.outcome import STATUS
from scorefold.simulation.store.description import HOLES
from scorefold.simulation.store.store import Store
from scorefold.simulation.wrapped import with_nan


def to_parquet(store: Store, path: Path) -> None:
    """One file, a row group to a shard."""
    arrow, parquet = _needs("pyarrow"), _needs("pyarrow.parquet")
    _refuse_existing(store, path)
    width = int(np.prod(store.shape))
    own = ("simulation", "case", "status", "seconds", "x")
    names = [f"theta_{name}" if name in own else name for name in store.prior.names]
    schema = arrow.schema(
        [
            ("simulation", arrow.int64()),
            ("case", arrow.int64()),
            ("status", arrow.dictionary(arrow.int8(), arrow.string())),
            ("seconds", arrow.float32()),
            *((name, arrow.float64()) for name in names),
            ("x", arrow.list_(arrow.float32(), width)),
        ],
        metadata={"scorefold": json.dumps(store.about), "shape": json.dumps(list(store.shape))},
    )
    with _written(path) as part_path, parquet.ParquetWriter(part_path, schema) as writer:
        for start, part in _read(store):
            stop = start + len(part["status"])
            columns = [
                np.arange(start, stop),
                part["case"],
                arrow.DictionaryArray.from_arrays(part["status"].astype(np.int8), list(STATUS)),
                store.runtimes(start, stop),
                *part["theta"].T,
                arrow.FixedSizeListArray.from_arrays(arrow.array(part["x"].ravel()), width),
            ]
            arrays = [one if isinstance(one, arrow.Array) else arrow.array(one) for one in columns]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def to_zarr(store: Store, path: Path) -> None:
    """One group; simulations that are missing have the status 255."""
    zarr = _needs("zarr")
    _refuse_existing(store, path)
    with _written(path) as part_path:
        _fill(zarr.open_group(part_path, mode="w-"), store)


def _fill(group: Any, store: Store) -> None:
    group.attrs.update({"scorefold": store.about, "status": list(STATUS)})
    stop = store.stop()
    kinds = {"theta": (np.float64, (store.prior.dim,)), "x": (np.float32, store.shape), "case": (np.int64, ())}
    kinds |= {"status": (np.uint8, ()), "seconds": (np.float32, ())}
    arrays = {}
    for key, (kind, shape) in kinds.items():
        rows = min(store.rows, stop)
        fill = 255 if key == "status" else 0
        arrays[key] = group.create_array(key, shape=(stop, *shape), dtype=kind, chunks=(rows, *shape), fill_value=fill)
    for start, part in _read(store):
        stop = start + len(part["status"])
        for key, value in {**part, "seconds": store.runtimes(start, stop)}.items():
            arrays[key][start:stop] = value


def _read(store: Store) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """All simulations, with NaN for missing numbers."""
    for start, part in store.read():
        yield start, part | ({"x": with_nan(part["x"])} if HOLES in store.about else {})


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """Where to write an export, which gets its name when it is whole."""
    with told(f"write the export {path}", "Nothing is half-written."), durable.replacing(path) as part:
        yield part


EXPORTS: dict[str, Callable[[Store, Path], None]] = {"parquet": to_parquet, "zarr": to_zarr}


def _needs(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise ScorefoldError(f"this export needs {package}: pip install 'scorefold[export]'") from None


def _refuse_existing(store: Store, path: Path) -> None:
    if store.stop() == 0:
        raise ScorefoldError(f"expected simulations in the store {store.path}; it is empty")
    if path.exists():
        raise ScorefoldError(f"expected to write {path} anew; it is there already. Name another one with --out.")
