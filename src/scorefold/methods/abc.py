"""Approximate Bayesian computation by rejection: the simulated sets that look most like the observed one.

For n observations, every simulated set of n or more is cut to its first n, and both it and the observed set are summarised by
the mean and, for n > 1, the log sd of each standardised feature; with `summary="regression"` by the mean of u that a ridge
regression on those predicts ("Constructing summary statistics for approximate Bayesian computation", Fearnhead and Prangle,
2012). Summaries are scaled to unit sd. The nearest share of the simulations is kept, with Epanechnikov weights 1 - (d/ε)²,
and by default moved along a weighted regression line to the observed summary, in the N(0, I) space, so that no parameter
leaves its bounds ("Approximate Bayesian computation in population genetics", Beaumont, Zhang and Balding, 2002). Draws are
picked from what was kept, by weight, with replacement; under another prior weights are multiplied by its ratio to the first.

Sets smaller than n say less than n observations do: compared with them, the posterior would not only be too wide but, where
the mean of n observations is unlike any single one, wrong. So more observations than the simulated sets hold are refused;
`smc_abc` simulates sets of n itself. Only draws of the prior are needed, no density.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.method import Method
from scorefold.posterior.amortised import ratio_weights
from scorefold.posterior.asked import ratio_of, too_few
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.made import Made
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.saved import About
from scorefold.prior import Prior
from scorefold.prior.prior_ratio import PriorRatio
from scorefold.score.standardize import Standardize, blank, fit_standardize, standardized
from scorefold.simulation.simulations import Simulations, split
from scorefold.train.checkpoint import Checkpoint
from scorefold.types import Float, Int

SUMMARIES = ("moments", "regression")
FEWEST_KEPT = 50
"""Simulations kept at least, and half of it simulated sets that are large enough at least."""
COMPARED = 200
"""Simulated sets whose nearest neighbour shows what is near."""
FAR_OFF = 2.0
"""Times as far as the farthest of those: then nothing is like the observations."""
REGRESSION_RIDGE = 1e-6


class AbcInfo(NamedTuple):
    """What was kept."""

    simulations: int
    """Sets of n that there were to choose from."""
    accepted: int
    distance: float
    """ε: of the farthest one kept, in sd of each summary, averaged over summaries."""
    nearest: float
    """Of the nearest one."""
    effective: float
    """What the weights leave of the number accepted."""
    converged: bool
    """Something like the observations was simulated; how much the tolerance widens the posterior is not known."""
    diverged: bool


@settings.spelled
@dataclass(frozen=True)
class ABC(Method):
    """Rejection: the parameters whose simulations are most like the observations. Nothing is trained; a baseline.

    Take it as a check that shares nothing with the other methods, for a cheap simulator of two or three parameters. Simulate
    with `set_size` equal to the number of observations that you have: sets are compared as a whole, and more observations than
    a simulated set holds are refused. `sf.smc_abc` calls the simulator itself.

    Args:
        accept: The share of the simulations to keep, but 50 at least. Default 0.01.
        summary: What of a set is compared: its "moments" (mean and sd of each number), or the parameters that a "regression"
            predicts from them. Default "moments".
        adjust: Whether what was kept is moved along a regression line to the observations. Default True.

    Raises:
        ScorefoldError: A setting is of another type or out of range.

    Example:
        >>> import scorefold as sf
        >>> sf.ABC(accept=0.001).summary
        'moments'
    """

    accept: float = 0.01
    """The share of the simulations to keep, but 50 at least."""
    summary: str = "moments"
    """Or "regression"."""
    adjust: bool = True
    """Move what was kept along a regression line."""

    def __post_init__(self) -> None:
        settings.check(self)
        if not 0 < self.accept <= 1 or self.summary not in SUMMARIES:
            raise ScorefoldError(f"expected 0 < accept ≤ 1 and summary {' or '.join(SUMMARIES)}; got {self}")

    def bytes_kept(self, sims: Simulations) -> int:
        """All of them: it compares observations with each."""
        return len(sims.theta) * (8 * sims.prior.dim + 8) + 4 * sims.x.size

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> list["AbcPosterior"]:
        """Keep the simulations, standardised. There is nothing to train, so seeds, progress and checkpoint are not used."""
        return [self._train(one) for one in sims]

    def _train(self, sims: Simulations) -> "AbcPosterior":
        sims = split(sims, sims.set_size)
        x = sims.x.reshape(*sims.x.shape[:2], -1)
        standardize = fit_standardize(x[np.arange(x.shape[1]) < sims.sizes[:, None]])
        u = sims.prior.to_normal(sims.theta)
        return AbcPosterior(sims.prior, self, standardize, u, standardized(standardize, x), sims.sizes, sims.shape)


@dataclass(frozen=True, repr=False)
class AbcPosterior(Posterior):
    """The simulations, standardised."""

    prior: Prior
    method: Any
    standardize: Standardize
    u: Float[np.ndarray, "cases dim"]
    x: Float[np.ndarray, "cases set x"]
    sizes: Int[np.ndarray, " cases"]
    shape: tuple[int, ...]
    history: None = None
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("prior",)
    kind: ClassVar[str] = "abc"
    networks: ClassVar[tuple[str, ...]] = ("standardize",)

    @classmethod
    def blank(cls, about: About) -> tuple[Standardize]:
        """The standardisation, for observations of this shape."""
        features = math.prod(about.shape)
        return (eqx.filter_eval_shape(lambda: blank(features)),)

    def fault(self) -> str:
        """Sets of other sizes than there are."""
        good = len(self.sizes) > 0 and self.sizes.min() >= 1 and self.sizes.max() <= self.x.shape[1]
        return "" if good else f"there should be sets, of 1 to {self.x.shape[1]} observations"

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Compare, keep, adjust, pick."""
        n, large = len(x), self.sizes >= len(x)
        if large.sum() < 2 * FEWEST_KEPT:
            raise ScorefoldError(
                f"expected at least {2 * FEWEST_KEPT} simulated sets of {n} observations or more; got {large.sum()}. Simulate "
                f"with a larger set_size or budget, use sf.smc_abc, which simulates sets of {n}, or method='f-npse'."
            )
        u, summaries = self.u[large], moments(self.x[large, :n])
        seen = moments(standardized(self.standardize, x.astype(np.float32))[None])
        if self.method.summary == "regression":
            summaries, seen = regressed(u, summaries, seen)
        scale = np.maximum(summaries.std(axis=0), 1e-9)
        summaries, seen = summaries / scale, seen[0] / scale
        distance = _distances(summaries, seen)
        count = max(FEWEST_KEPT, int(np.ceil(self.method.accept * len(u))))
        kept = np.argsort(distance, kind="stable")[: min(count, len(u))]
        rng = np.random.default_rng(seed)
        weights = epanechnikov(distance[kept])
        moved = adjusted(u[kept], summaries[kept], seen, weights) if self.method.adjust else u[kept]
        if options.prior is not None:
            weights = under(moved, weights, ratio_of(self.prior, options.prior))
        info = AbcInfo(
            len(u), len(kept), float(distance[kept[-1]]), float(distance[kept[0]]), float(1 / np.sum(weights**2)),
            converged=bool(distance[kept[0]] <= FAR_OFF * _usual(summaries, rng)), diverged=False,
        )  # fmt: skip
        if not info.converged:
            warnings.warn(
                f"no simulation is like the observations: the nearest is {info.nearest:.2g} sd away, more than twice as far as "
                f"any of {COMPARED} simulated sets is from its own nearest. Widen the prior, or look at the units.",
                UntrustworthyDraws,
                stacklevel=4,
            )
        return Drawn(moved[rng.choice(len(kept), draws, p=weights)], info, f"the nearest {len(kept)} of {len(u)}")


