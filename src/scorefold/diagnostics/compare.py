"""Which of several posteriors is best? The verb `compare`: the same simulated data sets for all of them, and a proper score.

S times θ* is drawn from the prior, n observations are simulated from it, and every posterior is drawn from given these. The
energy score (`energy_score.py`) of the draws against θ* says how good they are. It is taken in the space where the prior is
N(0, I), so that a parameter's units, or whether it or its logarithm was called the parameter, do not matter; and there each
parameter is divided by

    s_i(x) = the median, over the posteriors compared, of the sd of parameter i's draws given the data set x.

Without it, in units of the prior's sd, the parameter that the data say least about would decide alone, and so would the few
data sets that say little about any. The same s(x) holds for all posteriors and does not depend on θ*: given any x the score is
proper, and so is its mean. The verdict rests on the paired differences of these means, d_s = ES(P_s, θ*_s) - ES(best_s, θ*_s):
how hard a data set is cancels, and the mean of d has a standard error.

The mean log ratio of the scores is reported too, but no verdict rests on it: the logarithm of a proper score is not proper.
For a posterior N(0, 1), draws from N(0, ½²) have a mean log score of -0.85 and right ones -0.77; their mean scores are 0.61
and 0.56.

A difference counts where it is larger than t standard errors, t the quantile of Student's distribution at which any of the
K (K - 1) / 2 pairs would be called different in 5 % of comparisons of equal posteriors (Bonferroni's bound). The score sees a
wrong width only faintly, as its mean is flat at its lowest point: of those that cannot be told apart, the ones that
simulation-based calibration (`sbc.py`) finds nothing wrong with are taken first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from scorefold.diagnostics.comparison import Comparison, Estimate, Standing, Tie, words
from scorefold.diagnostics.dataset_summaries import predict, summaries
from scorefold.diagnostics.energy_score import energy_score
from scorefold.diagnostics.ranks import FEWEST_RANKED
from scorefold.diagnostics.sbc import SBC, sbc
from scorefold.diagnostics.trials import DataSets, Plan, checked_plan, drawn_as_far, sample_quietly, simulate_data_sets
from scorefold.errors import Interrupted, ScorefoldError
from scorefold.posterior.draws import ManyDraws
from scorefold.posterior.posterior import Posterior
from scorefold.progress import say
from scorefold.report.p_values import FALSE_ALARMS
from scorefold.shown import one_line
from scorefold.simulation.workers import Workers
from scorefold.types import Float

LEAST_SCALE = 1e-6
"""Of a parameter in the N(0, I) space: draws that are all equal."""
LEAST_DISTANCE = 0.01
"""Of the draws' distance from the truth, that a score counts as in a logarithm: an estimate can fall below 0."""
MOST_DIVERGED = 0.5
"""Share of the data sets; a posterior with more of them is not compared."""


def compare(
    posteriors: Sequence[Posterior],
    simulator: Callable[..., Any],
    n: int = 30,
    sims: int = 100,
    draws: int = 200,
    seed: int | None = 0,
    *,
    names: Sequence[str] | None = None,
    workers: int | Workers | None = None,
    progress: bool = False,
) -> Comparison:
    """Find out which of several fitted posteriors is best given n observations, on fresh simulations of your own simulator.

    Take it when you do not know which method, rule or sampler to use: fit a few, and ask. Every posterior is drawn from given
    each of the simulated data sets, and scored against the true parameters by the energy score, in posterior sd, which no
    posterior can make lower on average than the right one does. Beside it there are calibration and time. Ask for the n that
    you are going to use. The cost is sims × n simulator calls, and no training.

    Args:
        posteriors: two or more that `sf.fit` returned, of the same prior and simulator; not refined ones, which are for one
            data set only. For another rule or sampler, pass `posterior.using(rule="gauss")`.
        simulator: the one that they were trained on.
        n: observations in every data set, by default 30.
        sims: data sets to simulate, 20 or more, by default 100. Four times as many halve the errors.
        draws: posterior draws given each data set, 20 or more, by default 200.
        seed: of the data sets and the draws.
        names: what to call the posteriors; by default by their methods.
        workers: who runs the simulator, as in `sf.simulate`; by default this process.
        progress: whether to show a progress bar.

    Returns:
        A `Comparison`: print it. Posteriors that refuse n observations, or diverge in most data sets, are in `refused` with the
        reason.

    Raises:
        ScorefoldError: where an argument is not as expected, priors or observations differ, too few data sets are left after
            failed simulations, or no posterior could be drawn from.
        Interrupted: on Ctrl-C before two posteriors have draws for 20 data sets; later there is a warning, and a comparison.

    Example:
        >>> import scorefold as sf
        >>> from scipy import stats
        >>> def simulator(theta, rng):
        ...     return theta + rng.standard_normal(1)
        >>> prior = sf.Prior({"a": stats.norm(0, 1)})
        >>> sims = sf.simulate(prior, simulator, budget=6_000, set_size=3)
        >>> near, far = (sf.fit(sims, sf.ABC(accept=share, adjust=False)) for share in (0.05, 0.9))
        >>> sf.compare([near, far], simulator, n=3, names=["near", "far"]).take
        'near'
    """
    named = _named(_checked(posteriors), names)
    plan = checked_plan(n, sims, draws, seed, FEWEST_RANKED)
    data = simulate_data_sets(posteriors[0], simulator, plan, workers, progress)
    drawn, refused = _drawn(named, data, plan, progress)
    return _compared(named, drawn, refused, data, plan)


