"""Simulation-based calibration: over many simulated data sets, is the truth anywhere among its posterior draws equally often?

The rank of each parameter's true value among its draws is uniform if the posterior is right ("Validating Bayesian inference
algorithms with simulation-based calibration", Talts, Betancourt, Simpson, Vehtari and Gelman, 2018); `ranks.py` is the test. A
posterior that ignores the data and returns the prior passes for every parameter. A quantity that depends on the data as well,
such as the likelihood of what was observed, does not let it ("Simulation-based calibration checking for Bayesian computation:
the choice of test quantities shapes sensitivity", Modrák, Moon, Kim, Bürkner, Huurre, Faltejsková, Gelman and Vehtari, 2023):
it is tested along with the parameters.

How far off: z = Φ⁻¹((rank + ½) / (L + 1)) is N(0, 1) if the posterior is right. If it is Gaussian with a standard deviation r
times the right one and centred b of its own standard deviations too low, z is N(b, 1/r²).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from scorefold.diagnostics.ranks import EXCHANGES, Uniformity, pooled_ranks, uniformity
from scorefold.errors import ScorefoldError
from scorefold.types import Float, Int


class SBC(NamedTuple):
    """What simulation-based calibration found: the ranks of the true values among posterior draws, parameters first and then
    other quantities, and how uniform they are. `sbc` computes it.
    """

    names: tuple[str, ...]
    parameters: int
    """How many of the names are parameters."""
    ranks: Int[np.ndarray, "datasets quantities"]
    """From 0 to `draws`."""
    draws: int
    uniformity: Uniformity
    low_by: Float[np.ndarray, " quantities"]
    """How much too low the posterior is centred, in its own sd: the mean of z."""
    sd_ratio: Float[np.ndarray, " quantities"]
    """The posterior's sd over the right one: 1 / sd of z. It cannot be seen to be below about 0.4, nor above 100."""

    @property
    def p_values(self) -> Float[np.ndarray, " quantities"]:
        """Adjusted for the number of quantities."""
        return self.uniformity.p_values

    @property
    def p_value(self) -> float:
        """The p-value of all quantities together."""
        return self.uniformity.p_value


Quantity = tuple[Float[np.ndarray, " datasets"], Float[np.ndarray, "datasets draws"]]
"""Its value at the true parameters and at the draws."""


def sbc(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    names: Sequence[str],
    quantities: Mapping[str, Quantity] | None = None,
    seed: int = 0,
    replicates: int = EXCHANGES,
) -> SBC:
    """Test whether the truth ranks uniformly among its posterior draws, for every parameter and for further quantities.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.
        names: of the parameters.
        quantities: further ones by name, each as its values at the truth and at the draws. One that depends on the data, such
            as the log-likelihood, shows whether the posterior uses them.
        seed: of the order of equal values, and of the test.
        replicates: exchanges of the truth with a draw; p-values are multiples of 1 / (replicates + 1).

    Returns:
        An `SBC` with ranks, p-values, and how much too low and how wide the posterior is.

    Raises:
        ScorefoldError: where shapes do not match, names are too few or many, or values are not finite.

    Example:
        The draws are half as wide as they should be.

        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(200, 1))
        >>> x = truth + rng.normal(size=truth.shape)
        >>> draws = x[:, None] / 2 + 0.5 * np.sqrt(0.5) * rng.normal(size=(200, 100, 1))
        >>> found = sbc(truth, draws, ["theta"])
        >>> found.p_value < 0.05, bool(0.4 < found.sd_ratio[0] < 0.7)
        (True, True)
    """
    truth, draws, more = np.asarray(truth, float), np.asarray(draws, float), quantities or {}
    if truth.ndim != 2 or len(names) != truth.shape[1]:
        raise ScorefoldError(f"expected a name for each parameter; got {len(names)} names and true values {truth.shape}")
    dim = truth.shape[1]
    truth = np.concatenate([truth, *(at_truth[:, None] for at_truth, _ in more.values())], axis=1)
    draws = np.concatenate([draws, *(at_draws[..., None] for _, at_draws in more.values())], axis=2)
    pooled = pooled_ranks(truth, draws, seed)
    ranks = pooled[:, 0]
    z = stats.norm.ppf((ranks + 0.5) / pooled.shape[1])
    found = uniformity(pooled, seed, replicates)
    spread = np.maximum(z.std(axis=0, ddof=1), 0.01)
    return SBC((*names, *more), dim, ranks, draws.shape[1], found, z.mean(axis=0), 1 / spread)
