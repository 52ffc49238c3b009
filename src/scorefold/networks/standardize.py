"""Observations on a common scale, whatever the simulator's units.

Per feature: z = (x - median) / scale, with scale = (interquartile range) / 1.349, or the standard deviation
where more than half the values coincide. Where the feature is constant the scale is 1e37, so that z = 0: it
is left out, also for an observation that differs there. Beyond |z| = 5 the value goes on
logarithmically, sign(z) (5 + log(1 + |z| - 5)), so that an outlier stays an outlier without ruling the fit.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.types import Array, Float

KNEE = 5.0
FARTHEST = 1e30
SMALLEST, LARGEST = 1e-37, 1e37
"""Of a scale: within single precision, with a margin for differences."""


class Standardize(eqx.Module):
    """A fixed map of one observation's features."""

    centre: Float[Array, "x"]
    scale: Float[Array, "x"]

    def __call__(self, x: Float[Array, "x"]) -> Float[Array, "x"]:
        """Apply."""
        z = jnp.clip((x - self.centre) / self.scale, -FARTHEST, FARTHEST)
        beyond = jnp.maximum(jnp.abs(z) - KNEE, 0.0)
        return jnp.sign(z) * (jnp.minimum(jnp.abs(z), KNEE) + jnp.log1p(beyond))


def blank(features: int) -> Standardize:
    """One of this size, its numbers still to be put in."""
    return Standardize(jnp.zeros(features), jnp.zeros(features))


def fit_standardize(x: np.ndarray) -> Standardize:
    """From simulated observations (count, x)."""
    x = np.asarray(x, np.float64)
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    iqr, sd = (high - low) / 1.349, x.std(axis=0)
    tiny = np.maximum(1e-9 * np.abs(centre), SMALLEST)
    scale = np.where(iqr > tiny, iqr, np.where(sd > tiny, np.minimum(sd, LARGEST), LARGEST))
    return Standardize(jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32))


@jax.jit
def _all(standardize: Standardize, x: Float[Array, "rows x"]) -> Float[Array, "rows x"]:
    return jax.vmap(standardize)(x)


def standardized(standardize: Standardize, x: np.ndarray) -> np.ndarray:
    """Many observations (..., x) at once."""
    return np.asarray(_all(standardize, jnp.asarray(x.reshape(-1, x.shape[-1])))).reshape(x.shape)
