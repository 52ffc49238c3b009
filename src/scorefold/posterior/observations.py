"""What `sample` takes as observations: numbers of the simulations' shape, in an array or a table."""

from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.shown import listed
from scorefold.simulation import columns
from scorefold.simulation.inputs import table_of
from scorefold.simulation.outcome import LARGEST_X
from scorefold.simulation.ragged import is_ragged, padded, unmasked


def with_inputs(
    x_obs: Any,
    inputs: Any,
    shape: tuple[int, ...],
    x_names: tuple[str, ...],
    input_names: tuple[str, ...],
    missing: bool = False,
) -> np.ndarray:
    """As `checked`, of outcomes and inputs that come apart or, with `inputs` None, together: inputs last, or by their names.

    With `missing`, series may differ in length (without inputs in them), and every observation must have some number.
    """
    outcomes = shape[0] - len(input_names) if input_names else 0
    if missing:
        x_obs = unmasked(x_obs)
        if shape and (inputs is not None or not input_names) and is_ragged(x_obs):
            x_obs = padded(x_obs, outcomes or shape[0])
    x = _with_inputs(x_obs, inputs, shape, x_names, input_names, missing)
    nothing = np.isnan(x[:, : outcomes or None]).all(axis=1)
    if nothing.any():
        raise ScorefoldError(
            f"expected observations with some number that is not missing; {nothing.sum()} of {len(x)} have none (first: "
            f"x_obs[{nothing.argmax()}]). These tell nothing: leave them out, x_obs[~np.isnan(x_obs).all(axis=1)]."
        )
    return x


def _with_inputs(
    x_obs: Any,
    inputs: Any,
    shape: tuple[int, ...],
    x_names: tuple[str, ...],
    input_names: tuple[str, ...],
    missing: bool,
) -> np.ndarray:
    if not input_names:
        if inputs is not None:
            raise ScorefoldError("expected no inputs, as the simulations have none; got some. Leave them out.")
        return checked(x_obs, shape, x_names, missing)
    outcomes = shape[0] - len(input_names)
    if inputs is None:
        _refuse_missing_inputs(x_obs, shape, x_names[:outcomes], input_names)
        both = checked(_inputs_last(x_obs, input_names), shape, x_names, missing)
        checked_inputs(both[:, outcomes:], input_names, len(both))
        return both
    x = x_obs
    if not columns.is_table(x_obs):
        x = settings.numbers("x_obs", x_obs)
        x = x[:, None] if x.ndim == 1 and outcomes == 1 else x
    seen = checked(x, (outcomes,), x_names[:outcomes], missing)
    known = checked_inputs(inputs, input_names, len(seen))
    return np.concatenate([seen, known], axis=1)


def checked_inputs(inputs: Any, input_names: tuple[str, ...], n: int) -> np.ndarray:
    """The inputs of n observations as (n, inputs), by name where they have some; or a ScorefoldError."""
    known, _ = table_of("inputs", inputs, input_names)
    if known.shape != (n, len(input_names)):
        raise ScorefoldError(
            f"expected inputs of shape ({n}, {len(input_names)}), a row ({listed(input_names)}) for each observation; got "
            f"{known.shape}"
        )
    return known


def _inputs_last(x_obs: Any, input_names: tuple[str, ...]) -> Any:
    """A table with its inputs behind the outcomes, wherever they were; what is no table as it is."""
    if not columns.is_table(x_obs):
        return x_obs
    names, cells = columns.columns_of(x_obs)
    order = sorted(range(len(names)), key=lambda i: names[i] in input_names)
    return columns.Columns(tuple(names[i] for i in order), tuple(cells[i] for i in order))


def _refuse_missing_inputs(x_obs: Any, shape: tuple[int, ...], outcomes: tuple[str, ...], input_names: tuple[str, ...]) -> None:
    """Where outcomes came alone; a table that has other columns is refused by their names."""
    if columns.is_table(x_obs):
        there = set(columns.columns_of(x_obs).names)
        if there & set(input_names) or not set(outcomes) <= there:
            return
    elif not _are_outcomes(x_obs, len(outcomes)):
        return
    how = f"write inputs=…, an array (n, {len(input_names)}) or a DataFrame, or put them behind the outcomes in x_obs."
    if isinstance(x_obs, columns.Columns):
        how = "add a column for each to the file, or name a file that has them (--inputs)."
    raise ScorefoldError(f"expected the known inputs of each observation, {listed(input_names)}: {how}")


def _are_outcomes(x_obs: Any, count: int) -> bool:
    """Whether an array has the shape of outcomes alone; one of another shape, or ragged, is refused as that."""
    try:
        given = np.shape(x_obs)
    except ValueError:
        return False
    return given[1:] == (count,) or (len(given) == count == 1)


