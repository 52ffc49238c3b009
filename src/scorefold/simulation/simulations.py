"""Training cases: parameters with a set of 1 … m observations each.

Case c has parameters θ_c ~ p(θ), a size s_c ~ U{1 … m} and s_c observations. A budget counts simulator calls, (m+1)/2 to
a case on average; the last case is cut so that the calls add up to the budget exactly.

Failed calls. To fail is one of the outcomes of a simulator, with probability f(θ), and n observations tell n times that it did
not happen: the posterior is p(θ) ∏_j p(x_j, ok | θ) ∝ p(θ) ∏_j [1 - f(θ)] p(x_j | θ, ok). So a set of s observations must come
from θ ~ p(θ) [1 - f(θ)]^s, that is from s calls in a row none of which failed. `cut` and `split` therefore end a set before its
first failed call. Then all sets of s or more observations, cut to s, are fair cases of size s; a set as long as it happens to
be is not, since the call after its last one may be the one that failed. Calls of one case are alike, so that which of them
failed is drawn at random.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.shown import html_table, listed
from scorefold.simulation.calls import Calls
from scorefold.simulation.failures import Failure, failures
from scorefold.simulation.given import Raw, given
from scorefold.simulation.outcome import MISSING, OK
from scorefold.simulation.pieces import PIECE, let_go

IN_MEMORY = 64 << 20
"""Observations of more bytes than this are mapped from the disk when they come from a store."""
AROUND = 64 << 10
"""Bytes of a mapped file that come into memory with any one of them."""
FEWEST_CASES = 50
"""A fifth of them is held out."""
MOST_LOOKED_AT, MOST_SHOWN = 10_000, 12
"""Cases looked at, and numbers of an observation shown, in a notebook."""
IN_RAM = partial(np.zeros, dtype=np.float32)


class _Fields(NamedTuple):
    prior: Prior
    theta: np.ndarray
    """(cases, dim)"""
    x: np.ndarray
    """(cases, m, *shape), padded with zeros after each case's observations"""
    sizes: np.ndarray
    """(cases,) how many observations each case has"""
    set_size: int
    """m"""
    budget: int
    """Simulator calls made, failed ones included."""
    failed: int
    """Simulator calls that gave no observation; they are not in `x`."""
    seed: int
    """0 of simulations that were made elsewhere."""
    origin: np.ndarray
    """(cases,) which parameter draw a case belongs to; several once large sets have been cut"""
    failures: tuple[Failure, ...] = ()
    """The first 100 of the calls that failed."""
    calls: np.ndarray | None = None
    """(cases,) how many calls each case had, failed ones included; None where none failed, or nothing is known of them"""
    x_names: tuple[str, ...] = ()
    """Of the numbers of an observation, where they were named; those of inputs come last."""
    input_names: tuple[str, ...] = ()
    """Of the known inputs, an observation's last numbers; none where there are no inputs."""
    missing: bool = False
    """NaN in x are numbers that were not observed."""


