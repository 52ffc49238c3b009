"""Do draws that are handed over belong to the observations and the prior that a density is asked for?

A constant, a maximum or a sensitivity made from draws of another posterior looks like any other number.
"""

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.posterior.draws import Draws
from scorefold.prior import Prior
from scorefold.shown import listed


def refuse_others(draws: object, x: np.ndarray, prior: Prior) -> None:
    """A ScorefoldError, unless these draws are given observations x (n, features), under this prior and nothing else.

    Args:
        draws: What `sample` returned, as far as one can know.
        x: Observations that have been checked, with their inputs if they have some.
        prior: What the density is to be under.

    Raises:
        ScorefoldError: They are of other parameters or observations, under another prior, or some parameters were given.
    """
    if not isinstance(draws, Draws):
        raise ScorefoldError(f"expected draws as `sample` returned them; got {type(draws).__name__}. Leave draws out.")
    what = _difference(draws, x, prior)
    if what:
        raise ScorefoldError(
            f"expected draws that `sample` of this posterior returned for these observations and this prior; got {what}. "
            "Leave draws out, or draw again."
        )


def _difference(draws: Draws, x: np.ndarray, prior: Prior) -> str:
    """In words; nothing where there is none."""
    if draws.names != prior.names:
        return f"draws of {listed(draws.names)} instead of {listed(prior.names)}"
    if draws.n != len(x):
        return f"draws given {draws.n:,} observations instead of {len(x):,}"
    if draws.x_obs is not None and not np.array_equal(_seen(draws, draws.x_obs), x, equal_nan=True):
        return "draws given other observations"
    if draws.prior is not None and draws.prior != prior:
        return "draws under another prior"
    if len(draws) > 1 and (draws.theta == draws.theta[0]).all(axis=0).any():
        return "draws of some parameters given others"
    return ""


def _seen(draws: Draws, x_obs: np.ndarray) -> np.ndarray:
    """The observations with their inputs, (n, features)."""
    rows = np.reshape(x_obs, (len(x_obs), -1))
    return rows if draws.inputs is None else np.concatenate([rows, draws.inputs], axis=1)
