"""Neural posterior score estimation: F-NPSE, PF-NPSE and NPSE are one method with sets of 1, m and n_max observations.

A score network s(u, t, X) is trained on cases (u, X) with |X| ~ U{1 … m}. For n observations, cut into k = ⌈n/m⌉ sets,
p(u | x_1 … x_n) ∝ p(u)^{1-k} ∏_j p(u | X_j), and draws come from annealing along the composed scores ("Compositional score
modeling for simulation-based inference", Geffner, Papamakarios and Mnih, 2023).
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.factorized import PriorRule
from scorefold.errors import ScorefoldError
from scorefold.networks.ensemble import ScoreEnsemble
from scorefold.networks.gaussian_base import fit_gaussian_base
from scorefold.networks.score import Shape
from scorefold.networks.standardize import fit_standardize
from scorefold.noise import levels
from scorefold.sample import Sampler
from scorefold.simulation.cases import Simulations, split
from scorefold.train.control import fit_control
from scorefold.train.fit import Cases, History, Training, fit_score, held_out


@dataclass(frozen=True)
class NPSE:
    """A configured method."""

    set_size: int = 1
    """m, the largest number of observations in one set; simulations in larger sets are cut."""
    width: int = 64
    depth: int = 3
    base: bool = True
    """Let the network learn only what a Gaussian fit leaves over; off: the paper's network."""
    control: bool = True
    """Correct the trained score by what unseen cases say of its size and its mean."""
    conservative: bool = False
    """The score is the gradient of a scalar network."""
    schedule: str = "log-snr"
    T: int = 400
    training: Training = field(default_factory=Training)
    prior_rule: PriorRule = "diffused"
    sampler: Sampler | None = None
    """By default ancestral for one set (where it is exact), self-tuned for more."""

    def __post_init__(self) -> None:
        if min(self.set_size, self.width, self.depth) < 1 or self.width % 2:
            raise ScorefoldError(f"expected set_size and depth ≥ 1 and an even width ≥ 2; got {self}")
        levels(self.schedule, self.T)

    def train(self, sims: Simulations, seed: int, progress: bool) -> tuple[ScoreEnsemble, History]:
        """Train the ensemble on the simulations."""
        sims = split(sims, self.set_size)
        x = sims.x.reshape(*sims.x.shape[:2], -1)
        counts = np.arange(x.shape[1]) < sims.sizes[:, None]
        standardize = fit_standardize(x[counts])
        u = sims.prior.to_normal(sims.theta)
        base = None
        if self.base:
            z = np.asarray(jax.jit(jax.vmap(jax.vmap(standardize)))(jnp.asarray(x)))
            z_mean = np.where(counts[..., None], z, 0).sum(axis=1) / sims.sizes[:, None]
            base = fit_gaussian_base(z_mean, sims.sizes, u, sims.set_size)
        cases = Cases(jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32), jnp.asarray(sims.sizes, jnp.int32))
        shape = Shape(sims.prior.dim, x.shape[2], sims.set_size, self.width, self.depth, self.conservative, self.base)
        grid = levels(self.schedule, self.T)
        network, history = fit_score(shape, standardize, base, cases, grid, self.training, seed, progress)
        ensemble = ScoreEnsemble(network, standardize, base, None)
        if self.control:
            out = held_out(len(u), self.training.members, seed)
            control = fit_control(ensemble, cases, out, grid, seed)
            ensemble = ScoreEnsemble(network, standardize, base, control)
        return ensemble, history
