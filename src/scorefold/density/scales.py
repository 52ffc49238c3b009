"""Noise that is Gaussian but for its scale: z = s g with g ~ N(0, I), and s one of a few sds, anew for every observation.

    q(z) = Σ_k w_k N(z | 0, s_k² I)

Outliers, and observations that are more precise than others, are of this kind. Coupling layers find it hard to learn, as all
numbers of an observation share one s. It is fitted together with a straight line, x ≈ A u + b + s L g, by expectation and
maximisation: with p_ik the probability that case i has scale k and ω_i = Σ_k p_ik / s_k²,

    (A, b) by least squares with weights ω_i,   L Lᵀ = mean_i ω_i r_i r_iᵀ,
    w_k = mean_i p_ik,   s_k² = mean_i p_ik |L⁻¹ r_i|² / (d w_k)

("Normal/independent distributions and their applications in robust regression", Lange and Sinsheimer, 1993). One scale, a plain
Gaussian, is kept unless the Bayesian information criterion favours more.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.score.least_squares import NoisyLine, shrunk
from scorefold.types import Array, Float, Key, Observation, Scalar

SCALES = 3
"""At most."""
NEVER = -30.0
"""The log weight of a scale that is not there."""
MOST_FEATURES = 64
"""Of more numbers the noise is taken for Gaussian."""
SCALE_STEPS, SCALE_ROUNDS, SCALE_STEPS_TO_COMPARE = 50, 20, 15
"""Of the scales alone, of line and scales together, and of the scales where they only have to be compared."""
SMALLEST_VARIANCE = 1e-4
"""Of a scale, where the Gaussian's is 1."""


class Scales(eqx.Module):
    """log w_k, up to a constant, and log s_k."""

    log_weights: Float[Array, " scales"]
    log_sds: Float[Array, " scales"]

    def log_density(self, z: Observation) -> Scalar:
        """log q(z)."""
        squares = jnp.sum(z**2) * jnp.exp(-2 * self.log_sds)
        each = jax.nn.log_softmax(self.log_weights) - len(z) * self.log_sds - squares / 2
        return jax.nn.logsumexp(each) - len(z) / 2 * jnp.log(2 * jnp.pi)

    def draw(self, dim: int, key: Key) -> Observation:
        """z of so many numbers."""
        key_scale, key_z = jax.random.split(key)
        which = jax.random.categorical(key_scale, self.log_weights)
        return jnp.exp(self.log_sds[which]) * jax.random.normal(key_z, (dim,))

    def moved(self, by: "Scales") -> "Scales":
        """With what training adds to its numbers."""
        return jax.tree.map(jnp.add, self, by)


def blank() -> Scales:
    """One of this size, its numbers still to be put in; as what training adds, nothing."""
    return Scales(jnp.zeros(SCALES), jnp.zeros(SCALES))


def gaussian() -> Scales:
    """One scale."""
    return Scales(jnp.array([0.0] + [NEVER] * (SCALES - 1)), jnp.zeros(SCALES))


def fit_scales(x: np.ndarray, u: np.ndarray, line: NoisyLine) -> tuple[NoisyLine, Scales]:
    """The line, with its noise's scales, of cases x (rows, x) and u (rows, dim) around a line by least squares."""
    features = x.shape[1]
    if features > MOST_FEATURES:
        return line, gaussian()
    found = _favoured(_squares(x, u, line), features)
    if found is None:
        return line, gaussian()
    for _ in range(SCALE_ROUNDS):
        line, found = _round(x, u, line, found)
    return line, _scales(*found)


def one_scale(squares: np.ndarray, features: int) -> bool:
    """Whether whitened residuals of these squared lengths are Gaussian as far as the criterion tells."""
    return _favoured(squares, features) is None


