"""Observations on a common scale, whatever the simulator's units and however they are spread.

Per feature, f first, then z = (f(x) - median) / scale with scale = (interquartile range) / 1.349, or the standard deviation
where more than half the values coincide. Where the feature is constant the scale is 1e37, so that z = 0: it is left out, also
for an observation that differs there. Beyond |z| = 5 the value goes on
logarithmically, sign(z) (5 + log(1 + |z| - 5)), so that an outlier stays an outlier without ruling the fit.

f is chosen from the simulations by how straight the normal probability plot is: r is the correlation of f(x) with the normal
quantiles of its ranks, without the outermost 1 % on either side ("The probability plot correlation coefficient test for
normality", Filliben, 1975), and 1 - r the departure. In this order,

- log x, where all values are positive, x departs by more than 0.001 and log x by less than three quarters of that;
- asinh((x - shift) / unit), where x departs by more than 0.02 and this by less than half of that; the shift is 0 where no value
  is negative, else the median, and the unit the straightest of scale, scale / 10 and scale / 100;
- ranks: a broken line through the quantiles makes f(x) normal, where x and asinh depart by more than 0.05 and more than half
  the values are different;
- none: f(x) = x.

Where values may be missing, they are NaN: z is 0 there, and a second half of as many features says 1 where one is missing. All
is fitted to the values that are there.

A straight line is fitted to z, so what is positive and spread over decades should be on a logarithmic scale. Values that log x
cannot take (at most half the smallest one simulated) go on along the tangent, and ranks along the outermost pieces.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from scorefold.train.rows import few_at_a_time
from scorefold.types import QUICKLY, Array, Float, Int

KNEE = 5.0
LARGEST_Z = 1e30
SMALLEST, LARGEST = 1e-37, 1e37
"""Of a scale: within single precision, with a margin for differences."""
NONE, LOG, ASINH, RANKS = range(4)
TRANSFORMS = ("none", "log", "asinh", "ranks")
PLOTTED = (0.01, 0.99)
POWERS_OF_UNIT = (1.0, 0.1, 0.01)
QUANTILES_KEPT = np.array([0.001, 0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 0.999])
"""Quantiles that the broken line goes through."""
STRAIGHT = {LOG: 1e-3, ASINH: 2e-2, RANKS: 0.05}
"""The departure from which on a map is considered."""


class Straight(eqx.Module):
    """f, feature by feature."""

    kind: Int[Array, " x"]
    """Index into TRANSFORMS."""
    shift: Float[Array, " x"]
    unit: Float[Array, " x"]
    """asinh((x - shift) / unit); below `unit` the logarithm is its tangent."""
    slope: Float[Array, " x"]
    breaks: Float[Array, "x knots"]
    bends: Float[Array, "x knots"]
    """The broken line over a = asinh(…): slope · a + Σ_k bends_k max(a - breaks_k, 0)."""

    def __call__(self, x: Float[Array, " x"]) -> Float[Array, " x"]:
        """f(x)."""
        log = jnp.log(jnp.maximum(x, self.unit)) + jnp.minimum(x - self.unit, 0.0) / self.unit
        asinh = jnp.arcsinh((x - self.shift) / self.unit)
        line = self.slope * asinh + jnp.sum(self.bends * jnp.maximum(asinh[:, None] - self.breaks, 0.0), axis=1)
        return jnp.select([self.kind == LOG, self.kind == ASINH, self.kind == RANKS], [log, asinh, line], x)


class Standardize(eqx.Module):
    """A fixed map of one observation's numbers, in which each varies by about 1 and has no long tail. It is fitted once, to the
    simulations, and every network sees observations through it.
    """

    centre: Float[Array, " x"]
    scale: Float[Array, " x"]
    straight: Straight | None = None
    """f; x itself where there is none."""
    missing: bool = eqx.field(static=True, default=False)
    """NaN are missing values, and features are twice as many."""

    def __call__(self, x: Float[Array, " x"]) -> Float[Array, " seen"]:
        """Apply."""
        if not self.missing:
            return self._known(x)
        holes = jnp.isnan(x)
        z = jnp.where(holes, 0.0, self._known(jnp.where(holes, 1.0, x)))
        return jnp.concatenate([z, holes.astype(z.dtype)])

    def _known(self, x: Float[Array, " x"]) -> Float[Array, " x"]:
        z = jnp.clip(((x if self.straight is None else self.straight(x)) - self.centre) / self.scale, -LARGEST_Z, LARGEST_Z)
        beyond = jnp.maximum(jnp.abs(z) - KNEE, 0.0)
        return jnp.sign(z) * (jnp.minimum(jnp.abs(z), KNEE) + jnp.log1p(beyond))

    def log_slope(self, x: Float[Array, " x"]) -> Float[Array, " x"]:
        """log |dz/dx|, feature by feature."""
        _, slope = jax.jvp(self, (x,), (jnp.ones_like(x),))
        return jnp.log(jnp.maximum(jnp.abs(slope[: len(x)]), SMALLEST))

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        known = self.straight is None or bool(
            jnp.all((self.straight.kind >= 0) & (self.straight.kind < len(TRANSFORMS)) & (self.straight.unit > 0))
        )
        return "" if known and bool(jnp.all(self.scale > 0)) else "scales and units should be above 0, and maps known ones"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The map of every feature, by name."""
        kinds = np.zeros(len(self.centre), int) if self.straight is None else np.asarray(self.straight.kind)
        return tuple(TRANSFORMS[kind] for kind in kinds)