class Simulations(_Fields):
    """Simulated training cases: what `sf.simulate` returns, `sf.Store` holds and `sf.fit` takes.

    Make them yourself of parameters and observations that you have already: `sf.Simulations(prior, theta, x)`. They are checked
    like simulations made here: what is not finite is left out and counted, and a warning says so if θ do not look like
    draws from the prior.

    Args:
        prior: The `sf.Prior` that θ were drawn from.
        theta: (cases, dim), an array, or a DataFrame with the prior's names as columns.
        x: An observation for each row of θ: an array (cases, *shape), or a DataFrame, whose columns become `x_names`. With
            `sets`, a sequence with an array (n, *shape) or a DataFrame for each row of θ, which may differ in n.
        sets: Whether `x` are sets of observations. Default False.
        x_names: The names of the numbers of an observation, for tables and figures. Default None: none, or a DataFrame's.
        inputs: The known inputs of the observations: an array (cases, inputs) or a DataFrame and, with `sets`, a sequence with
            one for each row of θ. Default None: there are none.
        input_names: Their names. Default None: a DataFrame's, or numbers.
        missing: Whether NaN in `x` are numbers that were not observed, as in `sf.simulate`; a list of series may then differ in
            length. Default False: NaN is a failure.

    Raises:
        ScorefoldError: Arrays do not belong together, θ is outside the prior's support, fewer than 50 cases are left, or more
            than a tenth of the observations are not finite.

    A case is one parameter draw with a set of 1 … m observations simulated from it. The arrays lie in memory or, of a large
    store, are mapped from the disk. Simulations that failed are not among them; `failed` counts them and `failures` shows the
    first 100, each with its `index`, `theta`, `status` and `text`.

    Example:
        >>> import numpy as np, scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=3)
        >>> sims = sf.simulate(prior, simulator, budget=200, set_size=2)
        >>> sims.x.shape == (len(sims.theta), 2, 3)
        True
        >>> int(sims.sizes.sum())
        200
        >>> sims.shape, sims.failed, sims.failures
        ((3,), 0, ())
        >>> theta = prior.sample(500, seed=1)
        >>> sf.Simulations(prior, theta, x=theta + np.random.default_rng(1).normal(size=(500, 3)))
        Simulations(500 cases from 500 simulator calls, 0 failed; θ = (rate), x 3, sets of up to 1)
    """

    __slots__ = ()

    def __new__(
        cls,
        prior: Prior,
        theta: Any,
        x: Any,
        *,
        sets: bool = False,
        x_names: Sequence[str] | None = None,
        inputs: Any = None,
        input_names: Sequence[str] | None = None,
        missing: bool = False,
    ) -> "Simulations":
        """Training cases from arrays or DataFrames; what comes out of `sf.simulate` is made by `gather`."""
        cases = given(prior, theta, Raw(x, sets, x_names, inputs, input_names, missing))
        if len(cases.theta) < FEWEST_CASES:
            raise ScorefoldError(f"expected at least {FEWEST_CASES} training cases; got {len(cases.theta)}. Simulate more.")
        count, m = cases.x.shape[:2]
        fields = _Fields(
            prior, cases.theta, cases.x, cases.sizes, m, cases.budget, cases.failed, seed=0, origin=np.arange(count),
            x_names=cases.x_names, input_names=cases.input_names, missing=missing,
        )  # fmt: skip
        return cls._make(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return Simulations._make, (tuple(self),)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation; its inputs, if it has some, are its last numbers."""
        return self.x.shape[2:]

    @property
    def inputs(self) -> np.ndarray | None:
        """(cases, m, inputs), the known inputs; None where there are none."""
        return self.x[..., -len(self.input_names) :] if self.input_names else None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar"
        outcomes = self.x_names[: len(self.x_names) - len(self.input_names)]
        if self.input_names:
            shape = f"{len(outcomes)}"
        named = f" ({listed(outcomes)})" if outcomes else ""
        if self.input_names:
            named += f" given inputs ({listed(self.input_names)})"
        return (
            f"Simulations({len(self.theta):,} cases from {self.budget:,} simulator calls, {self.failed:,} failed; "
            f"θ = ({listed(self.prior.names)}), x {shape}{named}, sets of up to {self.set_size})"
        )

    def _repr_html_(self) -> str:
        """A row for each number of an observation, if they are few."""
        flat = self.x.reshape(*self.x.shape[:2], -1)[:MOST_LOOKED_AT]
        seen = flat[np.arange(self.set_size) < self.sizes[:MOST_LOOKED_AT, None]][:, :MOST_SHOWN]
        names = self.x_names or [f"x[{i}]" for i in range(flat.shape[2])]
        found = np.quantile(seen, [0, 0.05, 0.5, 0.95, 1], axis=0)
        rows = [(name, *(f"{value:.4g}" for value in column)) for name, column in zip(names, found.T, strict=False)]
        head = ("one observation", "least", "5 %", "median", "95 %", "most")
        part = [f"The table is of the first {MOST_LOOKED_AT:,} cases."] if len(self.x) > MOST_LOOKED_AT else []
        hidden = flat.shape[2] - len(rows)
        part += [f"Of {flat.shape[2]:,} numbers the first {len(rows)} are shown."] if hidden else []
        return html_table("Simulations", head, rows, [repr(self), *part])


class Cut(NamedTuple):
    """The observations of simulations in sets of at most m, read only when they are asked for, so that a store may be larger
    than memory. `cut` makes it.
    """

    sims: Simulations
    set_size: int
    case: np.ndarray
    """(sets,) the case that a set is from"""
    first: np.ndarray
    """(sets,) which of the case's observations is its first"""
    sizes: np.ndarray
    """(sets,)"""

    @property
    def origin(self) -> np.ndarray:
        """(sets,) which parameter draw a set belongs to."""
        return self.sims.origin[self.case]

    def take(self, rows: np.ndarray) -> Simulations:
        """Some of the sets, in memory.

        Args:
            rows: Which of them. It is quickest where the cases that they are from are in order.

        Returns:
            Simulations of these sets, each with its parameters and its origin.
        """
        sims, case, sizes = self.sims, self.case[rows], self.sizes[rows]
        place = np.minimum(self.first[rows][:, None] + np.arange(self.set_size), sims.set_size - 1)
        x = np.empty((len(rows), self.set_size, *sims.shape), sims.x.dtype)
        step = max(1, PIECE // max(x[:1].nbytes, AROUND))
        for at in (slice(start, start + step) for start in range(0, len(rows), step)):
            x[at] = sims.x[case[at, None], place[at]]
            let_go(sims.x)
        x[np.arange(self.set_size) >= sizes[:, None]] = 0
        some = {"theta": sims.theta[case], "sizes": sizes, "origin": sims.origin[case]}
        return sims._replace(**some, x=x, set_size=self.set_size, calls=None)


def cut(sims: Simulations, set_size: int) -> Cut:
    """Cut simulations into sets for training, each of which ends before its first failed call (see the top of this file).

    Args:
        sims: The simulations.
        set_size: m, the most observations in a set.

    Returns:
        The sets, none of them read yet.
    """
    set_size = min(set_size, sims.set_size)
    starts = range(0, sims.set_size, set_size)
    if sims.calls is not None:
        return _cut_at_failures(sims, sims.calls, set_size)
    case = [np.flatnonzero(sims.sizes > start) for start in starts]
    first = np.repeat(starts, [len(some) for some in case])
    together = np.concatenate(case)
    return Cut(sims, set_size, together, first, np.minimum(sims.sizes[together] - first, set_size))


def _cut_at_failures(sims: Simulations, calls: np.ndarray, set_size: int) -> Cut:
    """As `cut`, where calls failed: which of them is drawn at random."""
    places = np.arange(sims.set_size)
    order = np.random.default_rng([sims.seed, 19]).random((len(calls), sims.set_size))
    order[places >= calls[:, None]] = 2.0  # no call
    rank = np.argsort(np.argsort(order, axis=1), axis=1)
    good = rank < sims.sizes[:, None]  # a random choice of as many calls as succeeded
    before: np.ndarray = np.cumsum(good, axis=1) - good
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, sims.set_size, set_size):
        row = np.cumprod(good[:, start : start + set_size], axis=1).sum(axis=1)
        some = np.flatnonzero(row)
        parts.append((some, before[some, start], row[some]))
    case, first, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Cut(sims, set_size, case, first, sizes)


def split(sims: Simulations, set_size: int) -> Simulations:
    """The same observations in sets of at most `set_size`, each with its parameters, in memory; ended before failed calls."""
    if set_size >= sims.set_size and sims.calls is None:
        return sims
    parts = cut(sims, set_size)
    return parts.take(np.arange(len(parts.case)))


class Results(NamedTuple):
    """What became of the calls of a run."""

    status: np.ndarray
    """(calls,)"""
    blocks: Iterable[tuple[int, np.ndarray]]
    """First call and observations of blocks that come one after the other."""
    shape: tuple[int, ...]
    """Of an observation."""
    x_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()


def gather(
    prior: Prior, calls: Calls, results: Results, allocate: Callable[[tuple[int, ...]], np.ndarray] = IN_RAM
) -> Simulations:
    """Put what came back from a simulator into training cases.

    Args:
        prior: What parameters were drawn from.
        calls: The calls that were made.
        results: What became of them.
        allocate: Where cases go: gives an array of zeros of a shape. Default: in memory.

    Returns:
        The cases, without calls whose status is not OK, and without cases of which a call is missing.
    """
    status = _whole_cases(calls, results.status)
    good = status == OK
    case = calls.case[good]
    sizes = np.bincount(case, minlength=len(calls.theta))
    some = sizes > 0
    new = np.cumsum(some) - 1
    ends = np.cumsum(sizes)
    sets = allocate((int(some.sum()), calls.set_size, *results.shape))
    done = 0
    for start, x in results.blocks:
        kept = good[start : start + len(x)]
        own = case[done : done + kept.sum()]
        place = np.arange(done, done + len(own)) - (ends - sizes)[own]
        sets[new[own], place] = x[kept]
        let_go(sets)
        done += len(own)
    made = int((status != MISSING).sum())
    fields = _Fields(
        prior,
        calls.theta[some],
        sets,
        sizes[some],
        calls.set_size,
        budget=made,
        failed=made - len(case),
        seed=calls.seed,
        origin=np.arange(some.sum()),
        failures=failures(calls, status, {}),
        calls=None if made == len(case) else _calls_made(calls, status)[some],
        x_names=results.x_names,
        input_names=results.input_names,
    )
    return Simulations._make(fields)


def _calls_made(calls: Calls, status: np.ndarray) -> np.ndarray:
    """(cases,)"""
    return np.bincount(calls.case[status != MISSING], minlength=len(calls.theta))


def _whole_cases(calls: Calls, status: np.ndarray) -> np.ndarray:
    """The status of each call, MISSING for all calls of a case of which one is missing."""
    missing = status == MISSING
    if not missing.any():
        return status
    lacking = np.zeros(len(calls.theta), bool)
    lacking[calls.case[missing]] = True
    return np.where(lacking[calls.case], np.uint8(MISSING), status)
