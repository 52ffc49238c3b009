"""Which maps of x and which coordinates of θ make them most nearly a straight line with Gaussian noise.

Every number of an observation may be z = f(x) as `score/standardize.py` chooses f from its marginal, or x itself on the same
scale; every parameter may be u, θ or log θ (`coordinates.py`). A marginal alone can mislead: where θ is uniform and
x = θ + noise, ranks of x are normal, but the noise of ranks depends on θ. So the choice is by the likelihood of the line, in
units of x,

    Σ_i log q(L⁻¹ (z_i - A v_i - b)) - N log |L| + Σ_ij log |dz_ij/dx_j|,

with A, b and L by least squares, and q Gaussian but for its scale (`scales.py`): the criterion of Box and Cox, with noise that
may have outliers. It begins with the best of eight (all f or all x; θ for parameters with two bounds, u, θ or log θ for all),
then changes one number or parameter after the other as long as that is better, by as much at least as one more number in a
model has to bring by the Bayesian information criterion, log N / 2. Around several modes the line is one for every mode
(`mode_lines.py`), and only the maps of x are chosen.

A parameter that rules how far observations scatter, and not where, changes nothing in that line. So where the noise may change
with the parameters, the choice is made once more by the likelihood of the line with sds that are log-linear in v
(`changing_noise.py`): its maps and coordinates are taken where they are better by what its further numbers have to bring, and
leave Gaussian noise.

Of a likelihood, a number may also be seen by its distance from an edge that the parameters move (`edges.py`). Edges on the
steeper side of every number that takes many values are tried, with some margins, and half of the cases have no part in the
program that finds them. The best is taken if it is better than none, and than one that stays where it is, by as much as its
numbers have to bring and by 0.02 for every observation. Then parameters that need not move it are left out, it is moved to
where the line fits best, and the coordinates of the other parameters are chosen once more.

Reference: "An analysis of transformations", Box and Cox, 1964.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from scorefold.density.changing_noise import fit_changing_noise, fit_gaussian_noise, values_and_log_scales
from scorefold.density.coordinates import LOG, THETA, Choices, Coordinates, U, at, choices, no_choice
from scorefold.density.edges import MARGINS, Edge, Edges, closest_edge, edges_of
from scorefold.density.mode_lines import in_modes
from scorefold.density.scales import MOST_FEATURES, mean_log_density
from scorefold.prior import Prior
from scorefold.score.standardize import Standardize, fit_standardize, plain, standardized
from scorefold.train.rows import few_at_a_time
from scorefold.types import QUICKLY, Array, Float

PASSES = 3
"""In which all have their turn, at most."""
MOST_CASES = 4_000
FLOOR = 1e-8
"""Variance of noise that is added."""
WORTH_AN_EDGE = 0.02
"""Nat for every observation."""
SEARCH = {"maxfev": 150, "xatol": 0.01, "fatol": 1e-5}
MANY_VALUES = 0.9
"""Of the cases have values of their own where a number may have an edge."""


class Straightened(NamedTuple):
    """How observations and parameters are seen."""

    standardize: Standardize
    coordinates: Coordinates | None
    """None for u."""
    edges: Edges | None = None
    """Of the outcomes; None where there are none."""


class Allowed(NamedTuple):
    """What a line may do besides."""

    changing: bool = False
    """Its noise may change with the parameters."""
    edges: bool = False
    """Numbers may have edges that the parameters move."""


def straighten(prior: Prior, x: np.ndarray, u: np.ndarray, inputs: int, allowed: Allowed) -> Straightened:
    """From observations x (count, x), the last so many numbers known inputs, and their u (count, dim).

    Of so many numbers that their noise is taken for Gaussian, the maps are those of their marginals.
    """
    return _straightened(choices(prior), x, u, inputs, allowed)


def straighten_in_modes(x: np.ndarray, v: np.ndarray, modes: int, inputs: int) -> Standardize:
    """The maps of observations x (count, x) in which lines, one for every mode, fit best; v as `mode_lines.py` has it."""
    given = in_modes(v, modes)
    return _straightened(no_choice(given.shape[1]), x, given, inputs, Allowed()).standardize


def _straightened(may_be: Choices, x: np.ndarray, u: np.ndarray, inputs: int, allowed: Allowed) -> Straightened:
    by_marginal = fit_standardize(x)
    if x.shape[1] > MOST_FEATURES:
        return Straightened(by_marginal, may_be.coordinates(np.where(may_be.bounded, THETA, U)))
    rows = slice(None, None, -(-len(x) // MOST_CASES))
    as_is = plain(x)
    mapped = np.array([kind != "none" for kind in by_marginal.kinds])
    mapped[x.shape[1] - inputs :] = False  # inputs are given, whatever their scale
    line = _Line(by_marginal, as_is, may_be, x[rows], u[rows], inputs)
    chosen = _best(line, mapped, may_be)
    if allowed.edges:
        chosen = _with_edges(line, chosen, may_be)
    if allowed.changing:
        chosen = _best_with_changing_noise(line, chosen, may_be)
    keep = ~mapped | chosen.mapped
    mixed = jax.tree.map(lambda f, x: jnp.where(keep.reshape(-1, *[1] * (f.ndim - 1)), f, x), by_marginal, as_is)
    return Straightened(mixed, may_be.coordinates(chosen.kinds), line.edges(chosen) if chosen.edges else None)


class _Choice(NamedTuple):
    mapped: np.ndarray
    """(outcomes and inputs,) by f, not x itself"""
    kinds: np.ndarray
    """(dim,) U, THETA or LOG"""
    edges: tuple[tuple[int, Edge], ...] = ()
    """Numbers with an edge, which are not mapped."""

    def with_edge(self, i: int, edge: Edge, kinds: np.ndarray) -> "_Choice":
        """With an edge of number i in these coordinates."""
        mapped = self.mapped.copy()
        mapped[i] = False
        return _Choice(mapped, kinds, (*(own for own in self.edges if own[0] != i), (i, edge)))

    @property
    def moves_an_edge(self) -> np.ndarray:
        """(dim,) booleans"""
        slopes = [edge.slope[: len(self.kinds)] for _, edge in self.edges]
        return np.any(slopes, axis=0) if slopes else np.zeros(len(self.kinds), bool)

    def with_kind(self, i: int, kind: int) -> "_Choice":
        """With another coordinate of parameter i."""
        kinds = self.kinds.copy()
        kinds[i] = kind
        return self._replace(kinds=kinds)

    def with_other_map(self, i: int) -> "_Choice":
        """With the other map of number i."""
        mapped = self.mapped.copy()
        mapped[i] = ~mapped[i]
        return self._replace(mapped=mapped)


_Change = Callable[[_Choice], _Choice]


def _best(line: "_Line", mapped: np.ndarray, may_be: Choices) -> _Choice:
    """The best of eight, then one change after the other."""
    kinds = [np.where(may_be.bounded, THETA, U), *(np.where(may_be.free[kind], kind, U) for kind in (U, THETA, LOG))]
    starts = [_Choice(f, v) for f in (mapped, np.zeros_like(mapped)) for v in kinds]
    chosen, least = starts[0], line.misfit(starts[0])
    for other in starts[1:]:
        if (value := line.misfit(other)) < least - line.least_gain:
            chosen, least = other, value
    for _ in range(PASSES):
        before = least
        maps = [partial(_Choice.with_other_map, i=i) for i in np.flatnonzero(mapped).tolist()]
        chosen, least = _improved(chosen, least, maps + _other_kinds(may_be, chosen), line.misfit, line.least_gain)
        if least == before:
            break
    return chosen


def _improved(
    chosen: _Choice, least: float, changes: Sequence[_Change], misfit: Callable[[_Choice], float], gain: float
) -> tuple[_Choice, float]:
    """With every change in turn that makes it better by so much."""
    for change in changes:
        other = change(chosen)
        if (value := misfit(other)) < least - gain:
            chosen, least = other, value
    return chosen, least


def _other_kinds(may_be: Choices, chosen: _Choice) -> list[_Change]:
    """Every coordinate that a parameter with a choice may have; those that move an edge have none."""
    have_a_choice = may_be.free[THETA:].any(axis=0) & ~chosen.moves_an_edge
    return [partial(_Choice.with_kind, i=i, kind=k) for k, i in np.argwhere(may_be.free & have_a_choice).tolist()]


def _best_with_changing_noise(line: "_Line", chosen: _Choice, may_be: Choices) -> _Choice:
    """Where sds may change: the best of four, then one coordinate after the other; or what was chosen without."""
    logs = np.where(may_be.free[LOG] & ~chosen.moves_an_edge, LOG, chosen.kinds)
    starts = [
        chosen._replace(mapped=f, kinds=v) for f in (chosen.mapped, np.zeros_like(chosen.mapped)) for v in (chosen.kinds, logs)
    ]
    values = [line.misfit_of_changing(start) for start in starts]
    best, least = starts[int(np.argmin(values))], min(values)
    bound = line.misfit(chosen) - line.least_gain * line.further_numbers
    if least >= bound:
        return chosen
    best, _ = _improved(best, least, _other_kinds(may_be, best), line.misfit_of_changing, line.least_gain)
    return best if line.leaves_gaussian_noise(best) else chosen


def _with_edges(line: "_Line", chosen: _Choice, may_be: Choices) -> _Choice:
    """With the edges that are worth it, number by number."""
    least, before = line.misfit(chosen), chosen
    straight = np.where(may_be.free[THETA], THETA, U)
    worth = max(WORTH_AN_EDGE, line.least_gain * (3 + len(straight)))
    for i in line.may_have_edges():
        side, at_rest = line.side_of_the_edge(i), np.zeros(line.given, bool)
        moved = _edged(line, chosen._replace(kinds=straight), i, side, ~at_rest)
        if not moved or (best := _least(line, moved))[1] > least - worth:
            continue
        staying = _edged(line, chosen, i, side, at_rest)
        if staying and best[1] < _least(line, staying)[1] - worth:
            chosen, least = _moved_by_few(line, best, i, may_be)
    return chosen if chosen.edges else before


def _edged(line: "_Line", chosen: _Choice, i: int, side: float, free: np.ndarray) -> list[_Choice]:
    """With an edge of number i, which what is `free` may move, at each of some margins; none where what moves is no edge."""
    given, z = line.given_to(chosen.kinds), line.unfolded(i)
    edge = closest_edge(z[::2], given[::2], side, free)
    if edge is None or (free.any() and not edge.is_one(z, given)):
        return []
    typical = edge.typical_distance(z, given)
    return [chosen.with_edge(i, edge.with_margin(share * typical), chosen.kinds) for share in MARGINS]


def _least(line: "_Line", tried: Sequence[_Choice]) -> tuple[_Choice, float]:
    """The one that fits best, and its misfit."""
    values = [line.misfit(other) for other in tried]
    return tried[int(np.argmin(values))], min(values)


def _moved_by_few(line: "_Line", found: tuple[_Choice, float], i: int, may_be: Choices) -> tuple[_Choice, float]:
    """With the edge of number i, moved by those parameters and inputs only that it is worse without: those that it can do
    without where it is first, and then those that it can where it fits best.
    """
    for settle in (lambda found: found, lambda found: _settled(line, found, i, may_be)):
        found = settle(found)
        own = dict(found[0].edges)[i]
        free = own.slope != 0
        for place in np.argsort(np.abs(own.slope)):
            fewer = free & (np.arange(len(free)) != place)
            tried = _edged(line, found[0], i, own.side, fewer) if free[place] and fewer.any() else []
            if tried and (other := settle(_least(line, tried)))[1] < found[1] + line.least_gain:
                found, free = other, fewer
    return found


def _settled(line: "_Line", found: tuple[_Choice, float], i: int, may_be: Choices) -> tuple[_Choice, float]:
    """With the edge of number i where it fits best, and the coordinates of parameters that do not move it chosen once more."""
    chosen, least = _as_likely_as_can_be(line, found, i)
    return _improved(chosen, least, _other_kinds(may_be, chosen), line.misfit, line.least_gain)


def _as_likely_as_can_be(line: "_Line", found: tuple[_Choice, float], i: int) -> tuple[_Choice, float]:
    """With the edge of number i, and the slopes that it has, where the line fits best, and not only closest to the cases."""
    choice, least = found
    own, z, given = dict(choice.edges)[i], line.unfolded(i), line.given_to(choice.kinds)
    free, typical = own.slope != 0, own.typical_distance(z, given)
    unit = np.concatenate([[0.1 * typical], 0.05 * np.abs(own.slope[free])])

    def moved(by: np.ndarray) -> Edge:
        slope = own.slope.copy()
        slope[free] += unit[1:] * by[1:]
        return own._replace(slope=slope, offset=own.offset + unit[0] * by[0])

    def misfit(by: np.ndarray) -> float:
        return line.misfit(choice.with_edge(i, moved(by), choice.kinds))

    simplex = np.concatenate([np.zeros((1, len(unit))), np.eye(len(unit))])
    simplex[1, 0] = -own.side  # farther from the cases
    by = minimize(misfit, np.zeros(len(unit)), method="Nelder-Mead", options=SEARCH | {"initial_simplex": simplex}).x
    other = choice.with_edge(i, moved(by).with_tangent(z, given), choice.kinds)
    return (other, value) if (value := line.misfit(other)) < least else found


class _Line:
    """Everything that a line may join: of the outcomes f(x) and x, of the parameters u, θ and log θ."""

    def __init__(self, f: Standardize, x: Standardize, may_be: Choices, obs: np.ndarray, u: np.ndarray, inputs: int):
        outcomes = obs.shape[1] - inputs
        seen = np.stack([standardized(one, obs) for one in (f, x)]).astype(np.float64)
        self.z, known = seen[:, :, :outcomes], seen[0, :, outcomes:]  # inputs as the line will be given them
        self.obs, self.as_is = obs[:, :outcomes], x
        kinds = (np.where(free, kind, U) for kind, free in enumerate(may_be.free) if kind != U)
        others = [at(may_be.coordinates(kind), jnp.asarray(u, jnp.float32)) for kind in kinds]
        self.v = np.stack([u, *(np.asarray(v, np.float64) for v in others)])
        self.always = np.concatenate([np.ones((len(u), 1)), known], axis=1)
        slopes = [np.asarray(_log_slopes(one, jnp.asarray(obs, jnp.float32)), np.float64) for one in (f, x)]
        self.log_slopes = np.stack(slopes)[:, :outcomes]
        self.least_gain = float(np.log(len(u))) / (2 * len(u))
        self.given = u.shape[1] + inputs
        self.further_numbers = outcomes * (u.shape[1] + inputs)

    def misfit(self, choice: _Choice) -> float:
        """Less the mean log density of x."""
        r, volume = self._residuals(choice)
        return float(volume - mean_log_density(np.square(r).sum(axis=1), r.shape[1]))

    def misfit_of_changing(self, choice: _Choice) -> float:
        """The same with sds that change with v; infinite where none do."""
        r, volume = self._residuals(choice)
        given = self.given_to(choice.kinds)
        own = fit_changing_noise(r, given, correlations=False)
        if own is None:
            return np.inf
        e, log_scales = values_and_log_scales(own, r, given)
        return float(volume + (np.square(e).sum(axis=1) / 2 - log_scales.sum(axis=1)).mean())

    def leaves_gaussian_noise(self, choice: _Choice) -> bool:
        """Whether changing noise takes everything but Gaussian noise away."""
        return fit_gaussian_noise(self._residuals(choice)[0], self.given_to(choice.kinds)) is not None

    def may_have_edges(self) -> list[int]:
        """Numbers that take many values."""
        count = len(self.obs)
        return [i for i, own in enumerate(self.obs.T) if len(np.unique(own)) > MANY_VALUES * count]

    def side_of_the_edge(self, i: int) -> float:
        """On which side number i would have one: where its distribution is the steeper one."""
        z = self.unfolded(i)
        return 1.0 if z.mean() > np.median(z) else -1.0

    def unfolded(self, i: int) -> np.ndarray:
        """Number i on its scale, outliers not drawn in."""
        centre, scale = (float(part[i]) for part in (self.as_is.centre, self.as_is.scale))
        return (self.obs[:, i].astype(np.float64) - centre) / scale

    def given_to(self, kinds: np.ndarray) -> np.ndarray:
        """v in these coordinates, and the inputs."""
        return np.concatenate([self.v[kinds, :, np.arange(self.v.shape[2])].T, self.always[:, 1:]], axis=1)

    def edges(self, choice: _Choice) -> Edges:
        """Those that were chosen."""
        given, z = self.given_to(choice.kinds), np.stack([self.unfolded(i) for i in range(self.obs.shape[1])], axis=1)
        return edges_of(dict(choice.edges), z, given)

    def _residuals(self, choice: _Choice) -> tuple[np.ndarray, float]:
        """L⁻¹ (z - A v - b), and log |L| - Σ_j log |dz_j/dx_j|."""
        own = np.arange(self.z.shape[2])
        by, v = np.where(choice.mapped[: len(own)], 0, 1), self.given_to(choice.kinds)
        z, log_slopes = self.z[by, :, own].T, self.log_slopes[by, own]
        for i, edge in choice.edges:
            z[:, i], slope = edge.mapped(self.unfolded(i), v)
            log_slopes[i] = slope - np.log(float(self.as_is.scale[i]))
        given = np.concatenate([self.always[:, :1], v], axis=1)
        left = z - given @ np.linalg.lstsq(given.T @ given, given.T @ z, rcond=None)[0]
        root = np.linalg.cholesky(left.T @ left / len(z) + FLOOR * np.eye(len(own)))
        return np.linalg.solve(root, left.T).T, float(np.log(np.diag(root)).sum() - log_slopes.sum())


@partial(jax.jit, compiler_options=QUICKLY)
def _log_slopes(standardize: Standardize, x: Float[Array, "cases x"]) -> Float[Array, " x"]:
    """The mean of log |dz/dx|, number by number."""
    return jnp.mean(few_at_a_time(standardize.log_slope)(x), axis=0)
