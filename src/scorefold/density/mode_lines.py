"""A straight line with Gaussian noise for every mode of a posterior, where one line through all of them would be wrong.

Mode k has a centre m_k and a root A_k of the covariance of the draws around it. Parameters u belong to the mode under whose
Gaussian they have the highest density, the smallest |A_k⁻¹ (u - m_k)|² / 2 + log |A_k|, and are known as v = (e_k, w), with

    e_k = (0 … 1 … 0)   and   w = A_k⁻¹ (u - m_k),

so that whatever is learned has both the mode and the place within it. The line is that of the mode, x ≈ B_k w + b_k + e,
with noise of its own (`line.py`). For every u that is one density of x, and the modes' weights follow from it. Where modes
touch it may jump; that is where hardly any draws are.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density import line
from scorefold.density.line import Line, fit_line
from scorefold.types import Array, Float, Observation, Scalar, Theta

MOST_MODES = 16
LEAST_RIDGE = 1e-9
"""Of the mean variance, added to every one."""


class ModePlaces(eqx.Module):
    """Where the modes are."""

    centre: Float[Array, "modes dim"]
    whiten: Float[Array, "modes dim dim"]
    """A_k⁻¹, lower triangular."""

    def __call__(self, u: Theta) -> Float[Array, " v"]:
        """v."""
        w = jnp.einsum("kij,kj->ki", self.whiten, u - self.centre)
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.whiten, axis1=1, axis2=2)), axis=1)
        own = jnp.argmin(jnp.sum(w**2, axis=1) / 2 - log_det)
        return jnp.concatenate([jnp.arange(len(w)) == own, w[own]])

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        right = jnp.all(jnp.diagonal(self.whiten, axis1=1, axis2=2) > 0)
        return "" if bool(right) else "a mode should have widths above 0"


class ModeLines(eqx.Module):
    """A line for every mode, given v and the inputs; what is left of an observation is white in each."""

    lines: Line
    """Their arrays have a leading axis of modes; every one is given w and the inputs."""

    @property
    def given(self) -> int:
        """Numbers that it is given."""
        modes, _, given = self.lines.slope.shape
        return modes + given

    def prepare(self, x: Observation) -> Observation:
        """What of an observation does not depend on u: itself."""
        return x

    def residual(self, x: Observation, v: Float[Array, " given"]) -> Observation:
        """As `Line.residual`, by the line of the mode."""
        own, at = self._of(v)
        return own.residual(x, at)

    def log_scales(self, x: Observation, v: Float[Array, " given"]) -> Observation:
        """What the noise adds to log |de/dx|, number by number: all of it, since modes differ in it."""
        own, at = self._of(v)
        return own.log_scales(x, at) + jnp.log(jnp.diag(own.whiten))

    def log_det(self, x: Observation) -> Scalar:
        """What all modes share of it: nothing."""
        return jnp.zeros(())

    def _of(self, v: Float[Array, " given"]) -> tuple[Line, Theta]:
        modes = len(self.lines.slope)
        own: Line = jax.tree.map(lambda part: part[jnp.argmax(v[:modes])], self.lines)
        return own, v[modes:]


def places_of(u: Float[np.ndarray, "draws dim"], labels: np.ndarray, modes: Sequence[int], wider: float) -> ModePlaces:
    """From draws and the number of the mode that each is in, these modes' places, with so many times the draws' covariance."""
    centres, whitens = [], []
    for mode in modes:
        own = u[labels == mode].astype(np.float64)
        covariance = wider * np.cov(own, rowvar=False).reshape(u.shape[1], u.shape[1])
        root = np.linalg.cholesky(covariance + LEAST_RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance)))
        centres.append(own.mean(axis=0))
        whitens.append(np.linalg.inv(root))
    return ModePlaces(jnp.asarray(np.stack(centres), jnp.float32), jnp.asarray(np.stack(whitens), jnp.float32))


def fit_mode_lines(x: np.ndarray, given: np.ndarray, modes: int, changing: bool) -> ModeLines:
    """From standardised observations (count, x), and v with the inputs (count, modes + dim + inputs)."""
    own = given[:, :modes].argmax(axis=1)
    lines = [fit_line(x[own == mode], given[own == mode, modes:], changing=changing) for mode in range(modes)]
    return ModeLines(jax.tree.map(lambda *parts: jnp.stack(parts), *lines))


def in_modes(v: np.ndarray, modes: int) -> np.ndarray:
    """(count, modes (dim + 1)) numbers that one straight line has to be given to be one for every mode: e_k and e_k w."""
    e, w = v[:, :modes], v[:, modes:]
    return np.concatenate([e, (e[:, :, None] * w[:, None]).reshape(len(v), -1)], axis=1)


def blank_places(modes: int, dim: int) -> ModePlaces:
    """Places of this number, their numbers still to be put in."""
    return ModePlaces(jnp.zeros((modes, dim)), jnp.zeros((modes, dim, dim)))


def blank(modes: int, features: int, given: int, changing: bool) -> ModeLines:
    """Lines of this number, their numbers still to be put in; each is given so many."""
    return ModeLines(jax.tree.map(lambda part: jnp.stack([part] * modes), line.blank(features, given, False, changing)))
