"""Where a posterior is, from a straight line alone.

Within a small region the Gaussian base is nearly the truth, and composition is then closed. With k sets of sizes s_j,
w | X_j ~ N(μ_j, R_j) under a proposal whose own space is N(0, I), and u = m + A w,

    Λ = Σ_j R_j⁻¹ + (1-k) I + (AᵀA - I),   mean = Λ⁻¹ (Σ_j R_j⁻¹ μ_j - Aᵀm);

where the proposal is the prior itself, or cut out of it, there is no tilt: the last terms are 0. No training and no sampler:
a few hundred simulations move a region to where it should be.
"""

import numpy as np

from scorefold.methods.composed import partition
from scorefold.networks.gaussian_base import GaussianBase, fit_gaussian_base
from scorefold.networks.standardize import fit_standardize, standardized
from scorefold.prior.proposal import GaussianProposal, Proposal
from scorefold.simulation.cases import Simulations

SMALLEST_PRECISION = 1e-3


def locate(sims: Simulations, proposal: Proposal, x: np.ndarray, set_size: int, draws: int, seed: int) -> np.ndarray:
    """Draws w of the Gaussian posterior given x (n, features), from simulations of the proposal."""
    cases = sims.x.reshape(*sims.x.shape[:2], -1)
    standardize = fit_standardize(cases[np.arange(cases.shape[1]) < sims.sizes[:, None]])
    base = fit_gaussian_base(standardized(standardize, cases), sims.sizes, sims.prior.to_normal(sims.theta))
    sets, sizes = partition(x, set_size, sims.set_size, np.random.default_rng(seed))
    mean, covariance = composed(base, standardized(standardize, sets), sizes, proposal)
    return np.random.default_rng([seed, 17]).multivariate_normal(mean, covariance, draws, method="cholesky")


def composed(base: GaussianBase, sets: np.ndarray, sizes: np.ndarray, proposal: Proposal) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance, from standardised sets (k, set, x)."""
    weight, offset, vectors, variances = (
        np.asarray(v, np.float64)[sizes - base.smallest] for v in (base.weight, base.offset, base.vectors, base.variances)
    )
    counts = np.arange(sets.shape[1]) < sizes[:, None]
    x_mean = np.where(counts[..., None], sets, 0.0).sum(axis=1) / sizes[:, None]
    mu = np.einsum("jdx,jx->jd", weight, x_mean) + offset
    inverse = np.einsum("jde,je,jfe->jdf", vectors, 1 / variances, vectors)
    dim = mu.shape[1]
    precision = inverse.sum(axis=0) + (1 - len(sizes)) * np.eye(dim)
    pull = np.einsum("jde,je->d", inverse, mu)
    if isinstance(proposal, GaussianProposal):
        precision = precision + proposal.root.T @ proposal.root - np.eye(dim)
        pull = pull - proposal.root.T @ proposal.mean
    values, axes = np.linalg.eigh((precision + precision.T) / 2)
    covariance = (axes / np.maximum(values, SMALLEST_PRECISION)) @ axes.T
    return covariance @ pull, covariance
