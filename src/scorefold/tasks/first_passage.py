"""When and where a diffusion between two boundaries first meets one.

x(0) = a w, dx = v dt + dB, absorbed at 0 (lower) and at a (upper). In units of a², τ = t/a² and μ = |v| a, the time of
those that end below has, whatever the sign of v, the density

    e^{-μ²τ/2} f(τ|w) / Z,   Z = sinh(μ(1-w)) / sinh μ,

and P(lower) = e^{-v a w} Z. Above, v and w become -v and 1-w. Without drift there are two series,

    f(τ|w) = (2πτ³)^{-1/2} Σ_k (w+2k) e^{-(w+2k)²/2τ}   (images; quick for small τ)
           = π Σ_{k≥1} k sin(kπw) e^{-k²π²τ/2}             (modes; quick for large τ).

With the first up to τ = ½ and the second beyond, |k| ≤ 3 and k ≤ 4 leave less than 10⁻¹¹ of f, for w up to 0.9. The
leading term is taken out of each as a logarithm, so that log f holds for any τ > 0. Integrated term by term with
e^{-μ²τ/2} they are

    P(T ≤ τ) Z = Σ_k sgn(w+2k) [e^{-bμ} Φ((μτ-b)/√τ) + e^{bμ} Φ(-(μτ+b)/√τ)],   b = |w+2k|,
    P(T > τ) Z = Σ_{k≥1} 2πk sin(kπw) e^{-(μ²+k²π²)τ/2} / (μ²+k²π²),

which a draw inverts.

References: "Fast and accurate calculations for first-passage times in Wiener diffusion models", Navarro and Fuss, 2009;
"The theory of stochastic processes", Cox and Miller, 1965, for the series.
"""

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.types import Array, Count, Key, Scalar

SWITCH = 0.5
"""The τ between the series."""
LATEST = 8.0
"""τ beyond which e^{-π²τ/2} is below 10⁻¹⁷."""
IMAGES = np.arange(-3, 4)
MODES = np.arange(1, 5)
HALVINGS = 40
"""Of the interval that holds τ; single precision has no more to tell after 26 or so."""
STILL = 1e-2
"""μ below which sinh(μ(1-w)) / sinh μ is its expansion in μ², to 10⁻¹⁰."""


def log_density(t: Scalar, v: Scalar, a: Scalar, w: Scalar) -> Scalar:
    """log of the density of being first at the lower boundary at time t, whose integral over t is P(lower); -∞ for t ≤ 0."""
    tau = jnp.where(t > 0, t, 1.0) / a**2
    value = -v * a * w - (v * a) ** 2 * tau / 2 + log_driftless(tau, w) - 2 * jnp.log(a)
    return jnp.where(t > 0, value, -jnp.inf)


def log_driftless(tau: Scalar, w: Scalar) -> Scalar:
    """log f(τ|w), the density of the first passage without drift, by whichever series is quick at τ."""
    early = tau < SWITCH
    return jnp.where(early, _log_images(jnp.where(early, tau, SWITCH), w), _log_modes(jnp.where(early, SWITCH, tau), w))


def _log_images(tau: Scalar, w: Scalar) -> Scalar:
    # (w+2k)² - w² = 4k(k+w): the leading term, k = 0, is taken out.
    k = jnp.asarray(IMAGES, tau.dtype)
    total = jnp.sum((w + 2 * k) * jnp.exp(-2 * k * (k + w) / tau))
    return jnp.log(total) - w**2 / (2 * tau) - 1.5 * jnp.log(tau) - np.log(2 * np.pi) / 2


def _log_modes(tau: Scalar, w: Scalar) -> Scalar:
    k = jnp.asarray(MODES, tau.dtype)
    total = jnp.sum(k * jnp.sin(k * np.pi * w) * jnp.exp(-(k**2 - 1) * np.pi**2 * tau / 2))
    return jnp.log(total) - np.pi**2 * tau / 2 + np.log(np.pi)


def mass_below(mu: Scalar, w: Scalar) -> Scalar:
    """Z, the mass of the first passage at the lower boundary, for μ = |v| a and a start at the share w."""
    moving = jnp.where(mu > STILL, mu, 1.0)
    # sinh(μ(1-w)) / sinh μ with e^μ taken out of both.
    ratio = jnp.exp(-moving * w) * jnp.expm1(-2 * moving * (1 - w)) / jnp.expm1(-2 * moving)
    return jnp.where(mu > STILL, ratio, (1 - w) * (1 - mu**2 * w * (2 - w) / 6))


def draw(key: Key, v: Scalar, a: Scalar, w: Scalar) -> tuple[Scalar, Array]:
    """Draw a first-passage time for drift v, boundary a and start w, and whether it was at the upper boundary."""
    key_side, key_time = jax.random.split(key)
    above = jax.random.uniform(key_side) >= jnp.exp(-v * a * w) * mass_below(jnp.abs(v) * a, w)
    part = jax.random.uniform(key_time, minval=jnp.finfo(jnp.float32).tiny)
    return a**2 * _time_at(part, jnp.abs(v) * a, jnp.where(above, 1 - w, w)), above


def _time_at(part: Scalar, mu: Scalar, w: Scalar) -> Scalar:
    """The τ with P(T ≤ τ | lower) = part."""
    whole = mass_below(mu, w)
    early = part * whole < _sooner(jnp.full_like(mu, SWITCH), mu, w)

    def halve(_: Count, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        too_low = jnp.where(early, _sooner(middle, mu, w) < part * whole, _later(middle, mu, w) > (1 - part) * whole)
        return jnp.where(too_low, middle, low), jnp.where(too_low, high, middle)

    start = jnp.where(early, 0.0, SWITCH), jnp.where(early, SWITCH, LATEST)
    low, high = jax.lax.fori_loop(0, HALVINGS, halve, start)
    return (low + high) / 2


def _sooner(tau: Scalar, mu: Scalar, w: Scalar) -> Scalar:
    """P(T ≤ τ) Z, for τ ≤ ½."""
    image, root = w + 2 * jnp.asarray(IMAGES, tau.dtype), jnp.sqrt(tau)
    b = jnp.abs(image)
    towards = jnp.exp(jax.scipy.special.log_ndtr((mu * tau - b) / root) - b * mu)
    away = jnp.exp(jax.scipy.special.log_ndtr(-(mu * tau + b) / root) + b * mu)
    return jnp.sum(jnp.sign(image) * (towards + away))


def _later(tau: Scalar, mu: Scalar, w: Scalar) -> Scalar:
    """P(T > τ) Z, for τ ≥ ½."""
    k = jnp.asarray(MODES, tau.dtype)
    rate = mu**2 + k**2 * np.pi**2
    return jnp.sum(2 * np.pi * k * jnp.sin(k * np.pi * w) * jnp.exp(-rate * tau / 2) / rate)
