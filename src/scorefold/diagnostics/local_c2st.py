"""Local C2ST: is the posterior right for the observed data set in particular?

SBC, coverage and TARP are averages over the prior: errors in one corner of it may go unseen, or be seen although they do not
concern the observations at hand. A classifier d(θ, x) is trained to tell true pairs (θ*, x) from pairs (θ, x) with θ a
posterior draw given x. If the posterior is right everywhere, it cannot. Where it can at x_obs, over draws θ_1 … θ_L given
x_obs,

    T = (1/L) Σ_l (d(θ_l, x_obs) - ½)²

is large ("L-C2ST: local diagnostics for posterior approximations in simulation-based inference", Linhart, Gramfort and
Rodrigues, 2023). What T is for a right posterior is found by exchanging θ* with one of its draws at random in every data set
and training again. Its p-value is below 5 % in at most 5 % of cases if the posterior is right.

The classifier is a logistic regression on what a Gaussian posterior could have wrong: with e = Λ(x)(θ - θ̂(x)), the draw
in units of the draws' own mean and covariance at x, its terms are e, e_i e_j, and each e_i and e_i² with each of the leading
principal components of the summaries of x; an intercept and ridge penalty complete it.
"""

from typing import NamedTuple

import numpy as np

from scorefold.diagnostics.dataset_summaries import fit_scaling, summaries
from scorefold.diagnostics.moments import centred_with_precision
from scorefold.diagnostics.ranks import checked_draws
from scorefold.errors import ScorefoldError
from scorefold.types import Float

TRAININGS = 99
"""Of the classifier with exchanged truths; p-values are multiples of 1 / (this + 1)."""
COMPONENTS = 3
RIDGE_PENALTY = 4.0
NEWTON_STEPS = 8
LARGEST_E = 4.0
"""Standardised draws are cut off here: one far out must not decide."""


class LocalC2ST(NamedTuple):
    """The test at one data set."""

    statistic: float
    null: Float[np.ndarray, " replicates"]
    p_value: float
    probability: Float[np.ndarray, " draws"]
    """d at the observed data set's draws: above ½ where the true posterior has more mass than the draws say."""


def local_c2st(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    x: Float[np.ndarray, "datasets n numbers"],
    x_obs: Float[np.ndarray, "n numbers"],
    draws_obs: Float[np.ndarray, "more dim"],
    seed: int = 0,
    replicates: int = TRAININGS,
) -> LocalC2ST:
    """Test whether the posterior is right at the observed data set, with a classifier trained on simulated ones.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.
        x: the simulated data sets.
        x_obs: the observed data set, of the same shape as each simulated one.
        draws_obs: posterior draws given x_obs.
        seed: of the exchanges.
        replicates: exchanges of the truth with a draw; a p-value is a multiple of 1 / (replicates + 1).

    Returns:
        A `LocalC2ST`; a small `p_value` says that the posterior is wrong at x_obs.

    Raises:
        ScorefoldError: where shapes do not match or values are not finite.
    """
    truth, draws = checked_draws(truth, draws)
    if len(x) != len(truth) or x.shape[1:] != x_obs.shape or draws_obs.shape[1:] != truth.shape[1:]:
        raise ScorefoldError(
            f"expected data sets of one shape, and draws of one dimension; got x {x.shape}, x_obs {x_obs.shape}, draws "
            f"{draws.shape} and {draws_obs.shape}"
        )
    summary, summary_obs = _summaries(x, x_obs)
    pooled = np.concatenate([truth[:, None], draws], axis=1)
    at_obs = _features(_standardised(draws_obs[None])[0], summary_obs[None])
    d = _judged(_standardised(pooled), summary, at_obs, np.random.default_rng([seed, 12]), replicates)
    values = ((d - 0.5) ** 2).mean(axis=1)
    return LocalC2ST(float(values[0]), values[1:], float(np.mean(values >= values[0])), d[0])


