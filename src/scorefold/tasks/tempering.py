"""Where chains may start: a cloud carried from the prior to the posterior.

In the N(0, I) space, with ℓ the log likelihood, the cloud passes through π_τ(u) ∝ N(u | 0, I) e^{τ ℓ(u)} from
τ = 0 to 1. Each rise of τ is as large as leaves the weights e^{Δτ ℓ} an effective size of half the cloud; then the
cloud is resampled, and every member makes a few Metropolis steps under π_τ whose proposals have the cloud's
own covariance. A mode keeps its weight, whatever its distance from the others.

Reference: "Sequential Monte Carlo samplers", Del Moral, Doucet and Jasra, 2006.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from scorefold.types import Array, Callable, Cloud, Count, Float, Key, Scalar, Theta

MEMBERS = 256
MOVES = 4
"""Metropolis steps at each τ."""
EFFECTIVE_SHARE = 0.5
"""The effective size of the weights, as a share of the cloud."""
BISECTIONS = 30


class State(NamedTuple):
    """The cloud at one τ, with the log likelihood of each member and the key for what follows."""

    tau: Scalar
    u: Cloud
    log_likelihood: Float[Array, " draws"]
    key: Key


def cloud(log_likelihood: Callable[[Theta], Scalar], dim: int, key: Key) -> Cloud:
    """Carry a cloud of u from the prior to about the posterior, by raising the likelihood's power τ from 0 to 1."""
    key_start, key = jax.random.split(key)
    evaluate = jax.vmap(lambda u: jnp.nan_to_num(log_likelihood(u), nan=-jnp.inf))
    u = jax.random.normal(key_start, (MEMBERS, dim))
    start = State(jnp.zeros(()), u, evaluate(u), key)

    def warmer(state: State) -> State:
        key, key_resample, key_move = jax.random.split(state.key, 3)
        rise = _rise(state)
        chosen = jax.random.categorical(key_resample, rise * _finite(state.log_likelihood), shape=(MEMBERS,))
        root = jnp.linalg.cholesky(jnp.cov(state.u[chosen].T).reshape(dim, dim) + 1e-12 * jnp.eye(dim))
        risen = State(state.tau + rise, state.u[chosen], state.log_likelihood[chosen], key)
        return jax.lax.fori_loop(0, MOVES, lambda i, s: _move(evaluate, s, root, jax.random.fold_in(key_move, i)), risen)

    return jax.lax.while_loop(lambda state: state.tau < 1, warmer, start).u


def _rise(state: State) -> Scalar:
    """The largest Δτ that the weights bear, by bisection; at most what is missing to 1."""
    ell = _finite(state.log_likelihood)

    def bears(rise: Scalar) -> Array:
        w = jax.nn.softmax(rise * ell)
        return 1 / jnp.sum(w**2) > EFFECTIVE_SHARE * MEMBERS

    def halve(_: Count, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        ok = bears(middle)
        return jnp.where(ok, middle, low), jnp.where(ok, high, middle)

    missing = 1 - state.tau
    low, _ = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(missing), missing))
    return jnp.where(bears(missing), missing, jnp.maximum(low, 1e-9))


def _move(evaluate: Callable[[Cloud], Array], state: State, root: Float[Array, "dim dim"], key: Key) -> State:
    """One Metropolis step of every member."""
    key_step, key_accept = jax.random.split(key)
    dim = root.shape[0]
    u = state.u + 2.38 / dim**0.5 * jax.random.normal(key_step, state.u.shape) @ root.T
    ell = evaluate(u)
    gain = state.tau * (_finite(ell) - _finite(state.log_likelihood)) - (u**2 - state.u**2).sum(1) / 2
    moves = jnp.log(jax.random.uniform(key_accept, gain.shape)) < gain
    return state._replace(u=jnp.where(moves[:, None], u, state.u), log_likelihood=jnp.where(moves, ell, state.log_likelihood))


def _finite(log_likelihood: Float[Array, " draws"]) -> Float[Array, " draws"]:
    """-∞ as a number so low that it never wins."""
    return jnp.maximum(log_likelihood, -1e30)
