"""Figures of draws and posteriors, as matplotlib figures: `sf.plots`.

    sf.plots.save(sf.plots.pairs(draws, truth=theta), "pairs.png")

`pairs` shows the draws with a reference and the truth, `sequence` the posterior as observations are added, `predictive`
simulations from the posterior against the observations, `training` the loss, `sampler` the health of the sampler's run, and
`rounds` how a refined posterior was found.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scorefold import settings
from scorefold.diagnostics.observed_dataset import posterior_predictive
from scorefold.errors import ScorefoldError, ScorefoldWarning, closest
from scorefold.methods.refine.around_draws import spread
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.round import Round
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.prior import Prior
from scorefold.report import diagnosis_figures, health_figures
from scorefold.report.canvas import finite_array, save
from scorefold.report.corner import corner
from scorefold.report.rounds_figure import Step
from scorefold.report.rounds_figure import rounds as rounds_figure
from scorefold.report.sequence_figure import sequence as sequence_figure
from scorefold.simulation.workers import Workers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["pairs", "predictive", "rounds", "sampler", "save", "sequence", "training"]

SHOWN_PRIOR_DRAWS = 4_000
MOST_PAIRED = 12
"""Parameters in a pair plot, unless they are chosen."""
MOST_FOLLOWED, SHOWN_OF_REGION = 4, 300
"""Parameters in a figure of rounds, unless they are chosen, and parameters drawn from each region."""


def __dir__() -> list[str]:
    return __all__


def pairs(
    draws: Draws,
    reference: Any = None,
    truth: Any = None,
    prior: bool = False,
    title: str = "",
    parameters: Sequence[str] | None = None,
) -> "Figure":
    """Show the marginals of the draws on the diagonal, and every pair of parameters below it.

    Args:
        draws: what `posterior.sample` returned; shown filled, with regions of 90 % and 50 %.
        reference: other draws to compare with, in ink: `Draws`, or an array (draws, dim).
        truth: the true parameters (dim,), in orange.
        prior: whether to add the prior to each marginal.
        title: above the figure.
        parameters: the names of those to show, in this order. By default all, but of more than twelve the first twelve, which
            a ScorefoldWarning says.

    Returns:
        A matplotlib figure.

    Raises:
        ScorefoldError: where the draws are not `Draws`, the others do not have their shape, or a parameter is not there.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=2)
        >>> posterior = sf.fit(sf.simulate(prior, simulator, budget=2_000, set_size=5), "abc")
        >>> figure = sf.plots.pairs(posterior.sample([[0.5, 0.7]]), truth=[0.4, 0.9], prior=True)
    """
    chosen = _chosen(_drawn(draws).names, parameters)
    clouds = {"reference": _cloud(reference), "prior": _prior(draws) if prior else None}
    dim = len(draws.names)
    some = {
        name: None if cloud is None else finite_array(name, cloud, (None, dim))[:, chosen] for name, cloud in clouds.items()
    }
    true = None if truth is None else finite_array("truth", truth, (dim,))[chosen]
    names = [draws.names[k] for k in chosen]
    return corner(draws.theta[:, chosen], names, some["reference"], true, title, some["prior"])


def _chosen(names: tuple[str, ...], parameters: Sequence[str] | None) -> list[int]:
    """Which parameters to show."""
    if parameters is not None:
        for name in settings.names("parameter", parameters):
            if name not in names:
                raise ScorefoldError(f"expected the names of parameters; got {name!r:.60}. {closest(name, list(names))}")
        return [names.index(name) for name in parameters]
    if len(names) > MOST_PAIRED:
        warnings.warn(
            f"the figure shows the first {MOST_PAIRED} of {len(names):,} parameters. Choose others by name, with "
            "parameters=[…].",
            ScorefoldWarning,
            stacklevel=3,
        )
    return list(range(min(len(names), MOST_PAIRED)))


def sequence(
    many: Sequence[Draws], truth: Any = None, references: Sequence[Any] = (), prior: bool = False, title: str = ""
) -> "Figure":
    """Show how the posterior narrows as observations are added: the marginals of each parameter, light to dark.

    Args:
        many: draws given more and more observations, the fewest first.
        truth: the true parameters (dim,), in orange.
        references: draws to compare with, one for each of `many`, or none; dotted.
        prior: whether to add the prior, dashed.
        title: above the figure.

    Returns:
        A matplotlib figure, with the first twelve parameters.

    Raises:
        ScorefoldError: where there are no draws, or not a reference for each of them.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=2)
        >>> posterior = sf.fit(sf.simulate(prior, simulator, budget=2_000, set_size=5), "abc")
        >>> x_obs = [[0.5, 0.7], [0.9, -0.3], [0.1, 1.2]]
        >>> figure = sf.plots.sequence([posterior.sample(x_obs[:n]) for n in (1, 3)])
    """
    if not many:
        raise ScorefoldError("expected draws for at least one number of observations; got none")
    if len(references) not in (0, len(many)):
        raise ScorefoldError(f"expected a reference for each of {len(many)} draws, or none; got {len(references)}")
    clouds, counts = [_drawn(draws).theta for draws in many], [draws.n for draws in many]
    true = None if truth is None else np.asarray(truth, float)
    shown, exact = _prior(many[0]) if prior else None, [_cloud(one) for one in references]
    return sequence_figure(clouds, counts, many[0].names, title, true, shown, exact)


def training(posterior: Posterior, title: str = "") -> "Figure":
    """Show the loss in training and validation against epochs, for every network, and which weights were kept.

    Args:
        posterior: what `sf.fit` returned.
        title: above the figure.

    Returns:
        A matplotlib figure.

    Raises:
        ScorefoldError: where nothing was trained, as with ABC.

    `docs/gallery.md` has an example that the site runs.
    """
    history = getattr(posterior, "history", None)
    if history is None:
        raise ScorefoldError(
            f"expected a posterior with a history of training; got {type(posterior).__name__}. ABC has no training."
        )
    return health_figures.training_curve(history.train, history.validation, history.kept, history.epochs_a_round, title)


def sampler(draws: Draws, title: str = "") -> "Figure":
    """Show the health of the sampler's run: its step size and what its draws should obey at each noise level.

    Stein's identity is 1 and the drift 0 where the draws follow the score; the bands are what is allowed at the last level. The
    information identity q is 1 for a single Gaussian mode, and larger for several.

    Args:
        draws: what `posterior.sample` returned, for a method of composed scores (f-npse, pf-npse, npse).
        title: above the figure.

    Returns:
        A matplotlib figure.

    Raises:
        ScorefoldError: where the draws did not go through noise levels.

    `docs/gallery.md` has an example that the site runs.
    """
    info = _drawn(draws).info
    levels = {name: getattr(info, name, None) for name in ("gamma", "step", "q", "stein", "drift")}
    if any(level is None for level in levels.values()):
        raise ScorefoldError(
            f"expected draws of composed scores (f-npse, pf-npse, npse), which go through levels; got {type(info).__name__}: "
            "draws.info says how these went."
        )
    return health_figures.sampler_health(**{name: np.asarray(level) for name, level in levels.items()}, title=title)


def rounds(posterior: Posterior, parameters: Sequence[str] | None = None, truth: Any = None, title: str = "") -> "Figure":
    """Show how refinement found a posterior: where each round simulated, and where its draws came out.

    Where regions shrink, the whole way is above and the last round's scale below. It ends well if draws lie well within their
    region and stay where they are from one round to the next. Below each round is what it learned: a line, scores or a
    likelihood.

    Args:
        posterior: what `posterior.refine` returned.
        parameters: the names of those to show, in this order. By default the first four.
        truth: the true parameters (dim,), in orange, where they are known.
        title: above the figure.

    Returns:
        A matplotlib figure.

    Raises:
        ScorefoldError: where it is no refined posterior, comes from a version that kept no draws of rounds, or a parameter is
            not there.

    `docs/gallery.md` has an example that the site runs.
    """
    if not isinstance(posterior, RefinedPosterior):
        raise ScorefoldError(f"expected what posterior.refine returns; got {type(posterior).__name__}")
    prior = posterior.prior
    chosen = _chosen(prior.names, parameters) if parameters is not None else list(range(min(prior.dim, MOST_FOLLOWED)))
    steps: list[Step] = []
    for number, one in enumerate(posterior.rounds, 1):
        if one.before is None or one.after is None:
            raise ScorefoldError("expected rounds with their draws; got a model of an older version. Refine again to see them.")
        steps = steps or [Step("start", None, prior.from_normal(one.before)[:, chosen])]
        steps.append(
            Step(f"{number}\n{one.engine}", _simulated(prior, one)[:, chosen], prior.from_normal(one.after)[:, chosen])
        )
    true = None if truth is None else finite_array("truth", truth, (prior.dim,))[chosen]
    return rounds_figure(steps, [prior.names[k] for k in chosen], title, true)


def _simulated(prior: Prior, one: Round) -> np.ndarray:
    """Parameters like those that a round simulated: of its region, or around the draws before."""
    if one.placed and one.before is not None:
        return prior.from_normal(spread(np.asarray(one.before, float), SHOWN_OF_REGION, 0))
    return prior.proposing(one.proposal).sample(SHOWN_OF_REGION, 0)


def predictive(
    draws: Draws,
    simulator: Callable[..., Any],
    seed: int | None = 0,
    title: str = "",
    workers: int | Workers | None = None,
) -> "Figure":
    """Show data sets simulated from some of the draws against the observed one, number by number.

    Where some of the numbers are binary or counts, and there are at most eight, each is drawn as what it is: bars of the shares
    of its values, histograms for continuous ones, and these by choice where one number is binary. Otherwise each statistic
    (mean, sd, quantiles) has a panel.

    Args:
        draws: what `posterior.sample` returned; they hold their observations.
        simulator: the simulator that the posterior was trained on.
        seed: of the simulations; None takes a fresh one, and says which.
        title: above the figure.
        workers: who runs the simulator, as in `sf.simulate`; by default this process.

    Returns:
        A matplotlib figure; orange marks are where the observed data set is out of 95 % of the simulated ones.

    Raises:
        ScorefoldError: where fewer than 20 of the simulated data sets are finite.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=2)
        >>> posterior = sf.fit(sf.simulate(prior, simulator, budget=2_000, set_size=5), "abc")
        >>> figure = sf.plots.predictive(posterior.sample([[0.5, 0.7], [0.9, -0.3], [0.1, 1.2]]), simulator)
    """
    found = posterior_predictive(_drawn(draws), simulator, settings.seed(seed), workers)
    return diagnosis_figures.of_predictive(found, title)


def _drawn(draws: Any) -> Draws:
    if not isinstance(draws, Draws):
        raise ScorefoldError(f"expected the draws that posterior.sample returns; got {type(draws).__name__}")
    return draws


def _cloud(reference: Any) -> Any:
    return reference.theta if isinstance(reference, Draws) else reference


def _prior(draws: Draws) -> np.ndarray:
    if draws.prior is None:
        raise ScorefoldError("expected draws that know their prior, as posterior.sample returns them")
    return draws.prior.sample(SHOWN_PRIOR_DRAWS, 0)