def blank(features: int, missing: bool = False) -> Standardize:
    """One of this size, its numbers still to be put in."""
    zero, knots = jnp.zeros(features), jnp.zeros((features, len(QUANTILES_KEPT)))
    return Standardize(zero, zero, Straight(jnp.zeros(features, jnp.int32), zero, zero, zero, knots, knots), missing)


def fit_standardize(x: np.ndarray, missing: bool = False) -> Standardize:
    """The scale of simulated observations (count, x), in which NaN may be missing values."""
    x = np.asarray(x, np.float64)
    if missing:
        return _fit_with_holes(x)
    kind, *numbers = (np.stack(part) for part in zip(*map(_column, x.T), strict=True))
    straight = Straight(jnp.asarray(kind, jnp.int32), *(jnp.asarray(v, jnp.float32) for v in numbers))
    # In double precision where f(x) is x itself: features that hardly vary would round to a constant.
    f = np.where(kind == NONE, x, np.asarray(_all(straight, jnp.asarray(x, jnp.float32))))
    centre, scale = centre_and_scale(f)
    return Standardize(jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32), straight)


def plain(x: np.ndarray) -> Standardize:
    """Centre and scale alone, f(x) = x, from simulated observations (count, x)."""
    x, features = np.asarray(x, np.float64), x.shape[1]
    centre, scale = centre_and_scale(x)
    none = blank(features).straight
    assert none is not None
    straight = Straight(none.kind, none.shift, none.unit + 1, none.slope + 1, none.breaks, none.bends)
    return Standardize(jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32), straight)


def _fit_with_holes(x: np.ndarray) -> Standardize:
    """Every feature by the values that are there; one that never is counts as constant."""
    columns = [column[~np.isnan(column)] for column in x.T]
    each = [fit_standardize((column if len(column) else np.zeros(1))[:, None]) for column in columns]
    together: Standardize = jax.tree.map(lambda *parts: jnp.concatenate(parts), *each)
    return Standardize(together.centre, together.scale, together.straight, missing=True)


@partial(jax.jit, compiler_options=QUICKLY)
def _all(straight: Straight, x: Float[Array, "rows x"]) -> Float[Array, "rows x"]:
    return few_at_a_time(straight)(x)  # type: ignore[no-any-return]


@partial(jax.jit, compiler_options=QUICKLY)
def _apply(standardize: Standardize, x: Float[Array, "rows x"]) -> Float[Array, "rows seen"]:
    return few_at_a_time(standardize)(x)  # type: ignore[no-any-return]


def standardized(standardize: Standardize, x: np.ndarray) -> np.ndarray:
    """Standardise many observations.

    Args:
        standardize: The fitted map.
        x: (…, x), observations.

    Returns:
        (…, features) in single precision; twice as many numbers where some may be missing, the second half saying which are.
    """
    return np.asarray(_apply(standardize, jnp.asarray(x, jnp.float32).reshape(-1, x.shape[-1]))).reshape(*x.shape[:-1], -1)


def centre_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median and the scale of every feature (count, x)."""
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    iqr, sd = (high - low) / 1.349, x.std(axis=0)
    tiny = np.maximum(1e-9 * np.abs(centre), SMALLEST)
    return centre, np.where(iqr > tiny, iqr, np.where(sd > tiny, np.minimum(sd, LARGEST), LARGEST))


def departure(values: np.ndarray) -> float:
    """1 - r of the normal probability plot; 1 where nothing varies."""
    share = (stats.rankdata(values) - 0.5) / len(values)
    inner = (share > PLOTTED[0]) & (share < PLOTTED[1])
    values, share = values[inner], share[inner]
    if len(values) < 2 or np.ptp(values) <= 1e-9 * np.abs(values).max():
        return 1.0
    return float(1 - np.corrcoef(values, special.ndtri(share))[0, 1])


def _column(x: np.ndarray) -> tuple[int, float, float, float, np.ndarray, np.ndarray]:
    """Kind, shift, unit, slope, breaks and bends of one feature."""
    centre, scale = (float(v[0]) for v in centre_and_scale(x[:, None]))
    flat = np.zeros(len(QUANTILES_KEPT))
    none = (NONE, 0.0, 1.0, 1.0, flat, flat)
    if np.ptp(x) <= 1e-9 * np.abs(x).max():
        return none
    own = departure(x)
    if x.min() > SMALLEST and own > STRAIGHT[LOG] and departure(np.log(x)) < 0.75 * own:
        return LOG, 0.0, float(max(x.min() / 2, SMALLEST)), 1.0, flat, flat
    shift = 0.0 if x.min() >= 0 else centre
    tried = [(departure(np.arcsinh((x - shift) / (scale * part))), scale * part) for part in POWERS_OF_UNIT]
    left, unit = min(tried)
    if own > STRAIGHT[ASINH] and left < 0.5 * own:
        return ASINH, shift, unit, 1.0, flat, flat
    if min(own, left) > STRAIGHT[RANKS] and len(np.unique(x)) > len(x) / 2:
        breaks, normal = np.quantile(np.arcsinh((x - shift) / unit), QUANTILES_KEPT), special.ndtri(QUANTILES_KEPT)
        if np.diff(breaks).min() > 1e-6 * np.ptp(breaks):
            slopes = np.diff(normal) / np.diff(breaks)
            bends = np.concatenate([[0.0], np.diff(slopes), [0.0]])
            return RANKS, shift, unit, float(slopes[0]), breaks, bends
    return none
