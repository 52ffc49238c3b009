"""What training cannot mend is refused; what it can work around is said.

Refused: simulations whose arrays do not belong together or hold NaN, fewer than 50 cases (a fifth of them is held out), and
observations beyond 1e37, where differences overflow in single precision. Said: numbers that are the same in every simulation,
which are left out, and simulations of which more than 5% failed. The posterior is then p(θ) ∏_j p(x_j, ok | θ): that a
simulation did not fail is part of every observation, and tells of θ wherever failing depends on θ (`simulations.py`).

NLE and NRE learn p(x | θ, ok), and leave that part out. They say so where failing depends on θ: where the parameters of what
succeeded no longer have the mean and the variance of the prior, 0 and 1 in the N(0, I) space, by more than chance explains.
"""

import math
import warnings

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.simulation import columns
from scorefold.simulation.outcome import LARGEST_X
from scorefold.simulation.pieces import pieces
from scorefold.simulation.simulations import FEWEST_CASES, Simulations

MOST_FAILED = 0.05
BEYOND_CHANCE = 4.0
"""Standard errors."""


def check(sims: Simulations) -> None:
    """Refuse simulations that cannot be trained on: arrays of other types or shapes than they should have, numbers that are not
    finite, or too few cases.

    Raises:
        ScorefoldError: With what is wrong, and what to do about it.
    """
    if not isinstance(sims.prior, Prior):
        raise ScorefoldError(f"expected the prior of the simulations; got {type(sims.prior).__name__}")
    for name, least in (("set_size", 1), ("budget", 1), ("failed", 0), ("seed", 0)):
        settings.count(f"{name} of the simulations", getattr(sims, name), least)
    theta, x, sizes, origin = sims.theta, sims.x, sims.sizes, sims.origin
    if not all(isinstance(part, np.ndarray) for part in (theta, x, sizes, origin)):
        kinds = ", ".join(type(part).__name__ for part in (theta, x, sizes, origin))
        raise ScorefoldError(f"expected θ, x, sizes and origin as NumPy arrays; got {kinds}. Use what sf.simulate returns.")
    columns.checked_names(list(sims.x_names) if isinstance(sims.x_names, tuple) else sims.x_names, x.shape[2:])
    count = len(sims.input_names)
    if count and (not isinstance(sims.input_names, tuple) or tuple(sims.x_names[-count:]) != sims.input_names):
        raise ScorefoldError("expected the names of inputs as the last of x_names. Use what sf.simulate returns.")
    cases = len(theta) if theta.ndim else 0
    agree = (
        theta.shape == (cases, sims.prior.dim)
        and x.shape[:2] == (cases, sims.set_size)
        and sizes.shape == (cases,)
        and origin.shape == (cases,)
        and (sims.calls is None or np.shape(sims.calls) == (cases,))
    )
    if not agree:
        raise ScorefoldError(
            f"expected θ ({cases}, {sims.prior.dim}), x ({cases}, {sims.set_size}, …) and a size and an origin for each; got "
            f"{theta.shape}, {x.shape}, {sizes.shape} and {origin.shape}. Use what sf.simulate returns."
        )
    if cases < FEWEST_CASES:
        raise ScorefoldError(
            f"expected at least {FEWEST_CASES} training cases, of which a fifth is held out; got {cases}. Simulate more, or "
            "with a smaller set_size."
        )
    if not all(part.dtype.kind in kinds for part, kinds in ((theta, "fiu"), (x, "fiu"), (sizes, "iu"))) or x.size == 0:
        raise ScorefoldError("expected θ and x as numbers, at least one to an observation. Use what sf.simulate returns.")
    if not np.isfinite(theta).all() or not all(_right(x[part], sims.missing) for part in pieces(x)):
        raise ScorefoldError(
            f"expected finite θ and x, and x within ±{LARGEST_X:.0e}; got others. sf.simulate leaves failed simulations out; "
            "rescale very large numbers in the simulator, for instance by taking logarithms."
        )
    if sizes.min() < 1 or sizes.max() > sims.set_size:
        raise ScorefoldError(f"expected 1 to {sims.set_size} observations in a case; got {sizes.min()} to {sizes.max()}")


def _right(x: np.ndarray, missing: bool) -> bool:
    """Numbers that can be trained on, or holes where there may be some."""
    return bool(((np.abs(x) <= LARGEST_X) | (np.isnan(x) & missing)).all())


def say(sims: Simulations) -> None:
    """Warn of what is odd about simulations, and may spoil what is learned from them; nothing is changed.

    Args:
        sims: Simulations that `check` has let pass.
    """
    if sims.failed > MOST_FAILED * sims.budget:
        warnings.warn(
            f"{sims.failed:,} of {sims.budget:,} simulations failed and were left out, {sims.failed / sims.budget:.0%}. The "
            "posterior counts every observation as one that did not fail: where failing depends on θ, it favours θ that fail "
            "less. If failing is not part of the model, mend the simulator, or narrow the prior to where it works.",
            ScorefoldWarning,
            stacklevel=4,
        )
    first, constant = sims.x[0, 0].reshape(-1), np.ones(math.prod(sims.shape), bool)
    for part in pieces(sims.x):
        seen = sims.x[part][np.arange(sims.set_size) < sims.sizes[part, None]].reshape(sims.sizes[part].sum(), -1)
        constant &= (seen == first).all(axis=0)
    if constant.any():
        warnings.warn(
            f"{constant.sum():,} of the {len(constant):,} numbers of an observation are the same in every simulation (first: "
            f"number {constant.argmax()}, always {first[constant.argmax()]:.6g}). They say nothing about θ and are left out.",
            ScorefoldWarning,
            stacklevel=4,
        )


def fails_by_theta(sims: Simulations) -> bool:
    """Whether it depends on θ how often the simulator fails: where some failed, θ of the cases are no longer draws from the
    prior, and their means and variances tell.
    """
    if not sims.failed:
        return False
    u = sims.prior.to_normal(sims.theta[np.unique(sims.origin, return_index=True)[1]])
    off = np.concatenate([u.mean(axis=0), ((u**2).mean(axis=0) - 1) / np.sqrt(2)])
    return bool(np.abs(off).max() * np.sqrt(len(u)) > BEYOND_CHANCE)


def say_likelihood_alone(sims: Simulations, method: str) -> None:
    """A ScorefoldWarning where a likelihood of observations alone is not the whole."""
    if fails_by_theta(sims):
        warnings.warn(
            f"failing depends on θ, and {method} learns the likelihood of observations given that simulations do not fail. "
            "That they did not fail tells of θ too, and is left out: other methods count it in. Use method='f-npse' or 'npe', "
            "or mend the simulator.",
            ScorefoldWarning,
            stacklevel=6,
        )
