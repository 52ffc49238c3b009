"""The normalised density of one set's posterior, from its score alone: along the probability flow.

The score of one set is that of a diffused density at every level, so the probability flow carries its density along. In
v = u/√γ, and with λ = log σ, σ² = (1-γ)/γ, as a function of the level t,

    dv/dt = -λ'(t) (1-γ)/√γ s(√γ v, t),      log p_1(u) = log N(u_T | 0, I) + dim/2 log γ_T/γ_1 - ∫ λ'(t) (1-γ) tr ∂s/∂u dt,

from the lowest level up to the noisiest, where nothing but N(0, I) is left ("Score-based generative modeling through
stochastic differential equations", Song et al., 2021). By the Runge–Kutta method of fourth order; with half the steps the
result differs by about 15 times its error.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.types import Array, Float, Scalar, Theta

STEPS_OF_FLOW = 64
"""Of the probability flow, at most; each goes over two levels or more."""
SETS_TOGETHER = 64
"""Sets at a time."""


class Single(NamedTuple):
    """log p(u | X_j) at the lowest level."""

    value: Float[np.ndarray, " sets"]
    error: Float[np.ndarray, " sets"]
    """Of the integration, by half the steps."""


def single_log_densities(ensemble: ScoreEnsemble, x: np.ndarray, grid: Level, u: np.ndarray) -> Single:
    """log p(u | x_j) of single observations x (n, features) at one u (dim,), for all levels in rising t."""
    padded = np.zeros((-(-len(x) // SETS_TOGETHER) * SETS_TOGETHER, ensemble.network.shape.largest_set, x.shape[1]))
    padded[: len(x), 0] = x
    sets, at = jnp.asarray(padded, jnp.float32), jnp.asarray(u, jnp.float32)
    T = len(grid.t)
    slopes = np.gradient(np.log(np.asarray(grid.noise, np.float64) / np.asarray(grid.gamma, np.float64)) / 2)
    stride = max(1, (T - 1) // (2 * STEPS_OF_FLOW))
    last = (T - 1) // (4 * stride) * 4 * stride  # so that half the steps go as far
    found = []
    for every in (stride, 2 * stride):
        index = np.arange(0, last + 1, every)
        some = jax.tree.map(lambda v, index=index: v[index], grid)
        found.append(np.asarray(_along(ensemble, sets, some, jnp.asarray(slopes[index] * every, jnp.float32), at), np.float64))
    fine, coarse = (one[: len(x)] for one in found)
    return Single(fine, np.abs(fine - coarse) / 15)


@eqx.filter_jit
def _along(
    ensemble: ScoreEnsemble, x: Float[Array, "sets set x"], grid: Level, slope: Float[Array, " levels"], u: Theta
) -> Float[Array, " sets"]:
    """For every set, with steps from each even level to the next."""
    triples = [jax.tree.map(lambda v, i=i: v[i : len(v) - 2 + i : 2], (grid, slope)) for i in range(3)]

    def one(x: Float[Array, "set x"]) -> Scalar:
        sets = ensemble.embed(x[None], jnp.ones(1, int), jnp.ones((), int))

        def score(u: Theta, level: Level) -> Theta:
            return sets.chunk(sets.prepare(u[None], level), level, jnp.zeros(1, int))[0, 0]

        def flow(v: Theta, at: tuple[Level, Scalar]) -> tuple[Theta, Scalar]:
            level, rise = at
            u = jnp.sqrt(level.gamma) * v
            s, push = jax.linearize(lambda u: score(u, level), u)
            trace = jnp.trace(jax.vmap(push)(jnp.eye(len(u))))
            return -rise * level.noise / jnp.sqrt(level.gamma) * s, -rise * level.noise * trace

        def step(state: tuple[Theta, Scalar], at: list) -> tuple[tuple[Theta, Scalar], None]:
            (v, total), (here, middle, there) = state, at  # of two levels, and the slope is for one
            k1, d1 = flow(v, here)
            k2, d2 = flow(v + k1, middle)
            k3, d3 = flow(v + k2, middle)
            k4, d4 = flow(v + 2 * k3, there)
            return (v + (k1 + 2 * k2 + 2 * k3 + k4) / 3, total + (d1 + 2 * d2 + 2 * d3 + d4) / 3), None

        (v, total), _ = jax.lax.scan(step, (u / jnp.sqrt(grid.gamma[0]), jnp.zeros(())), triples)
        ended = jnp.sqrt(grid.gamma[-1]) * v
        log_normal = -jnp.sum(ended**2) / 2 - len(u) / 2 * jnp.log(2 * jnp.pi)
        return log_normal + len(u) / 2 * (jnp.log(grid.gamma[-1]) - jnp.log(grid.gamma[0])) + total

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, x, batch_size=SETS_TOGETHER)
