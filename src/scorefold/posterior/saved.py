"""What was trained, in files: names for the networks' arrays, and the history of training and the table of sets as plain JSON.

A loss that is not finite is null in the file, and NaN when it comes back. What is read is not trusted.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.disk import strict
from scorefold.disk.tensors import Arrays, Spec
from scorefold.errors import ModelError
from scorefold.score.correction import Correction
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.set_size import Choice, PartitionTable
from scorefold.score.standardize import KINDS, Standardize
from scorefold.train.training import History

MOST = 10**12
LONGEST = 100_000


def named(tree: Any) -> dict[str, Any]:
    """The leaves by their path, such as network.x_mlp.blocks.0.linear.weight."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def arrays_of(tree: Any) -> Arrays:
    """The same in memory."""
    return {name: np.asarray(leaf) for name, leaf in named(tree).items()}


def specs(like: Any) -> dict[str, Spec]:
    """What the leaves should be, of a tree of shapes and types."""
    return {name: Spec(leaf.shape, leaf.dtype) for name, leaf in named(like).items()}


def filled(like: Any, arrays: Arrays) -> Any:
    """The tree of shapes and types with these arrays for leaves, checked."""
    tree = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in named(like)])
    parts = jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, Standardize | GaussianBase | Correction))
    for part in parts:
        check(part)
    return tree


def check(part: Any) -> None:
    """What must hold of numbers besides that they are finite."""
    good = True
    if isinstance(part, Standardize):
        good = bool(jnp.all(part.scale > 0))
        if part.straight is not None:
            kind, unit = part.straight.kind, part.straight.unit
            good = good and bool(jnp.all((kind >= 0) & (kind < len(KINDS)) & (unit > 0)))
    if isinstance(part, GaussianBase):
        good = bool(jnp.all((part.variances > 0) & (part.variances <= 1)))
    if isinstance(part, Correction):
        good = bool(jnp.all(jnp.diff(part.t) > 0))
    if not good:
        raise ModelError("expected scales and variances above 0 and rising levels; the weights hold others")


def fits(fewest: int, numbers: int, what: str) -> None:
    """Refuse what cannot be in a file of so many numbers before it is built."""
    if fewest > numbers:
        raise ModelError(f"expected the weights of {what}; the file is too small for them")


def history(history: History) -> dict[str, Any]:
    """As JSON."""
    return {
        "train": [_floats(row) for row in history.train],
        "validation": [_floats(row) for row in history.validation],
        "kept": [int(k) for k in history.kept],
        "epochs_a_round": int(history.epochs_a_round),
        "learning_rate": float(history.learning_rate),
        "losses": [[float(rate), *_floats([loss])] for rate, loss in history.losses.items()],
        "skipped": int(history.skipped),
    }


def read_history(value: Any) -> History:
    """From JSON."""
    value = strict.keys(value, History._fields, "the history")
    kept = [strict.whole(k, "a kept round", 0, LONGEST) for k in strict.listed(value["kept"], "the kept rounds", LONGEST)]
    return History(
        train=_rows(value["train"], "the training loss"),
        validation=_rows(value["validation"], "the validation loss"),
        kept=np.array(kept, np.int64),
        epochs_a_round=strict.whole(value["epochs_a_round"], "the epochs in a round", 1, MOST),
        learning_rate=strict.number(value["learning_rate"], "the learning rate"),
        losses=dict(_pair(pair, "a learning rate's loss") for pair in strict.listed(value["losses"], "the losses", LONGEST)),
        skipped=strict.whole(value["skipped"], "the skipped steps", 0, MOST),
    )


def table(table: PartitionTable) -> list[dict[str, Any]]:
    """As JSON."""
    return [
        {
            **choice._asdict(),
            "score": [[int(m), *_floats([v])] for m, v in choice.score.items()],
            "error": [[int(m), *_floats([v])] for m, v in choice.error.items()],
        }
        for choice in table.values()
    ]


def read_table(value: Any, largest: int) -> PartitionTable:
    """From JSON; no set is larger than was trained."""
    rows = [strict.keys(row, Choice._fields, "a row of the table") for row in strict.listed(value, "the table", 100)]
    choices = [
        Choice(
            n=strict.whole(row["n"], "n", 1, MOST),
            set_size=strict.whole(row["set_size"], "the size of a set", 1, largest),
            cases=strict.whole(row["cases"], "the cases", 0, MOST),
            score=dict(_size_and_value(pair) for pair in strict.listed(row["score"], "the scores", 100)),
            error=dict(_size_and_value(pair) for pair in strict.listed(row["error"], "the errors", 100)),
        )
        for row in rows
    ]
    for choice in choices:
        if set(choice.score) != set(choice.error) or choice.set_size not in choice.score:
            raise ModelError("expected a score and an error for each size of sets in the table")
    if len({choice.n for choice in choices}) != len(choices):
        raise ModelError("expected each n once in the table")
    return {choice.n: choice for choice in choices}


def _floats(values: Any) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _float(value: Any, where: str) -> float:
    return float("nan") if value is None else strict.number(value, where)


def _rows(value: Any, where: str) -> np.ndarray:
    rows = [[_float(v, where) for v in strict.listed(row, where, LONGEST)] for row in strict.listed(value, where, LONGEST)]
    if len({len(row) for row in rows}) > 1:
        raise ModelError(f"expected rows of one length in {where}")
    with np.errstate(over="ignore"):
        return np.array(rows, np.float32)


def _pair(value: Any, where: str) -> tuple[float, float]:
    if len(strict.listed(value, where, 2)) != 2:
        raise ModelError(f"expected pairs in {where}; got {value!r:.60}")
    return strict.number(value[0], where), _float(value[1], where)


def _size_and_value(value: Any) -> tuple[int, float]:
    if len(strict.listed(value, "a score", 2)) != 2:
        raise ModelError(f"expected pairs of a size and a score; got {value!r:.60}")
    return strict.whole(value[0], "the size of a set", 1, MOST), _float(value[1], "a score")