def checked(x_obs: Any, shape: tuple[int, ...], x_names: tuple[str, ...], missing: bool = False) -> np.ndarray:
    """x_obs (n, *shape), an array or a table with these names as columns, as (n, features) float64; or a ScorefoldError.

    With `missing`, NaN stays, as a number that was not observed.
    """
    wanted = "(n, " + ", ".join(map(str, shape)) + ")" if shape else "(n,)"
    try:
        x = _from_table(x_obs, shape, x_names) if columns.is_table(x_obs) else settings.numbers("x_obs", x_obs)
    except ScorefoldError as error:
        if columns.is_table(x_obs):
            raise
        raise ScorefoldError(
            f"expected x_obs to be numbers of shape {wanted}; got {type(x_obs).__name__} ({error}). For several data sets "
            "pass a list of such arrays."
        ) from None
    if x.shape[1:] != shape or x.ndim == 0:
        hint = " For one observation write x_obs[None]." if x.shape == shape else ""
        hint += " Transposed it would fit: write x_obs.T." if x.shape != shape and x.T.shape[1:] == shape else ""
        hint += " Series that end early are padded with NaN." if missing and x.ndim == 1 + len(shape) else ""
        named = f" ({listed(x_names)})" if x_names else ""
        raise ScorefoldError(
            f"expected x_obs of shape {wanted}{named}, as the simulations were; got {x.shape}. The first axis counts "
            f"observations.{hint}"
        )
    if len(x) == 0:
        raise ScorefoldError(
            "expected at least one observation; got n = 0. Without observations the posterior is the prior: use "
            "prior.sample(count, seed)."
        )
    flat = x.reshape(len(x), -1)
    bad = ~(np.isfinite(flat) | (np.isnan(flat) & missing)).all(axis=1)
    if bad.any():
        if missing:
            raise ScorefoldError(
                f"expected finite numbers, or NaN where one is missing; {bad.sum()} of {len(x)} observations hold infinity "
                f"(first: x_obs[{bad.argmax()}])"
            )
        raise ScorefoldError(
            f"expected finite observations; {bad.sum()} of {len(x)} hold NaN or infinity (first: x_obs[{bad.argmax()}]). "
            "Leave them out if they are missing at random, or train on sf.simulate(…, missing=True)."
        )
    within_reach(x)
    return x.reshape(len(x), -1)


def _from_table(table: Any, shape: tuple[int, ...], x_names: tuple[str, ...]) -> np.ndarray:
    """The columns of a DataFrame by name, where there are names, or all of them."""
    x, _ = columns.numbers("x_obs", table, x_names)
    return x[:, 0] if shape == () and x.shape[1] == 1 else x


def within_reach(x: np.ndarray) -> None:
    """Refuse observations that no simulation can be like."""
    if np.nanmax(np.abs(x), initial=0.0) > LARGEST_X:
        raise ScorefoldError(
            f"expected observations that fit in single precision, within ±{LARGEST_X:.0e}, as the simulations do; got "
            f"{x.flat[np.nan_to_num(np.abs(x)).argmax()]:.3g}"
        )


def many_sets(x_obs: Any, inputs: Any, shape: tuple[int, ...], inputs_each: int, missing: bool) -> np.ndarray:
    """Many data sets of n observations as (data sets, n, *shape), inputs last; or a ScorefoldError."""
    x = settings.numbers("x_obs", _complete(x_obs, shape, inputs_each) if missing else x_obs)
    if inputs is not None:
        x = np.concatenate([x, settings.numbers("inputs", inputs)], axis=2)
    if x.ndim != 2 + len(shape) or len(x) == 0:
        raise ScorefoldError(
            f"expected x_obs of shape (data sets, n, {', '.join(map(str, shape))}); got {x.shape}. Data sets of "
            "different sizes go to sample, as a list."
        )
    return x


def _complete(data_sets: Any, shape: tuple[int, ...], inputs: int) -> Any:
    """Data sets without masks, and with NaN where series end early; what is no list of them as it is."""
    if not shape or not isinstance(data_sets, list | tuple):
        return unmasked(data_sets)
    return [padded(one, shape[0] - inputs) if is_ragged(one) else unmasked(one) for one in data_sets]


def several_sets(
    x_obs: Any, inputs: Any, shape: tuple[int, ...], checked: Callable[[Any, Any], np.ndarray]
) -> list[np.ndarray]:
    """The observations of each of several data sets, which come as a list; none where it is one data set."""
    if not (isinstance(x_obs, list) and x_obs and depth(x_obs[0]) == 1 + len(shape)):
        return []
    return [checked(x, own) for x, own in zip(x_obs, for_each(inputs, len(x_obs)), strict=True)]


def for_each(inputs: Any, count: int) -> list[Any]:
    """The inputs of each of so many data sets, or None for each."""
    if inputs is None:
        return [None] * count
    if not isinstance(inputs, list | tuple) or len(inputs) != count:
        raise ScorefoldError(f"expected inputs as a list, with an array (n, inputs) for each of the {count} data sets")
    return list(inputs)


def depth(value: Any) -> int:
    """How deeply nested, along the first of each where it is ragged."""
    try:
        return np.ndim(value)
    except ValueError:
        return 1 + depth(value[0])
