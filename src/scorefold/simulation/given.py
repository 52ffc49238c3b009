"""Parameters and observations that somebody has simulated already, as training cases hold them.

They are checked like simulations made here. θ must lie in the support of the prior. Observations that are not finite, or beyond
±1e37, are left out and counted; more than a tenth of them is an error. And because a posterior is relative to its prior, θ
should be draws from it: with u = Φ⁻¹(F(θ)), each u_i is N(0, 1). The Kolmogorov–Smirnov distance of each to N(0, 1) is
compared with what so many draws show with probability 1e-6, and a θ that is farther off is said.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.shown import listed
from scorefold.simulation import columns
from scorefold.simulation.inputs import inputs_from, table_of
from scorefold.simulation.outcome import LARGEST_X, rounded
from scorefold.simulation.pieces import pieces
from scorefold.simulation.ragged import is_ragged, longest, padded, unmasked
from scorefold.simulation.wrapped import refuse_arrays

MOST_LEFT_OUT = 0.1
FALSE_ALARM = 1e-6
"""Chance of saying, of one parameter, that its draws are not from the prior though they are."""


class Given(NamedTuple):
    """Parameters and observations as training wants them: checked, in single precision, without what failed. `Simulations` is
    made of it.
    """

    theta: np.ndarray
    x: np.ndarray
    """(cases, m, *shape) float32, 0 after each case's observations"""
    sizes: np.ndarray
    budget: int
    failed: int
    x_names: tuple[str, ...]
    input_names: tuple[str, ...]


class Raw(NamedTuple):
    """Observations as somebody has them, not looked at yet; the fields are the arguments of `Simulations`."""

    x: Any
    sets: bool
    x_names: Sequence[str] | None
    inputs: Any
    input_names: Sequence[str] | None
    missing: bool


def check_missing(missing: Any, prior: Prior) -> None:
    """Whether numbers may be missing is yes or no, and asks for a prior that is written down; else a ScorefoldError."""
    if not isinstance(missing, bool):
        raise ScorefoldError(f"expected missing to be True or False; got {missing!r:.60}")
    if missing and not prior.has_density:
        raise ScorefoldError(
            "expected a prior that is written down where numbers may be missing; got one from draws. Write it down as a "
            "distribution, or leave missing out."
        )


def given(prior: Prior, theta: Any, raw: Raw) -> Given:
    """Parameters and observations that somebody has simulated already, as training holds them.

    Args:
        prior: What θ were drawn from.
        theta: (cases, dim), an array or a DataFrame.
        raw: The observations, and what was said of them.

    Returns:
        The cases, checked, without those of which nothing is finite.

    Raises:
        ScorefoldError: See `Simulations`.
    """
    x, sets, x_names, inputs, input_names, missing = raw
    if not isinstance(prior, Prior):
        raise ScorefoldError(f"expected a scorefold.Prior; got {type(prior).__name__}. Build one with sf.Prior({{...}}).")
    check_missing(missing, prior)
    theta = parameters(prior, theta)
    wanted = columns.outcome_names(x_names)
    parts = _complete(_parts(x, sets)) if missing else _parts(x, sets)
    read = [_observations(one, wanted) for one in parts]
    if len({array.shape[1:] for array, _ in read}) > 1:
        raise ScorefoldError(f"expected observations of one shape; got {listed([array.shape[1:] for array, _ in read])}")
    together = read[0][0] if len(read) == 1 else np.concatenate([array for array, _ in read]) if read else np.zeros(0)
    lengths = np.array([len(array) for array, _ in read]) if sets else np.ones(len(together), int)
    if len(lengths) != len(theta):
        raise ScorefoldError(
            f"expected an observation for each of the {len(theta):,} rows of theta; got {len(lengths):,}. For sets of "
            "observations write sets=True, and give a list with an array for each row."
        )
    names = columns.checked_names(x_names, together.shape[1:]) or (read[0][1] if read else ())
    own: tuple[str, ...] = ()
    if inputs is not None:
        refuse_arrays(together.shape[1:])
        known, own = _inputs(_parts(inputs, sets), lengths if sets else np.array([len(together)]), input_names)
        together = np.concatenate([together.reshape(len(together), -1), known], axis=1)
        names = columns.joined_names(names, own, together.shape[1:])
    return _put_together(theta, together, np.repeat(np.arange(len(theta)), lengths), names, own, missing)


def _parts(values: Any, sets: bool) -> list[Any]:
    """What there is for each row of θ, or for all of them together."""
    return list(values) if sets and hasattr(values, "__iter__") and not columns.is_table(values) else [values]


def _complete(parts: list[Any]) -> list[Any]:
    """Without masks, and series that differ in length, in a set or between sets, with NaN up to the longest."""
    parts = [unmasked(one) for one in parts]
    if any(map(columns.is_table, parts)):
        return parts
    lengths = [longest(one) for one in parts]
    if len(set(lengths)) == 1 and not any(map(is_ragged, parts)):
        return parts
    return [padded(one, max(lengths)) for one in parts]


