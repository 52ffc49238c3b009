"""Figures of what the other verbs give back, as matplotlib figures.

    from scorefold import plots
    plots.save(plots.pairs(draws, truth=theta), "pairs.png")

A pair plot with reference and truth, the posterior as observations are added, the training curve, the sampler's health, and
simulations from the posterior against the observations.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scorefold.diagnostics.observed_dataset import posterior_predictive
from scorefold.errors import ScorefoldError
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.report import diagnosis_figures, health_figures
from scorefold.report.canvas import save
from scorefold.report.corner import corner
from scorefold.report.sequence_figure import sequence as sequence_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["pairs", "predictive", "sampler", "save", "sequence", "training"]

PRIOR_DRAWS = 4_000


def pairs(draws: Draws, reference: Any = None, truth: Any = None, prior: bool = False, title: str = "") -> "Figure":
    """Marginals and pairs of the draws; `reference` draws (Draws, or an array) in ink, `truth` and the `prior` as lines."""
    return corner(
        _drawn(draws).theta, draws.names, _cloud(reference), None if truth is None else np.asarray(truth, float), title,
        _prior(draws) if prior else None,
    )  # fmt: skip


def sequence(
    many: Sequence[Draws], truth: Any = None, references: Sequence[Any] = (), prior: bool = False, title: str = ""
) -> "Figure":
    """Marginals as observations are added: `many` are draws given more and more of them, `references` drawn dotted."""
    if not many:
        raise ScorefoldError("expected draws for at least one number of observations; got none")
    if len(references) not in (0, len(many)):
        raise ScorefoldError(f"expected a reference for each of {len(many)} draws, or none; got {len(references)}")
    clouds, counts = [_drawn(draws).theta for draws in many], [draws.n for draws in many]
    true = None if truth is None else np.asarray(truth, float)
    shown, exact = _prior(many[0]) if prior else None, [_cloud(one) for one in references]
    return sequence_figure(clouds, counts, many[0].names, title, true, shown, exact)


def training(posterior: Posterior, title: str = "") -> "Figure":
    """Loss against epoch of every member, and the weights that were kept."""
    history = getattr(posterior, "history", None)
    if history is None:
        raise ScorefoldError(
            f"expected a posterior with a history of training; got {type(posterior).__name__}. ABC has no training."
        )
    return health_figures.training_curve(history.train, history.validation, history.kept, history.epochs_a_round, title)


def sampler(draws: Draws, title: str = "") -> "Figure":
    """Step size and the two identities at each level, of draws from composed scores."""
    info = _drawn(draws).info
    levels = {name: getattr(info, name, None) for name in ("gamma", "step", "q", "stein")}
    if any(level is None for level in levels.values()):
        raise ScorefoldError(
            f"expected draws of composed scores (f-npse, pf-npse, npse), which go through levels; got {type(info).__name__}: "
            "draws.info says how these went."
        )
    return health_figures.sampler_health(**{name: np.asarray(level) for name, level in levels.items()}, title=title)


def predictive(draws: Draws, simulator: Callable[..., Any], seed: int = 0, title: str = "") -> "Figure":
    """Data sets simulated from some of the draws against the observed one, number by number."""
    found = posterior_predictive(_drawn(draws), simulator, seed)
    return diagnosis_figures.predictive(found.names, found.observed, found.replicated, found.p_values, title)


def _drawn(draws: Any) -> Draws:
    if not isinstance(draws, Draws):
        raise ScorefoldError(f"expected the draws that posterior.sample returns; got {type(draws).__name__}")
    return draws


def _cloud(reference: Any) -> Any:
    return reference.theta if isinstance(reference, Draws) else reference


def _prior(draws: Draws) -> np.ndarray:
    if draws.prior is None:
        raise ScorefoldError("expected draws that know their prior, as posterior.sample returns them")
    return draws.prior.sample(PRIOR_DRAWS, 0)
