"""Two-species dynamics y' = f(y, θ), solved in the logarithms of the species, that one can differentiate.

The error per step is held below `tolerance` in the logarithms themselves, so that a species that has all but
died out keeps its digits. Steps end at the times that are observed, so that nothing is interpolated. Solvers:
Tsit5 ("Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption", Tsitouras,
2011) in single precision and the pair of order 8 of Dormand and Prince (1981) in double.

With J = ∂y/∂θ solved along with y, the solution's differential is J dθ: linear, so that both forward and
reverse mode follow from it at the cost of one solve. A solve that needs more than `MAX_STEPS` steps gives NaN.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from scorefold.types import Array, Callable, Float, Scalar, Theta

MAX_STEPS = 4_000
SINGLE, DOUBLE = 1e-6, 1e-8
"""Tolerances of the simulators and of the references."""

Pair = tuple[Scalar, Scalar]
Field = Callable[[Any, Pair, Theta], Pair]
"""(t, logarithms of the species, θ) to their rates of change."""
Solution = Float[Array, "2 times"]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def solve(field: Field, start: tuple[float, float], times: tuple[float, ...], theta: Theta) -> Solution:
    """The logarithms of both species (2, times) at the times, from `start` and along `field`; the tolerance goes with the
    precision of θ.
    """
    return _solve(field, start, times, theta)


@solve.defjvp
def _differential(field: Any, start: Any, times: Any, primals: Any, tangents: Any) -> tuple[Solution, Solution]:
    (theta,), (change,) = primals, tangents
    y, jacobian = _with_jacobian(partial(_solve, field, start, times), theta)
    return y, jacobian @ change


def _with_jacobian(function: Callable[[Theta], Solution], theta: Theta) -> tuple[Solution, Float[Array, "2 times dim"]]:
    def along(direction: Theta) -> tuple[Solution, Solution]:
        return jax.jvp(function, (theta,), (direction,))

    return jax.vmap(along, out_axes=(None, -1))(jnp.eye(len(theta), dtype=theta.dtype))


def _solve(field: Field, start: tuple[float, float], times: tuple[float, ...], theta: Theta) -> Solution:
    import diffrax  # takes a second, and most tasks do without it

    double = theta.dtype == jnp.float64
    ts = jnp.asarray(times, theta.dtype)
    steps = diffrax.PIDController(rtol=0.0, atol=DOUBLE if double else SINGLE, dtmax=(times[-1] - times[0]) / 10)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri8() if double else diffrax.Tsit5(),
        ts[0],
        ts[-1],
        None,
        tuple(jnp.asarray(y, theta.dtype) for y in start),
        theta,
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=diffrax.ClipStepSizeController(steps, step_ts=ts),
        adjoint=diffrax.ForwardMode(),
        max_steps=MAX_STEPS,
        throw=False,
    )
    done = solution.result == diffrax.RESULTS.successful
    return jnp.where(done, jnp.stack(solution.ys), jnp.nan)
