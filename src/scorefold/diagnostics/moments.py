"""First and second moments of the draws against those of a reference, one parameter at a time.

With mean m and standard deviation s (divisor n-1) of the draws, and m*, s* of the reference,

    mean shift = (m - m*) / s*        sd ratio = s / s*

A perfect posterior has shift 0 and ratio 1, up to the noise of a and b independent draws: the shift then has
standard error √(1/a + 1/b) and, for a Gaussian, log ratio has √(1/2a + 1/2b) ("The Advanced Theory of
Statistics", Kendall and Stuart, 1969, vol. 1, ch. 10). A ratio below 1 is overconfidence.

`clouds` is the check at the door of every diagnostic that compares draws with a reference.
"""

import numpy as np
from numpy.typing import ArrayLike

from scorefold.errors import ScorefoldError
from scorefold.types import Float


def mean_shift(draws: ArrayLike, reference: ArrayLike) -> Float[np.ndarray, "dim"]:
    """The difference of the means, in standard deviations of the reference."""
    draws, reference = clouds(draws, reference)
    return (draws.mean(0) - reference.mean(0)) / spread(reference)


def sd_ratio(draws: ArrayLike, reference: ArrayLike) -> Float[np.ndarray, "dim"]:
    """The standard deviation of the draws over that of the reference."""
    draws, reference = clouds(draws, reference)
    return draws.std(0, ddof=1) / spread(reference)


def clouds(
    draws: ArrayLike, reference: ArrayLike, at_least: int = 2
) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, "reference dim"]]:
    """Both clouds in double precision, checked: (rows, dim), one dim, enough rows, all finite."""
    draws, reference = _cloud(draws, "draws", at_least), _cloud(reference, "reference", at_least)
    if draws.shape[1] != reference.shape[1]:
        raise ScorefoldError(
            "expected draws and reference with the same number of parameters (columns); "
            f"got {draws.shape[1]} and {reference.shape[1]}"
        )
    return draws, reference


def spread(reference: Float[np.ndarray, "reference dim"]) -> Float[np.ndarray, "dim"]:
    """The standard deviation of each parameter of the reference, which must not be zero."""
    sd = reference.std(0, ddof=1)
    # The mean of equal numbers may be off by one rounding, so a constant column need not have sd exactly 0.
    constant = np.flatnonzero(np.ptp(reference, axis=0) == 0)
    if constant.size:
        raise ScorefoldError(
            "expected a reference that varies in every parameter; got a constant in column "
            f"{', '.join(map(str, constant))}: leave it out of both clouds"
        )
    return sd


def _cloud(values: ArrayLike, name: str, at_least: int) -> Float[np.ndarray, "draws dim"]:
    try:
        cloud = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ScorefoldError(f"expected {name} as an array of real numbers; got {error}") from error
    if cloud.ndim != 2 or cloud.shape[1] == 0:
        raise ScorefoldError(f"expected {name} of shape (rows, dim) with dim ≥ 1; got shape {cloud.shape}")
    if len(cloud) < at_least:
        raise ScorefoldError(f"expected {name} with at least {at_least} rows; got {len(cloud)}")
    bad = np.count_nonzero(~np.isfinite(cloud).all(1))
    if bad:
        raise ScorefoldError(f"expected {name} to be finite; got nan or inf in {bad} of {len(cloud)} rows")
    return cloud
