"""The integral of a density that is known up to a constant, from draws of it: bridge sampling.

With draws u_i of e^{h(u)} / Z and draws w_j of a normalised density q, Z is the fixed point of

    Z = mean_j[ e^{h(w)} / (a e^{h(w)} / Z + b q(w)) ] / mean_i[ q(u) / (a e^{h(u)} / Z + b q(u)) ],   a = N/(N+M), b = M/(N+M),

which of all such estimates has the least error ("Simulating ratios of normalizing constants via a simple identity", Meng and
Wong, 1996). Half of the draws are for q, a mixture of one to four Gaussians by expectation–maximisation, whichever the
Bayesian information criterion favours; the other half are the u_i. The error is that of independent draws, by the variances of
the two means (Frühwirth-Schnatter, "Estimating marginal likelihoods for mixture and Markov switching models", 2004).

Where maxima of h are known, a quarter of q are Gaussians there with the curvature of h. Then the draws of q alone, weighed by
e^h / q, give Z a second time, whatever the u_i are. Where that differs, the u_i do not have the weights that the density gives
them, as where a peak is too narrow for the sampler: the second estimate is taken, and it is said.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from scorefold.errors import ScorefoldError
from scorefold.types import Float

ITERATIONS, CHANGE = 500, 1e-8
MOST_COMPONENTS = 4
EM_STEPS = 100
SMALLEST_PART = 0.02
AT_PEAKS, LEAST_PEAKED = 0.25, 0.25
"""The share of q at maxima, and the least curvature of one, where the prior's is 1."""
FEWEST_OF_Q = 2_000
DISAGREE, KNOWN_WELL = 0.1, 0.2
"""Nat: by so much more than chance two estimates may differ, and the largest error of the second that counts."""
WIDENED = 1.1
"""The Gaussians' sds are so many times those of the draws, as tails should be heavier rather than lighter."""


class Constant(NamedTuple):
    """log Z, and its standard error."""

    log: float
    error: float
    agrees: bool = True
    """Whether the draws have the weights that the density gives them, as far as can be told."""


