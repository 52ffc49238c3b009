"""What `sample` takes as observations: numbers of the simulations' shape, in an array or a table."""

from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.simulation import columns
from scorefold.simulation.outcome import LARGEST


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
        raise ScorefoldError(
            f"expected x_obs of shape {wanted}, as the simulations were; got {x.shape}. The first axis counts "
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
    if np.nanmax(np.abs(x), initial=0.0) > LARGEST:
        raise ScorefoldError(
            f"expected observations that fit in single precision, within ±{LARGEST:.0e}, as the simulations do; got "
            f"{x.flat[np.nan_to_num(np.abs(x)).argmax()]:.3g}"
        )


def depth(value: Any) -> int:
    """How deeply nested; -1 where it is ragged."""
    try:
        return np.ndim(value)
    except ValueError:
        return -1
