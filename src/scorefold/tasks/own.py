"""A reference for a task of one's own: NUTS on any likelihood that JAX can differentiate.

In the N(0, I) space, u = Φ⁻¹(F(θ)), the posterior is ∝ N(u | 0, I) ∏_j p(x_j | θ(u)). The map θ(u) is written here in
JAX for the marginals for which it is simple, and for one multivariate normal.
"""

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.tasks import nuts_reference as nuts
from scorefold.types import Array, Callable, Float, Observation, Scalar, Theta

QUANTILES: dict[str, Callable[..., Array]] = {
    "norm": lambda u: u,
    "lognorm": lambda u, s: jnp.exp(s * u),
    "uniform": jax.scipy.special.ndtr,
    "expon": lambda u: -jax.scipy.special.log_ndtr(-u),
    "logistic": lambda u: jax.scipy.special.log_ndtr(u) - jax.scipy.special.log_ndtr(-u),
}
"""F⁻¹(Φ(u)) before loc and scale, by SciPy's names."""


def by_nuts(
    prior: Prior, log_likelihood: Callable[[Theta, Observation], Scalar]
) -> Callable[[np.ndarray, int, int], np.ndarray]:
    """Make the reference of a task of one's own, by NUTS on its likelihood.

    Take it where nothing better is known: draws come with checks (R̂, effective sample size, no divergence) and are refused
    otherwise. A posterior with several modes far apart may still deceive it.

    Args:
        prior: The task's prior: one multivariate normal, or marginals that are norm, lognorm, uniform, expon or logistic.
        log_likelihood: log p(x|θ) for one θ and one observation, in JAX.

    Returns:
        A function (x_obs, draws, seed) to posterior draws (draws, dim), as `Task.reference` is.

    Raises:
        ScorefoldError: A marginal is of another kind. When called: observations are not finite or not one per row, or the
            chains do not agree.

    Example:
        >>> import jax, scipy.stats, scorefold as sf
        >>> from scorefold.tasks.own import by_nuts
        >>> prior = sf.Prior({"mean": scipy.stats.norm(0, 1)})
        >>> reference = by_nuts(prior, lambda theta, x: jax.scipy.stats.norm.logpdf(x, theta).sum())
        >>> # reference(x_obs, 1_000, 0) draws from the posterior of θ given x_obs (n, 1)
    """
    to_theta = from_normal(prior)

    def log_posterior(u: Theta, x: Float[Array, "obs x"]) -> Scalar:
        return jax.vmap(log_likelihood, in_axes=(None, 0))(to_theta(u), x).sum() - jnp.sum(u**2) / 2

    def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
        x = np.asarray(x_obs, np.float64)
        if x.ndim < 2 or not np.isfinite(x).all():
            raise ScorefoldError(f"expected finite observations, one per row; got shape {x.shape}. Write one as x[None].")
        return prior.from_normal(nuts.draw(log_posterior, x[None], prior.dim, draws, [seed])[0].draws)

    return reference


def from_normal(prior: Prior) -> Callable[[Theta], Theta]:
    """The prior's map from u in the N(0, I) space to θ, as JAX can differentiate it; unknown marginals are refused."""
    described = prior.describe()
    if described["kind"] == "multivariate normal":
        mean, root = np.array(described["mean"]), np.linalg.cholesky(np.array(described["cov"]))
        return lambda u: mean + root @ u
    marginals = described["marginals"]
    for name, marginal in zip(prior.names, marginals, strict=True):
        if marginal["distribution"] not in QUANTILES:
            known = ", ".join(QUANTILES)
            raise ScorefoldError(
                f"prior of {name!r}: expected one of {known} for a reference by NUTS; got {marginal['distribution']}. Write "
                "the parameter as a function of one that has such a prior."
            )

    def to_theta(u: Theta) -> Theta:
        return jnp.stack([_quantile(u[i], **marginal) for i, marginal in enumerate(marginals)])

    return to_theta


def _quantile(u: Scalar, distribution: str, parameters: dict[str, float]) -> Scalar:
    shape = {k: v for k, v in parameters.items() if k not in ("loc", "scale")}
    return parameters["loc"] + parameters["scale"] * QUANTILES[distribution](u, **shape)