class Gaussians(NamedTuple):
    """A mixture of Gaussians."""

    log_weights: Float[np.ndarray, " components"]
    means: Float[np.ndarray, "components dim"]
    roots: Float[np.ndarray, "components dim dim"]
    """Lower triangular, of the covariances."""

    def log_density(self, u: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """log q(u)."""
        return logsumexp(self._joint(u), axis=1)

    def _joint(self, u: np.ndarray) -> np.ndarray:
        """(points, components): log w_c N(u | μ_c, L_c L_cᵀ)."""
        parts = []
        for log_weight, mean, root in zip(*self, strict=True):
            white = np.linalg.solve(root, (u - mean).T)
            constant = np.log(np.diag(root)).sum() + u.shape[1] / 2 * np.log(2 * np.pi)
            parts.append(log_weight - np.square(white).sum(axis=0) / 2 - constant)
        return np.stack(parts, axis=1)

    def sample(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "count dim"]:
        """Draws of q."""
        which = rng.choice(len(self.means), count, p=np.exp(self.log_weights))
        noise = rng.standard_normal((count, self.means.shape[1]))
        return self.means[which] + np.einsum("nde,ne->nd", self.roots[which], noise)


def log_constant(
    log_density: Callable[[Float[np.ndarray, "points dim"]], Float[np.ndarray, " points"]],
    u: Float[np.ndarray, "draws dim"],
    seed: tuple[int, ...],
    peaks: Gaussians | None = None,
) -> Constant:
    """log Z = log ∫ e^{h(u)} du.

    Args:
        log_density: h, at many points; -inf where there is no density.
        u: Independent draws of the density, in no order.
        seed: Of the draws of q.
        peaks: Gaussians at maxima of the density, where some are known. Default None.

    Returns:
        log Z with its standard error.

    Raises:
        ScorefoldError: Draws are fewer than 20 for each dimension.
    """
    if len(u) < 20 * u.shape[1]:
        raise ScorefoldError(f"expected at least {20 * u.shape[1]} draws to normalise a density by; got {len(u)}. Draw more.")
    rng = np.random.default_rng(seed)
    half = len(u) // 2
    order = rng.permutation(len(u))
    q = fit_gaussians(u[order[:half]], rng)
    if peaks is not None:
        q = _joined(q, peaks)
    own, theirs = u[order[half:]], q.sample(max(half, FEWEST_OF_Q), rng)
    h_own, h_theirs = log_density(own), log_density(theirs)
    h_theirs, q_theirs = np.where(np.isnan(h_theirs), -np.inf, h_theirs), q.log_density(theirs)
    bridged = _bridge(h_own, q.log_density(own), h_theirs, q_theirs)
    weights = h_theirs - q_theirs
    alone = Constant(
        float(logsumexp(weights) - np.log(len(weights))), float(np.sqrt(_relative_variance(weights) / len(weights))), False
    )
    apart = abs(bridged.log - alone.log) > DISAGREE + 4 * np.hypot(bridged.error, alone.error)
    return alone if apart and alone.error < KNOWN_WELL else bridged


def peaks_at(means: Float[np.ndarray, "points dim"], curvatures: Float[np.ndarray, "points dim dim"]) -> Gaussians | None:
    """Gaussians at maxima, each once; those that are no maxima are left out."""
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for mean, curvature in zip(means, curvatures, strict=True):
        if not (np.isfinite(mean).all() and np.isfinite(curvature).all()):
            continue
        values, vectors = np.linalg.eigh(curvature)
        if values[0] <= LEAST_PEAKED:
            continue
        if all((mean - other) @ curvature @ (mean - other) > len(mean) for other, _ in kept):
            kept.append((mean, np.linalg.cholesky((vectors / values) @ vectors.T)))
    if not kept:
        return None
    weights = np.full(len(kept), -np.log(len(kept)))
    return Gaussians(weights, np.stack([mean for mean, _ in kept]), np.stack([root for _, root in kept]))


def _joined(q: Gaussians, peaks: Gaussians) -> Gaussians:
    weights = np.concatenate([q.log_weights + np.log(1 - AT_PEAKS), peaks.log_weights + np.log(AT_PEAKS)])
    return Gaussians(weights, np.concatenate([q.means, peaks.means]), np.concatenate([q.roots, WIDENED * peaks.roots]))


def _bridge(h_own: np.ndarray, q_own: np.ndarray, h_theirs: np.ndarray, q_theirs: np.ndarray) -> Constant:
    count, other = len(h_own), len(h_theirs)
    log_a, log_b = np.log(count / (count + other)), np.log(other / (count + other))
    log_z = float(np.median(h_own - q_own))
    for _ in range(ITERATIONS):
        above = h_theirs - np.logaddexp(log_a + h_theirs - log_z, log_b + q_theirs)
        below = q_own - np.logaddexp(log_a + h_own - log_z, log_b + q_own)
        before, log_z = log_z, float(logsumexp(above) - np.log(other) - logsumexp(below) + np.log(count))
        if abs(log_z - before) < CHANGE:
            break
    above = h_theirs - log_z - np.logaddexp(log_a + h_theirs - log_z, log_b + q_theirs)
    below = q_own - np.logaddexp(log_a + h_own - log_z, log_b + q_own)
    variance = sum(_relative_variance(part) / len(part) for part in (above, below))
    return Constant(log_z, float(np.sqrt(variance)))


def _relative_variance(log_values: np.ndarray) -> float:
    values = np.exp(log_values - log_values.max())
    return float(values.var(ddof=1) / values.mean() ** 2)


def fit_gaussians(u: Float[np.ndarray, "draws dim"], rng: np.random.Generator) -> Gaussians:
    """The mixture that the Bayesian information criterion favours, a little wider than the draws."""
    draws, dim = u.shape
    starts = [np.ones((draws, 1))]
    white = np.linalg.solve(np.linalg.cholesky(_covariance(u, np.ones(draws))), (u - u.mean(axis=0)).T).T
    distance = np.square(white).sum(axis=1)
    inner = distance < np.median(distance)
    starts.append(np.stack([inner, ~inner], axis=1).astype(float))  # a narrow one on a wide one
    for components in range(2, MOST_COMPONENTS + 1):
        if draws >= 4 * components * (dim + 1):
            starts.append(_nearest(white, components, rng))
    fits = [_em(u, start) for start in starts]
    size = [len(fit.means) * (1 + dim + dim * (dim + 1) / 2) for fit, _ in fits]
    best = int(np.argmin([-2 * total + cost * np.log(draws) for (_, total), cost in zip(fits, size, strict=True)]))
    chosen = fits[best][0]
    return chosen._replace(roots=WIDENED * chosen.roots)


def _nearest(white: np.ndarray, components: int, rng: np.random.Generator) -> np.ndarray:
    """Shares by the nearest of a few draws that lie far apart."""
    centres = [white[rng.integers(len(white))]]
    for _ in range(components - 1):
        square = np.min([np.square(white - centre).sum(axis=1) for centre in centres], axis=0)
        centres.append(white[rng.choice(len(white), p=square / square.sum())])
    nearest = np.argmin([np.square(white - centre).sum(axis=1) for centre in centres], axis=0)
    return np.eye(components)[nearest]


def _em(u: np.ndarray, shares: np.ndarray) -> tuple[Gaussians, float]:
    """The mixture, and its log likelihood."""
    total = -np.inf
    while True:
        shares = shares[:, shares.mean(axis=0) > SMALLEST_PART]
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        for _ in range(EM_STEPS):
            weights = shares.sum(axis=0) / len(u)
            means = shares.T @ u / shares.sum(axis=0)[:, None]
            roots = np.stack([np.linalg.cholesky(_covariance(u, share)) for share in shares.T])
            mixture = Gaussians(np.log(weights / weights.sum()), means, roots)
            joint = mixture._joint(u)
            each = logsumexp(joint, axis=1)
            shares, before, total = np.exp(joint - each[:, None]), total, float(each.sum())
            if total - before < 1e-4 * len(u):
                break
        if (shares.mean(axis=0) > SMALLEST_PART).all():
            return mixture, total


def _covariance(u: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weighted, with a little of the whole's own widths, so that it can be inverted."""
    mean = share @ u / share.sum()
    own = (u - mean).T @ (share[:, None] * (u - mean)) / share.sum()
    return own + 1e-6 * np.diag(np.maximum(u.var(axis=0), 1e-30))
