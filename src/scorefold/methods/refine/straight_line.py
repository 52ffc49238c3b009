"""Where a posterior is, from a straight line alone.

Within a small region the Gaussian base is nearly the truth, and composition is then closed. With k sets of sizes s_j,
w | X_j ~ N(μ_j, R_j) under a proposal whose own space is N(0, I), and u = m + A w,

    Λ = Σ_j R_j⁻¹ + (1-k) I + (AᵀA - I),   mean = Λ⁻¹ (Σ_j R_j⁻¹ μ_j - Aᵀm);

where the proposal is the prior itself, or cut out of it, there is no tilt: the last terms are 0. No training and no sampler:
a few hundred simulations move a region to where it should be.

While the region is still wide, a line through all of it is a poor one. Choosing simulations by their x leaves p̃(w|x) as it is,
so the line is fitted again to those whose μ(x) is within 3 R^{1/2} per dimension of the observed mean, or else to the nearest
("Approximate Bayesian computation in population genetics", Beaumont, Zhang and Balding, 2002).
"""

import numpy as np

from scorefold.posterior.partitions import partition
from scorefold.prior.proposal import GaussianProposal, Proposal
from scorefold.score.gaussian_base import GaussianBase, fit_gaussian_base
from scorefold.score.standardize import Standardize, fit_standardize, standardized
from scorefold.simulation.simulations import Simulations

SMALLEST_PRECISION = 1e-3
NEAR = 3.0
FEWEST = 100
PASSES = 3
LIKEST = 0.01
"""Share of the simulations from the prior that are taken for like the observations."""


def locate(sims: Simulations, proposal: Proposal, x: np.ndarray, set_size: int, draws: int, seed: int) -> np.ndarray:
    """Draws w of the Gaussian posterior given x (n, features), from simulations of the proposal."""
    cases, w = sims.x.reshape(*sims.x.shape[:2], -1), sims.prior.to_normal(sims.theta)
    sets, sizes = partition(x, set_size, sims.set_size, np.random.default_rng(seed))
    rows = np.arange(len(w))
    for _ in range(PASSES):
        standardize, base = straight(cases[rows], sims.sizes[rows], w[rows])
        mean, covariance = composed(base, standardized(standardize, sets), sizes, proposal)
        near = nearest(base, standardized(standardize, cases), sims.sizes, standardized(standardize, sets), sizes)
        if len(near) == len(rows):
            break
        rows = near
    return np.random.default_rng([seed, 17]).multivariate_normal(mean, covariance, draws, method="cholesky")


def straight(x: np.ndarray, sizes: np.ndarray, w: np.ndarray) -> tuple[Standardize, GaussianBase]:
    """The line through cases (cases, set, x), and what their observations are standardised by for it."""
    standardize = fit_standardize(x[np.arange(x.shape[1]) < sizes[:, None]])
    return standardize, fit_gaussian_base(standardized(standardize, x), sizes, w)


def likest(sims: Simulations, x: np.ndarray) -> np.ndarray:
    """u of the simulations from the prior whose mean is nearest to that of x (n, features), both standardised."""
    cases = sims.x.reshape(*sims.x.shape[:2], -1)
    counts = np.arange(cases.shape[1]) < sims.sizes[:, None]
    standardize = fit_standardize(cases[counts])
    means = np.where(counts[..., None], standardized(standardize, cases), 0.0).sum(axis=1) / sims.sizes[:, None]
    distance = ((means - standardized(standardize, x).mean(axis=0)) ** 2).sum(axis=1)
    least = min(max(int(LIKEST * len(cases)), 10 * sims.prior.dim), len(cases))
    return sims.prior.to_normal(sims.theta[np.argsort(distance)[:least]])


def nearest(base: GaussianBase, cases: np.ndarray, sizes: np.ndarray, sets: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Rows of the cases whose μ is near that of the observed sets, and a line's worth of them at least."""
    mu, _ = lines(base, cases, sizes)
    seen, inverse = lines(base, sets, observed)
    off = mu - seen.mean(axis=0)
    distance = np.einsum("nd,de,ne->n", off, inverse.mean(axis=0), off) / mu.shape[1]
    least = min(max(FEWEST, 4 * (mu.shape[1] + cases.shape[2] + 1)), len(mu))
    return np.flatnonzero(distance <= max(NEAR**2, np.partition(distance, least - 1)[least - 1]))


def lines(base: GaussianBase, sets: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """μ_j and R_j⁻¹ of standardised sets (k, set, x)."""
    weight, offset, vectors, variances = (
        np.asarray(v, np.float64) for v in (base.weight, base.offset, base.vectors, base.variances)
    )
    inverses = np.einsum("sde,se,sfe->sdf", vectors, 1 / variances, vectors)
    which = sizes - base.smallest
    counts = np.arange(sets.shape[1]) < sizes[:, None]
    x_mean = np.where(counts[..., None], sets, 0.0).sum(axis=1) / sizes[:, None]
    mu = np.empty((len(sets), weight.shape[1]))
    for size in np.unique(which):
        mu[which == size] = x_mean[which == size] @ weight[size].T + offset[size]
    return mu, inverses[which]


def composed(base: GaussianBase, sets: np.ndarray, sizes: np.ndarray, proposal: Proposal) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance, from standardised sets (k, set, x)."""
    mu, inverse = lines(base, sets, sizes)
    dim = mu.shape[1]
    precision = inverse.sum(axis=0) + (1 - len(sizes)) * np.eye(dim)
    pull = np.einsum("jde,je->d", inverse, mu)
    if isinstance(proposal, GaussianProposal):
        precision = precision + proposal.root.T @ proposal.root - np.eye(dim)
        pull = pull - proposal.root.T @ proposal.mean
    values, axes = np.linalg.eigh((precision + precision.T) / 2)
    covariance = (axes / np.maximum(values, SMALLEST_PRECISION)) @ axes.T
    return covariance @ pull, covariance
