"""A second way to a posterior: self-normalised importance sampling under Student's t."""

import numpy as np
from scipy import optimize, stats

Z_MAX = 5.5


def log_weights(log_density, centre, covariance, count, rng):
    """Proposals from a t with 5 degrees of freedom, and the logarithms of their weights."""
    proposal = stats.multivariate_t(centre, covariance, df=5, seed=rng)
    points = proposal.rvs(count)
    return points, log_density(points) - proposal.logpdf(points)


def mode_and_covariance(log_density, start):
    """Where a log density of rows is highest, and minus the inverse of its second differences there."""
    dim = len(start)
    found = optimize.minimize(lambda y: -log_density(y[None])[0], start, method="BFGS", options={"gtol": 1e-4})
    step = 0.1 * np.sqrt(np.diag(found.hess_inv))
    grid = [(i, j) for i in range(dim) for j in range(i, dim)]
    hessian = np.zeros((dim, dim))
    for i, j in grid:
        a, b = np.eye(dim)[i] * step[i], np.eye(dim)[j] * step[j]
        corners = log_density(found.x + np.array([a + b, a - b, b - a, -a - b]))
        hessian[i, j] = hessian[j, i] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step[i] * step[j])
    return found.x, np.linalg.inv(-hessian)


def assert_same_moments(draws, points, log_weight, at_least, effective):
    """E y and E (y - ȳ)² of draws and of weighted points; `effective` says how many independent draws the draws are worth."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1 / np.sum(weight**2) > at_least
    centre = weight @ points
    for power in (1, 2):
        ours, theirs = (draws - centre) ** power, (points - centre) ** power
        expected = weight @ theirs
        error2 = weight**2 @ (theirs - expected) ** 2 + ours.var(0) / effective
        z = (ours.mean(0) - expected) / np.sqrt(error2)
        assert (np.abs(z) < Z_MAX).all(), z
