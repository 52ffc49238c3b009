"""Sliced Wasserstein distance: how far the draws would have to be moved to become a reference.

In one dimension the cheapest way to move the mass of P to Q keeps its order, and the Wasserstein distance of order 2 is
that of the quantile functions, W₂²(P, Q) = ∫_0^1 (F_P⁻¹(s) - F_Q⁻¹(s))² ds. In more dimensions both clouds are
projected onto directions ω and the mean is taken,

    SW₂²(P, Q) = E_ω W₂²(ω·P, ω·Q),   ω uniform on the unit sphere

("Sliced and Radon Wasserstein barycenters of measures", Bonneel, Rabin, Peyré and Pfister, 2015): zero only when P = Q.
Both clouds are first divided by the reference's sd, parameter by parameter, so that the distance is in posterior sd.
The directions come as random orthonormal bases, whose mean has the same expectation and less scatter ("Orthogonal
estimation of Wasserstein distances", Rowland, Hron, Tang, Choromanski, Sarlos and Weller, 2019).

Limiting cases. In dim dimensions with a reference N(0, I), draws from N(δ, I) have SW₂ = |δ| / √dim, for any number of
whole bases, and draws from N(0, s² I) have SW₂ = |s - 1|. In one dimension SW₂ = W₂. It is a distance, never below
zero: two sets of draws from the same distribution are apart, too, 1,000 from a Gaussian by 0.08 on average, and less as
1/√draws.
"""

import numpy as np
from numpy.typing import ArrayLike

from scorefold.diagnostics.moments import clouds, spread
from scorefold.errors import ScorefoldError
from scorefold.types import Float

PROJECTIONS = 128


def sliced_wasserstein(draws: ArrayLike, reference: ArrayLike, directions: int = PROJECTIONS, seed: int = 0) -> float:
    """The sliced Wasserstein distance of order 2 between draws and a reference, in the reference's standard deviations.

    Take it beside C2ST when that is near 1 for everything: it still tells draws 3 sd off from draws 30 sd off.

    Args:
        draws: The draws to judge, (a, dim), at least 2.
        reference: Draws from the true posterior, (b, dim), at least 2; a and b may differ.
        directions: How many directions to project onto, 128 by default, rounded up to whole orthonormal bases. In one
            dimension one is enough, and one is used.
        seed: Which random directions; the same seed gives the same number.

    Returns:
        The distance: 0 for equal clouds, 1 for a shift of one posterior sd in every parameter.

    Raises:
        ScorefoldError: For clouds that are not finite or differ in their number of parameters, a parameter in which the
            reference is constant, or fewer than 1 direction.

    Example:
        >>> import numpy as np
        >>> reference = np.random.default_rng(0).normal([0, 5], [1, 2], size=(1000, 2))
        >>> sliced_wasserstein(reference, reference)
        0.0
        >>> shift = reference.std(0, ddof=1)
        >>> round(sliced_wasserstein(reference + shift, reference), 6)
        1.0
    """
    draws, reference = clouds(draws, reference)
    if directions < 1 or seed < 0:
        raise ScorefoldError(f"expected at least 1 direction and a seed ≥ 0; got {directions} directions and the seed {seed}")
    centre, scale = reference.mean(0), spread(reference)
    onto = _directions(reference.shape[1], directions, np.random.default_rng(seed))
    x, y = (np.sort(((cloud - centre) / scale) @ onto, axis=0) for cloud in (draws, reference))
    return float(np.sqrt(np.mean(_squared_wasserstein(x, y))))


def _directions(dim: int, count: int, rng: np.random.Generator) -> Float[np.ndarray, "dim directions"]:
    """Whole random orthonormal bases, as columns."""
    if dim == 1:
        return np.ones((1, 1))
    bases = np.linalg.qr(rng.standard_normal((-(-count // dim), dim, dim)))[0]
    return np.moveaxis(bases, 0, 1).reshape(dim, -1)


def _squared_wasserstein(
    x: Float[np.ndarray, "x directions"], y: Float[np.ndarray, "y directions"]
) -> Float[np.ndarray, " directions"]:
    """W₂² of each column pair, sorted: the quantile functions are constant between the levels i/a and j/b."""
    a, b = len(x), len(y)
    # In units of 1/(ab) the levels are whole numbers, which no rounding can put in the wrong order.
    levels = np.union1d(np.arange(1, a + 1) * b, np.arange(1, b + 1) * a)
    steps = np.diff(levels, prepend=0) / (a * b)
    return steps @ (x[(levels - 1) // b] - y[(levels - 1) // a]) ** 2