def _compared(
    named: Mapping[str, Posterior], drawn: Mapping[str, ManyDraws], refused: dict[str, str], data: DataSets, plan: Plan
) -> Comparison:
    """The verdict, from the draws of those posteriors that did not refuse."""
    data = _as_far_as_drawn(data, drawn)
    kept, used = _usable(drawn, refused, len(data.truth))
    standings = _standings({name: named[name] for name in kept}, kept, data, used, plan)
    tie, behind = _tie(standings, int(used.sum()))
    take, verdict = words(tie, behind, refused, int(used.sum()), plan.n)
    return Comparison(
        names=tuple(named),
        n=plan.n,
        asked=plan.sims,
        used=int(used.sum()),
        failed=data.failed,
        draws=plan.draws,
        standings=standings,
        refused=refused,
        tied=tuple(one.name for one in (tie.best, *tie.others)),
        take=take,
        verdict=verdict,
        seed=plan.seed,
    )


def _checked(posteriors: Any) -> list[Posterior]:
    """Two or more posteriors of one prior and one shape of observations, or a ScorefoldError."""
    if not isinstance(posteriors, list | tuple) or len(posteriors) < 2:
        got = f"{len(posteriors)} in it" if isinstance(posteriors, list | tuple) else type(posteriors).__name__
        raise ScorefoldError(f"expected a list of two or more posteriors; got {got}. For a single one use sf.diagnose.")
    for one in posteriors:
        if not isinstance(one, Posterior):
            raise ScorefoldError(f"expected posteriors that sf.fit returns; got {type(one).__name__}")
    first, *others = posteriors
    for i, other in enumerate(others, 1):
        if other.prior != first.prior:
            raise ScorefoldError(
                f"expected posteriors of one prior; got {first.prior!r:.150} for the first and {other.prior!r:.150} for "
                f"posteriors[{i}]. Fit all of them on simulations from the same prior."
            )
        if other.shape != first.shape:
            raise ScorefoldError(
                f"expected posteriors given observations of one shape; got {first.shape} for the first and {other.shape} for "
                f"posteriors[{i}]. Fit all of them on the same simulator."
            )
    return list(posteriors)


def _named(posteriors: Sequence[Posterior], names: Any) -> dict[str, Posterior]:
    """The posteriors by their names: those given, or their methods', numbered where there are several of one."""
    if names is None:
        kinds = [type(one if one.method is None else one.method).__name__ for one in posteriors]
        names = [f"{kind} {kinds[: i + 1].count(kind)}" if kinds.count(kind) > 1 else kind for i, kind in enumerate(kinds)]
    good = isinstance(names, list | tuple) and all(isinstance(name, str) and name.strip() for name in names)
    if not good or len(names) != len(posteriors) or len(set(names)) != len(names):
        raise ScorefoldError(f"expected {len(posteriors)} different names, one for each posterior; got {names!r:.200}")
    return dict(zip(names, posteriors, strict=True))


def _drawn(
    named: Mapping[str, Posterior], data: DataSets, plan: Plan, progress: bool
) -> tuple[dict[str, ManyDraws], dict[str, str]]:
    """The draws of each posterior, and why the others refused."""
    drawn: dict[str, ManyDraws] = {}
    refused: dict[str, str] = {}
    enough = len(data.x)
    for number, (name, posterior) in enumerate(named.items(), 1):
        if enough < len(data.x):
            refused[name] = "drawing was interrupted before its turn."
            continue
        say(f"posterior {number} of {len(named)}: {one_line(name)}", progress)
        try:
            drawn[name] = drawn_as_far(partial(sample_quietly, posterior, data.x, plan.draws, data.seed, progress), plan)
            enough = min(enough, len(drawn[name].theta))
        except ScorefoldError as error:
            refused[name] = str(error)
    if enough < len(data.x) and len(drawn) < 2:
        raise Interrupted("drawing was interrupted before there were two posteriors to compare")
    return {name: _first(many, enough) for name, many in drawn.items()}, refused


