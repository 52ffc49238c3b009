"""Variational inference: the Gaussian N(m, L Lᵀ) that maximises the evidence lower bound E_q[log p(u, x) - log q(u)].

NumPyro's SVI with a full covariance, reparametrised draws and Adam, from the prior. Whether it worked is read off the
importance weights p / q of its own draws: the shape k̂ of their tail is below 0.7 where the Gaussian is close enough ("Yes,
but did it work? Evaluating variational inference", Yao, Vehtari, Simpson and Gelman, 2018). A second mode far away does not
show in k̂, since q never goes there, and a bent posterior need not either: a small k̂ is weak evidence.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from scorefold.errors import Diverged
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.sample.nuts import LogDensity
from scorefold.shown import brief
from scorefold.types import Array, Callable, Cloud, Float, Key, Scalar, Theta

PARTICLES = 16
RATE = 2e-2
LARGEST_TAIL_SHAPE = 0.7
FEWEST_TOGETHER = 256
"""Draws made together, doubled until they are as many as asked for."""
WEIGHED = 2_000
"""Draws whose importance weights are looked at."""


class VariationalInfo(NamedTuple):
    """What the weights say of the Gaussian."""

    tail_shape: float
    """k̂ of the importance weights; above 0.7 the posterior is not close to a Gaussian."""
    bound: np.ndarray
    """The evidence lower bound, step by step, up to a constant."""
    converged: bool
    diverged: bool

    def __repr__(self) -> str:
        return brief(self)


class Fitted(NamedTuple):
    """The draws of the fitted Gaussian, and what tells whether it is close to the posterior."""

    u: Cloud
    bound: Float[Array, " steps"]
    """The evidence lower bound in training, up to the log density's constant."""
    log_weights: Float[Array, " weighed"]


def variational(log_density: Callable[[Theta], Scalar], dim: int, draws: int, steps: int, key: Key) -> Fitted:
    """Fit a Gaussian to a log density by variational inference, and draw from it.

    Args:
        log_density: log p(u, x) at one u in the N(0, I) space, up to a constant.
        dim: The number of parameters.
        draws: How many draws to make.
        steps: Steps of Adam.
        key: The random key.

    Returns:
        `Fitted`, with the draws, the evidence lower bound at every step and importance weights for `tail_shape`.
    """
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_value

    def model() -> None:
        u = numpyro.sample("u", dist.Normal(jnp.zeros(dim), 1).to_event(1))
        numpyro.factor("likelihood", log_density(u) + jnp.sum(u**2) / 2)

    guide = autoguide.AutoMultivariateNormal(model, init_loc_fn=init_to_value(values={"u": jnp.zeros(dim)}), init_scale=0.5)
    falling = optax.cosine_decay_schedule(RATE, steps, 0.02)
    svi = SVI(model, guide, optax.chain(optax.clip_by_global_norm(100.0), optax.adam(falling)), Trace_ELBO(PARTICLES))
    key_start, key_draws, key_weights = jax.random.split(key, 3)
    state, losses = jax.lax.scan(lambda state, _: svi.update(state), svi.init(key_start), length=steps)
    q = guide.get_posterior(svi.get_params(state))
    weighed = q.sample(key_weights, (WEIGHED,))
    log_weights = jax.lax.map(log_density, weighed, batch_size=64) - q.log_prob(weighed)
    return Fitted(q.sample(key_draws, (draws,)), -losses, log_weights)


def tail_shape(log_weights: Float[np.ndarray, " weighed"]) -> float:
    """The generalised Pareto shape k̂ of the tail of the importance weights, below 0.7 for a good fit; infinite where a weight
    is not a number.
    """
    if not np.isfinite(log_weights).all():
        return float("inf")
    return float(_smoothed(np.asarray(log_weights, np.float64))[1])


def _smoothed(log_weights: Float[np.ndarray, " weighed"]) -> Any:
    """Pareto-smoothed log weights and k̂, by ArviZ. Since its version 1 the function takes log likelihoods, the negatives."""
    import arviz

    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.psislw(log_weights)
    from arviz_stats.base import array_stats

    return array_stats.psislw(-log_weights)


def variational_draws(
    log_density: LogDensity, data: Any, dim: int, draws: int, key: Key, steps: int
) -> tuple[np.ndarray, VariationalInfo]:
    """Draws of the fitted Gaussian, and whether it fits."""
    size = FEWEST_TOGETHER
    while size < draws:
        size *= 2
    fitted = _variational(log_density, data, dim, size, steps, key)
    u, bound, log_weights = (np.asarray(part, np.float64) for part in fitted)
    if not np.isfinite(u).all():
        raise Diverged("variational inference ran into values that are not numbers. Use sampler='nuts', or train again.")
    shape = tail_shape(log_weights)
    diverged = bool(np.abs(u).max() > FARTHEST_DRAW)
    return u[:draws], VariationalInfo(shape, bound, shape < LARGEST_TAIL_SHAPE and not diverged, diverged)


@eqx.filter_jit
def _variational(log_density: LogDensity, data: Any, dim: int, draws: int, steps: int, key: Key) -> Fitted:
    with jax.default_matmul_precision("highest"):
        return variational(lambda u: log_density(u, data), dim, draws, steps, key)
