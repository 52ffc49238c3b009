"""Which maps of x and which coordinates of θ make them most nearly a straight line with Gaussian noise.

Every number of an observation may be z = f(x) as `score/standardize.py` chooses f from its marginal, or x itself on the same
scale; every parameter may be u or θ (`coordinates.py`). A marginal alone can mislead: where θ is uniform and x = θ + noise,
ranks of x are normal, but the noise of ranks depends on θ. So the choice is by the likelihood of the line, in units of x,

    Σ_i log q(L⁻¹ (z_i - A v_i - b)) - N log |L| + Σ_ij log |dz_ij/dx_j|,

with A, b and L by least squares, and q Gaussian but for its scale (`scales.py`): the criterion of Box and Cox, with noise that
may have outliers. It begins with the best of six (all f or all x; θ for parameters with two bounds, for none or for all), then
changes one number or parameter after the other as long as that is better, by as much at least as one more number in a model
has to bring by the Bayesian information criterion, log N / 2. Around several modes the line is one for every mode
(`mode_lines.py`), and only the maps of x are chosen.

Reference: "An analysis of transformations", Box and Cox, 1964.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density.coordinates import Choices, Coordinates, at, choices, no_choice
from scorefold.density.mode_lines import in_modes
from scorefold.density.scales import MOST_FEATURES, mean_log_density
from scorefold.prior import Prior
from scorefold.score.standardize import Standardize, fit_standardize, plain, standardized
from scorefold.train.rows import few_at_a_time
from scorefold.types import QUICKLY, Array, Float

PASSES = 3
"""In which all have their turn, at most."""
MOST_CASES = 4_000
FLOOR = 1e-8
"""Variance of noise that is added."""


class Straightened(NamedTuple):
    """How observations and parameters are seen."""

    standardize: Standardize
    coordinates: Coordinates | None
    """None for u."""


def straighten(prior: Prior, x: np.ndarray, u: np.ndarray, inputs: int) -> Straightened:
    """From observations x (count, x), the last so many numbers known inputs, and their u (count, dim).

    Of so many numbers that their noise is taken for Gaussian, the maps are those of their marginals.
    """
    return _straightened(choices(prior), x, u, inputs)


def straighten_in_modes(x: np.ndarray, v: np.ndarray, modes: int, inputs: int) -> Standardize:
    """The maps of observations x (count, x) in which lines, one for every mode, fit best; v as `mode_lines.py` has it."""
    given = in_modes(v, modes)
    return _straightened(no_choice(given.shape[1]), x, given, inputs).standardize


def _straightened(may_be: Choices, x: np.ndarray, u: np.ndarray, inputs: int) -> Straightened:
    by_marginal = fit_standardize(x)
    if x.shape[1] > MOST_FEATURES:
        return Straightened(by_marginal, may_be.coordinates(may_be.bounded))
    rows = slice(None, None, -(-len(x) // MOST_CASES))
    as_is = plain(x)
    mapped = np.array([kind != "none" for kind in by_marginal.kinds])
    mapped[x.shape[1] - inputs :] = False  # inputs are given, whatever their scale
    line = _Line(by_marginal, as_is, may_be, x[rows], u[rows], inputs)
    chosen = _best(line, mapped, may_be)
    keep = ~mapped | chosen.mapped
    mixed = jax.tree.map(lambda f, x: jnp.where(keep.reshape(-1, *[1] * (f.ndim - 1)), f, x), by_marginal, as_is)
    return Straightened(mixed, may_be.coordinates(chosen.as_theta))


class _Choice(NamedTuple):
    mapped: np.ndarray
    """(outcomes and inputs,) by f, not x itself"""
    as_theta: np.ndarray
    """(dim,)"""


def _best(line: "_Line", mapped: np.ndarray, may_be: Choices) -> _Choice:
    """The best of six, then one change after the other."""
    none = np.zeros_like(may_be.free)
    starts = [_Choice(f, v) for f in (mapped, np.zeros_like(mapped)) for v in (may_be.bounded, none, may_be.free)]
    chosen, least = starts[0], line.misfit(starts[0])
    for other in starts[1:]:
        if (value := line.misfit(other)) < least - line.least_gain:
            chosen, least = other, value
    free = [(0, i) for i in np.flatnonzero(mapped)] + [(1, i) for i in np.flatnonzero(may_be.free)]
    for _ in range(PASSES):
        before = least
        for which, i in free:
            parts = [part.copy() for part in chosen]
            parts[which][i] = ~parts[which][i]
            other = _Choice(*parts)
            if (value := line.misfit(other)) < least - line.least_gain:
                chosen, least = other, value
        if least == before:
            break
    return chosen


class _Line:
    """Everything that a line may join: of the outcomes f(x) and x, of the parameters u and θ."""

    def __init__(self, f: Standardize, x: Standardize, may_be: Choices, obs: np.ndarray, u: np.ndarray, inputs: int):
        outcomes = obs.shape[1] - inputs
        seen = np.stack([standardized(one, obs) for one in (f, x)]).astype(np.float64)
        self.z, known = seen[:, :, :outcomes], seen[1, :, outcomes:]
        v = at(may_be.coordinates(may_be.free), jnp.asarray(u, jnp.float32))
        self.v = np.stack([u, np.asarray(v, np.float64)])
        self.always = np.concatenate([np.ones((len(u), 1)), known], axis=1)
        slopes = [np.asarray(_log_slopes(one, jnp.asarray(obs, jnp.float32)), np.float64) for one in (f, x)]
        self.log_slopes = np.stack(slopes)[:, :outcomes]
        self.least_gain = float(np.log(len(u))) / (2 * len(u))

    def misfit(self, choice: _Choice) -> float:
        """Less the mean log density of x."""
        own = np.arange(self.z.shape[2])
        by = np.where(choice.mapped[: len(own)], 0, 1)
        z, v = self.z[by, :, own].T, self.v[choice.as_theta.astype(int), :, np.arange(self.v.shape[2])].T
        given = np.concatenate([self.always, v], axis=1)
        left = z - given @ np.linalg.lstsq(given.T @ given, given.T @ z, rcond=None)[0]
        root = np.linalg.cholesky(left.T @ left / len(z) + FLOOR * np.eye(len(own)))
        squares = np.square(np.linalg.solve(root, left.T)).sum(axis=0)
        volume = np.log(np.diag(root)).sum() - self.log_slopes[by, own].sum()
        return float(volume - mean_log_density(squares, len(own)))


@partial(jax.jit, compiler_options=QUICKLY)
def _log_slopes(standardize: Standardize, x: Float[Array, "cases x"]) -> Float[Array, " x"]:
    """The mean of log |dz/dx|, number by number."""
    return jnp.mean(few_at_a_time(standardize.log_slope)(x), axis=0)
