"""First and second moments of the draws against those of a reference, one parameter at a time.

With mean m and standard deviation s (divisor n-1) of the draws, and m*, s* of the reference,

    mean shift = (m - m*) / s*        sd ratio = s / s*

A perfect posterior has shift 0 and ratio 1, up to the noise of a and b independent draws: the shift then has
standard error √(1/a + 1/b) and, for a Gaussian, log ratio has √(1/2a + 1/2b) ("The Advanced Theory of
Statistics", Kendall and Stuart, 1969, vol. 1, ch. 10). A ratio below 1 is over-confidence.

`clouds` is the check at the door of every diagnostic that compares draws with a reference; `centred_with_precision` gives the
metric of each data set's own draws.
"""

import numpy as np
from numpy.typing import ArrayLike

from scorefold.errors import ScorefoldError
from scorefold.types import Float


def mean_shift(draws: ArrayLike, reference: ArrayLike) -> Float[np.ndarray, " dim"]:
    """How far the mean of the draws is from that of the reference, for each parameter in sd of the reference; 0 is perfect.

    Both are (rows, dim). A ScorefoldError says what is wrong with them, if anything is.

    >>> mean_shift([[0.0], [2.0]], [[-1.0], [1.0]]).round(3)
    array([0.707])
    """
    draws, reference = clouds(draws, reference)
    return (draws.mean(0) - reference.mean(0)) / spread(reference)


def sd_ratio(draws: ArrayLike, reference: ArrayLike) -> Float[np.ndarray, " dim"]:
    """The sd of the draws over that of the reference, for each parameter; 1 is perfect, below 1 over-confident.

    Both are (rows, dim). A ScorefoldError says what is wrong with them, if anything is.

    >>> sd_ratio([[0.0], [1.0]], [[0.0], [2.0]])
    array([0.5])
    """
    draws, reference = clouds(draws, reference)
    return draws.std(0, ddof=1) / spread(reference)


def clouds(
    draws: ArrayLike, reference: ArrayLike, at_least: int = 2
) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, "reference dim"]]:
    """Two clouds of points to be compared, checked.

    Args:
        draws: (rows, dim).
        reference: (rows, dim), of the same dim.
        at_least: Rows that each must have. Default 2.

    Returns:
        Both in double precision.

    Raises:
        ScorefoldError: A shape is wrong, rows are too few, or a number is not finite.
    """
    draws, reference = _cloud(draws, "draws", at_least), _cloud(reference, "reference", at_least)
    if draws.shape[1] != reference.shape[1]:
        raise ScorefoldError(
            "expected draws and reference with the same number of parameters (columns); "
            f"got {draws.shape[1]} and {reference.shape[1]}"
        )
    return draws, reference


def spread(reference: Float[np.ndarray, "reference dim"]) -> Float[np.ndarray, " dim"]:
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


def centred_with_precision(
    points: Float[np.ndarray, "datasets points dim"],
) -> tuple[Float[np.ndarray, "datasets points dim"], Float[np.ndarray, "datasets dim dim"]]:
    """Each data set's points less their mean, and the inverse of their covariance (with a trace of ridge)."""
    centred = points - points.mean(axis=1, keepdims=True)
    dim = points.shape[2]
    covariance = np.einsum("sld,sle->sde", centred, centred) / points.shape[1]
    covariance += 1e-9 * (np.trace(covariance, axis1=1, axis2=2) / dim)[:, None, None] * np.eye(dim)
    return centred, np.linalg.inv(covariance)


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