def _first(many: ManyDraws, count: int) -> ManyDraws:
    """The draws for the first data sets only."""
    return ManyDraws(many.theta[:count], many.converged[:count], many.diverged[:count], many.seconds)


def _as_far_as_drawn(data: DataSets, drawn: Mapping[str, ManyDraws]) -> DataSets:
    """The data sets that there are draws for: all of them, unless drawing was interrupted."""
    count = min((len(many.theta) for many in drawn.values()), default=len(data.truth))
    return data._replace(truth=data.truth[:count], x=data.x[:count])


def _usable(drawn: Mapping[str, ManyDraws], refused: dict[str, str], count: int) -> tuple[dict[str, ManyDraws], np.ndarray]:
    """Those that did not diverge too often, and the data sets that none of them diverged in; the others go to `refused`."""
    used = np.ones(count, bool)
    kept: set[str] = set()
    for name in sorted(drawn, key=lambda name: int(drawn[name].diverged.sum())):
        diverged = drawn[name].diverged
        left = used & ~diverged
        if diverged.sum() > MOST_DIVERGED * count or left.sum() < FEWEST_RANKED:
            refused[name] = f"its draws diverged in {diverged.sum()} of {count} data sets."
        else:
            kept.add(name)
            used = left
    if not kept:
        reasons = " ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise ScorefoldError(f"expected a posterior that can be drawn from given these data sets; got none. {reasons}")
    return {name: many for name, many in drawn.items() if name in kept}, used


class _Scores(NamedTuple):
    """The energy score of each posterior for each data set, and its logarithm."""

    score: Float[np.ndarray, "posteriors datasets"]
    log: Float[np.ndarray, "posteriors datasets"]


def _scores(prior: Any, truth: Float[np.ndarray, "datasets dim"], draws: Sequence[np.ndarray]) -> _Scores:
    """The energy scores in the N(0, I) space, in each data set's posterior sd."""
    u = [prior.to_normal(theta) for theta in draws]
    scale = np.maximum(np.median([one.std(axis=1) for one in u], axis=0), LEAST_SCALE)
    at = prior.to_normal(truth) / scale
    scaled = [one / scale[:, None] for one in u]
    score = np.stack([energy_score(at, one) for one in scaled])
    away = np.stack([np.linalg.norm(one - at[:, None], axis=2).mean(axis=1) for one in scaled])
    return _Scores(score, np.log(np.maximum(score, np.maximum(LEAST_DISTANCE * away, LEAST_SCALE))))


def _standings(
    named: Mapping[str, Posterior], drawn: Mapping[str, ManyDraws], data: DataSets, used: np.ndarray, plan: Plan
) -> tuple[Standing, ...]:
    """How each posterior stands over the data sets that all have draws for."""
    truth, x = data.truth[used], data.x[used].astype(np.float64).reshape(used.sum(), plan.n, -1)
    prior = next(iter(named.values())).prior
    prediction = predict(truth, summaries(x))
    scores = _scores(prior, truth, [drawn[name].theta[used] for name in named])
    best = int(scores.score.mean(axis=1).argmin())
    standings = []
    for k, name in enumerate(named):
        many, theta = drawn[name], drawn[name].theta[used]
        # With how well the draws fit the data, which a posterior that ignores these gets wrong.
        ranked = sbc(truth, theta, prior.names, prediction.quantity(truth, theta), plan.seed)
        standings.append(
            Standing(
                name=name,
                score=_estimate(scores.score[k]),
                behind=_estimate(scores.score[k] - scores.score[best]),
                log_ratio=_estimate(scores.log[k] - scores.log[best]),
                holds_50=_holds(ranked, 0.5),
                holds_90=_holds(ranked, 0.9),
                p_value=ranked.p_value,
                diverged=int(many.diverged.sum()),
                unconverged=int(np.sum(~many.converged & used)),
                seconds=many.seconds / len(used),
            )
        )
    return tuple(standings)


def _holds(ranked: SBC, level: float) -> Estimate:
    """How often central intervals hold the true value, averaged over parameters first, which depend on each other."""
    share = (ranked.ranks[:, : ranked.parameters] + 0.5) / (ranked.draws + 1)
    return _estimate((np.abs(share - 0.5) <= level / 2).mean(axis=1))


def _estimate(values: Float[np.ndarray, " datasets"]) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def _tie(standings: Sequence[Standing], used: int) -> tuple[Tie, list[Standing]]:
    """The best with those that cannot be told from it, the lowest score first, and those clearly behind."""
    best, *others = sorted(standings, key=lambda one: one.behind.mean)
    pairs = max(1, len(standings) * (len(standings) - 1) // 2)
    threshold = float(stats.t.isf(FALSE_ALARMS / 2 / pairs, used - 1))
    behind = [one for one in others if one.behind.mean > threshold * one.behind.error]
    return Tie(best, tuple(one for one in others if one not in behind), threshold), behind