def _inputs(parts: list[Any], lengths: np.ndarray, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The inputs of all observations (observations, inputs), and their names."""
    read = [table_of("inputs", one, columns.outcome_names(names))[0] for one in parts]
    if [len(one) for one in read] != lengths.tolist() or len({one.shape[1] for one in read}) > 1:
        raise ScorefoldError(
            f"expected a row of inputs for each of the {lengths.sum():,} observations; got shapes "
            f"{listed([one.shape for one in read])}"
        )
    found = inputs_from(parts[0], names)
    assert found is not None
    return np.concatenate(read), found.names


def parameters(prior: Prior, theta: Any) -> np.ndarray:
    """θ as somebody has it, in the order of the prior. A ScorefoldWarning says so where it does not look like draws from the
    prior.

    Args:
        prior: What θ were drawn from.
        theta: An array (cases, dim), or a DataFrame with the prior's names as columns.

    Returns:
        (cases, dim)

    Raises:
        ScorefoldError: θ has another shape, or lies outside the prior's support.
    """
    if columns.is_table(theta):
        theta, _ = columns.numbers("theta", theta, prior.names)
    theta = settings.numbers("theta", theta)
    if theta.ndim == 1 and prior.dim == 1:
        theta = theta[:, None]
    if theta.ndim != 2 or theta.shape[1] != prior.dim:
        hint = ". Transposed it would fit: write theta.T" if theta.ndim == 2 and len(theta) == prior.dim else ""
        raise ScorefoldError(
            f"expected theta of shape (cases, {prior.dim}), with the columns {listed(prior.names)}; got {theta.shape}{hint}"
        )
    u = prior.to_normal(theta)
    if prior.has_density:
        _say_if_not_drawn(prior, u)
    return theta


def _say_if_not_drawn(prior: Prior, u: np.ndarray) -> None:
    cases = len(u)
    if not cases:
        return
    steps = np.arange(cases + 1)[:, None] / cases
    below = ndtr(np.sort(u, axis=0))
    distance = np.maximum(np.abs(below - steps[1:]), np.abs(below - steps[:-1])).max(axis=0)
    far = distance > math.sqrt(math.log(2 / FALSE_ALARM) / (2 * cases))  # Dvoretzky–Kiefer–Wolfowitz, with Massart's constant
    if far.any():
        warnings.warn(
            f"theta does not look like draws from the prior: {listed([prior.names[i] for i in np.flatnonzero(far)])} "
            f"{'are' if far.sum() > 1 else 'is'} distributed otherwise. A posterior is right only for the prior that its "
            "θ were drawn from: give that one, or simulate again with sf.simulate.",
            ScorefoldWarning,
            stacklevel=5,
        )


def _observations(x: Any, names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(count, *shape), and the names of a table's columns."""
    if columns.is_table(x):
        return columns.numbers("x", x, names)
    plain = isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray) and x.dtype.kind in "biuf"
    array = x if plain else settings.numbers("x", x)  # images are not made twice as large
    if array.ndim == 0:
        raise ScorefoldError("expected x with an observation (or, with sets=True, a set of them) for each row of theta")
    return array, ()


def _put_together(
    theta: np.ndarray,
    observations: np.ndarray,
    case: np.ndarray,
    names: tuple[str, ...],
    input_names: tuple[str, ...],
    missing: bool,
) -> Given:
    """Sets without what failed, and without cases of which nothing is left."""
    single, good = _in_single_precision(observations, len(input_names), missing)
    calls, failed = len(good), int((~good).sum())
    if failed > MOST_LEFT_OUT * calls:
        unseen = not missing and np.isnan(observations).any()
        hint = " Where NaN is a number that was not observed, write missing=True." if unseen else ""
        raise ScorefoldError(
            f"expected finite observations within ±{LARGEST_X:.0e}; {failed:,} of {calls:,} hold NaN, infinity or larger "
            "numbers. Up to a tenth are left out; if more are missing whatever θ is, leave them out yourself, with their theta."
            + hint
        )
    if failed:
        warnings.warn(
            f"{failed:,} of {calls:,} observations hold NaN, infinity or numbers beyond ±{LARGEST_X:.0e} and were left out. "
            "The posterior is then the one given that the simulation succeeds.",
            ScorefoldWarning,
            stacklevel=4,
        )
    single, case = _closed_ranks(single, good), case[good]
    sizes = np.bincount(case, minlength=len(theta))
    some = sizes > 0
    x = single[:, None]
    if sizes.max(initial=1) > 1:
        x = np.zeros((int(some.sum()), sizes.max(), *single.shape[1:]), np.float32)
        x[(np.cumsum(some) - 1)[case], np.arange(len(case)) - (np.cumsum(sizes) - sizes)[case]] = single
    return Given(theta[some], x, sizes[some], calls, failed, names, input_names)


def _in_single_precision(observations: np.ndarray, inputs: int, missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """A copy (rows, …) with NaN where numbers are missing, the last of them `inputs`, and which rows (rows,) did not fail."""
    single, good = np.empty(observations.shape, np.float32), np.empty(len(observations), bool)
    for at in pieces(observations):
        part = observations[at]
        holes = np.isnan(part) if missing else np.zeros(part.shape, bool)
        width = int(np.prod(holes.shape[1:]))
        outcomes = holes.reshape(len(holes), width)[:, : width - inputs]
        holes &= ~outcomes.all(axis=1).reshape(-1, *[1] * (holes.ndim - 1))  # of nothing, it has failed
        single[at], good[at] = rounded(np.where(holes, 0.0, part) if missing else part)
        single[at][holes] = np.nan
    return single, good


def _closed_ranks(rows: np.ndarray, good: np.ndarray) -> np.ndarray:
    """The good rows, one after the other where all of them lay."""
    if good.all():
        return rows
    done = 0
    for at in pieces(rows):
        kept = rows[at][good[at]]
        rows[done : done + len(kept)] = kept
        done += len(kept)
    return rows[:done]