def moments(x: np.ndarray) -> np.ndarray:
    """(sets, n, x) to (sets, summaries): the mean and, for n > 1, the log sd of every feature."""
    x = np.asarray(x, np.float64)
    if x.shape[1] == 1:
        return x[:, 0]
    return np.concatenate([x.mean(axis=1), np.log(x.std(axis=1) + 1e-3)], axis=1)


def regressed(u: np.ndarray, summaries: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of u that a ridge regression on the summaries predicts, for the simulations and for the observations."""
    centre, scale = summaries.mean(axis=0), np.maximum(summaries.std(axis=0), 1e-9)
    z = (summaries - centre) / scale
    slope = np.linalg.solve(z.T @ z + (1e-3 * len(z) + 1e-9) * np.eye(z.shape[1]), z.T @ (u - u.mean(axis=0)))
    return z @ slope, (seen - centre) / scale @ slope


def adjusted(u: np.ndarray, summaries: np.ndarray, seen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """u - (s - s_obs) β, with β by weighted least squares and a small ridge."""
    root = np.sqrt(weights)[:, None]
    offset = summaries - seen
    design = np.concatenate([np.ones((len(u), 1)), offset], axis=1) * root
    ridge = REGRESSION_RIDGE * np.trace(design.T @ design) * np.eye(design.shape[1])
    if len(u) <= 2 * design.shape[1]:  # too few to fit a line
        return u
    slope = np.linalg.solve(design.T @ design + ridge, design.T @ (u * root))[1:]
    return u - offset @ slope


def epanechnikov(distance: np.ndarray) -> np.ndarray:
    """Weights that fall to zero at the farthest distance, and sum to one; equal where all are as far."""
    ratio = distance / max(distance.max(), 1e-300)
    weights = np.maximum(1 - ratio**2, 0.0)
    return weights / weights.sum() if weights.sum() > 0 else np.full(len(distance), 1 / len(distance))


def under(u: np.ndarray, weights: np.ndarray, ratio: PriorRatio) -> np.ndarray:
    """Weights of what was kept under another prior; a warning where these leave too little of it."""
    changed = weights * ratio_weights(u, ratio)
    if not changed.any():
        raise too_few(0, len(u))
    changed /= changed.sum()
    effective = 1 / np.sum(changed**2)
    if effective < FEWEST_KEPT / 2:
        warnings.warn(
            f"under the other prior the {len(u):,} simulations that were kept are worth {effective:,.0f}. Simulate more, or "
            "use method='nle' or 'f-npse', which draw under another prior directly.",
            UntrustworthyDraws,
            stacklevel=5,
        )
    return changed


def _distances(summaries: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean((summaries - seen) ** 2, axis=1))


def _usual(summaries: np.ndarray, rng: np.random.Generator) -> float:
    """The largest distance of some simulated sets to their nearest neighbour."""
    some = rng.choice(len(summaries), min(COMPARED, len(summaries)), replace=False)
    return float(max(np.partition(_distances(summaries, summaries[i]), 1)[1] for i in some))