def _favoured(squares: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights and variances of as many scales as the criterion favours; None for one."""
    best, found = _log_likelihood(squares, np.zeros(1), np.ones(1), features), None
    for number in range(2, SCALES + 1):
        weights, variances = _by_distances(squares, number, features)
        gain = _log_likelihood(squares, np.log(weights), variances, features) - (number - 1) * np.log(len(squares))
        if gain > best:
            best, found = gain, (weights, variances)
    return found


def _scales(weights: np.ndarray, variances: np.ndarray) -> Scales:
    """With scales that are not there for those that are missing."""
    more = SCALES - len(weights)
    log_weights = np.concatenate([np.log(weights), np.full(more, NEVER)])
    log_sds = np.concatenate([np.log(variances) / 2, np.zeros(more)])
    return Scales(jnp.asarray(log_weights, jnp.float32), jnp.asarray(log_sds, jnp.float32))


def mean_log_density(squares: np.ndarray, features: int) -> float:
    """Of whitened residuals with these squared lengths, up to a constant: Gaussian, or Gaussian but for two scales."""
    gaussian = _log_likelihood(squares, np.zeros(1), np.ones(1), features)
    weights, variances = _by_distances(squares, 2, features, SCALE_STEPS_TO_COMPARE)
    return max(gaussian, _log_likelihood(squares, np.log(weights), variances, features)) / len(squares)


def _squares(x: np.ndarray, u: np.ndarray, line: NoisyLine) -> np.ndarray:
    """|L⁻¹ r|² of every case."""
    squares: np.ndarray = np.square(line.whitened(x, u)).sum(axis=1)
    return squares


def _joint(squares: np.ndarray, log_weights: np.ndarray, variances: np.ndarray, features: int) -> np.ndarray:
    """(scales, cases): log w_k N(r_i | 0, s_k² L Lᵀ), up to what all share."""
    return (log_weights - features / 2 * np.log(variances))[:, None] - squares / (2 * variances)[:, None]


def _log_likelihood(squares: np.ndarray, log_weights: np.ndarray, variances: np.ndarray, features: int) -> float:
    joint = _joint(squares, log_weights, variances, features)
    top = joint.max(axis=0)
    return float((top + np.log(np.exp(joint - top).sum(axis=0))).sum())


def _step(squares: np.ndarray, weights: np.ndarray, variances: np.ndarray, features: int) -> tuple[np.ndarray, ...]:
    """p (scales, cases), and the weights and variances that they mean."""
    joint = _joint(squares, np.log(weights), variances, features)
    p = np.exp(joint - joint.max(axis=0))
    p /= p.sum(axis=0)
    share = np.maximum(p.mean(axis=1), 1e-9)
    variance = p @ squares / len(squares) / (features * share)
    return p, share / share.sum(), np.maximum(variance, SMALLEST_VARIANCE)


def _by_distances(squares: np.ndarray, number: int, features: int, steps: int = SCALE_STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Weights and variances of so many scales around a line that stays."""
    places = (np.arange(number) + 0.5) / number
    weights, variances = np.full(number, 1 / number), np.maximum(np.quantile(squares, places) / features, SMALLEST_VARIANCE)
    for _ in range(steps):
        _, weights, variances = _step(squares, weights, variances, features)
    return weights, variances


def _round(
    x: np.ndarray, u: np.ndarray, line: NoisyLine, found: tuple[np.ndarray, np.ndarray]
) -> tuple[NoisyLine, tuple[np.ndarray, np.ndarray]]:
    """One step of line and scales together; the ridge of the noise stays as it was."""
    p, weights, variances = _step(_squares(x, u, line), *found, x.shape[1])
    omega = (1 / variances) @ p
    design = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    weighted = (design * omega[:, None]).T
    fit = np.linalg.lstsq(weighted @ design, weighted @ x, rcond=None)[0]
    residual = x - design @ fit
    noise = (residual * omega[:, None]).T @ residual / len(x)
    ridge = 1e-4 * np.trace(noise) / len(noise) + 1e-8
    return NoisyLine(fit[1:].T, fit[0], shrunk(noise + ridge * np.eye(len(noise)), len(x))), (weights, variances)
