"""Variational inference: the Gaussian N(m, L Lᵀ) that maximises the evidence lower bound E_q[log p(u, x) - log q(u)].

NumPyro's SVI with a full covariance, reparametrised draws and Adam, from the prior. Whether it worked is read off the
importance weights p / q of its own draws: the shape k̂ of their tail is below 0.7 where the Gaussian is close enough ("Yes,
but did it work? Evaluating variational inference", Yao, Vehtari, Simpson and Gelman, 2018). A second mode far away does not
show in k̂, since q never goes there, and a bent posterior need not either: a small k̂ is weak evidence.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from scorefold.types import Array, Callable, Cloud, Float, Key, Scalar, Theta

PARTICLES = 16
RATE = 2e-2
WEIGHED = 2_000
"""Draws whose importance weights are looked at."""


class Fitted(NamedTuple):
    """The draws of the fitted Gaussian, and what tells whether it is close to the posterior."""

    u: Cloud
    bound: Float[Array, "steps"]
    """The evidence lower bound in training, up to the log density's constant."""
    log_weights: Float[Array, "weighed"]


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


def tail_shape(log_weights: Float[np.ndarray, "weighed"]) -> float:
    """The generalised Pareto shape k̂ of the tail of the importance weights, below 0.7 for a good fit; infinite where a weight
    is not a number.
    """
    import arviz

    if not np.isfinite(log_weights).all():
        return float("inf")
    return float(arviz.psislw(np.asarray(log_weights, np.float64))[1])