def _judged(
    e: Float[np.ndarray, "datasets pooled dim"],
    summary: Float[np.ndarray, "datasets c"],
    at_obs: Float[np.ndarray, "draws features"],
    rng: np.random.Generator,
    replicates: int,
) -> Float[np.ndarray, "trainings draws"]:
    """d at the observed data set's draws: first with the truth, then with a random one of the pooled in its place."""
    datasets, count = e.shape[:2]
    row, label = np.arange(datasets), np.repeat([1.0, 0.0], datasets)
    one: np.ndarray = np.zeros(datasets, int)
    found = []
    for _ in range(replicates + 1):
        # The one that is taken for the truth, and another one of the same data set.
        other = (one + rng.integers(1, count, datasets)) % count
        rows = np.concatenate([e[row, one], e[row, other]])
        found.append(_trained(_features(rows, np.concatenate([summary, summary])), label)(at_obs))
        one = np.asarray(rng.integers(count, size=datasets))
    return np.stack(found)


def _summaries(x: np.ndarray, x_obs: np.ndarray) -> tuple[Float[np.ndarray, "datasets c"], Float[np.ndarray, " c"]]:
    """The leading principal components of the summaries, with unit variance."""
    scaling = fit_scaling(x.reshape(-1, x.shape[2]))
    both = summaries(np.concatenate([x, x_obs[None]]), scaling)
    centred = (both - both[:-1].mean(axis=0)) / np.maximum(both[:-1].std(axis=0), 1e-9)
    _, values, right = np.linalg.svd(centred[:-1], full_matrices=False)
    kept = min(COMPONENTS, int(np.sum(values > 1e-6 * values[0])))
    projected = np.clip(centred @ right[:kept].T * np.sqrt(len(x)) / values[:kept], -LARGEST_E, LARGEST_E)
    return projected[:-1], projected[-1]


def _standardised(theta: Float[np.ndarray, "datasets draws dim"]) -> Float[np.ndarray, "datasets draws dim"]:
    """In units of the draws' own mean and covariance, data set by data set."""
    centred, precision = centred_with_precision(theta)
    return np.clip(centred @ np.linalg.cholesky(precision), -LARGEST_E, LARGEST_E)


def _features(e: Float[np.ndarray, "rows dim"], summary: Float[np.ndarray, "some c"]) -> Float[np.ndarray, "rows features"]:
    """What the logistic regression sees; squares less their mean, so that the penalty leaves the intercept alone."""
    rows, dim = e.shape
    first, second = np.triu_indices(dim)
    products = e[:, first] * e[:, second] - (first == second)
    both = np.concatenate([e, e**2 - 1], axis=1)
    local = (both[:, :, None] * np.broadcast_to(summary, (rows, summary.shape[1]))[:, None]).reshape(rows, -1)
    return np.concatenate([np.ones((rows, 1)), e, products, local], axis=1)


class _Logistic(NamedTuple):
    """A trained classifier."""

    weights: Float[np.ndarray, " features"]

    def __call__(self, features: Float[np.ndarray, "rows features"]) -> Float[np.ndarray, " rows"]:
        """The probability that a row is a true pair."""
        return _sigmoid(features @ self.weights)


def _trained(features: Float[np.ndarray, "rows features"], label: Float[np.ndarray, " rows"]) -> _Logistic:
    """Newton's method on the penalised log loss, which is convex."""
    weights = np.zeros(features.shape[1])
    penalty = np.full(len(weights), RIDGE_PENALTY)
    penalty[0] = 1e-6
    for _ in range(NEWTON_STEPS):
        p = _sigmoid(features @ weights)
        gradient = features.T @ (label - p) - penalty * weights
        hessian = (features * (p * (1 - p))[:, None]).T @ features + np.diag(penalty)
        weights = weights + np.linalg.solve(hessian, gradient)
    return _Logistic(weights)


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(value, -30, 30)))
