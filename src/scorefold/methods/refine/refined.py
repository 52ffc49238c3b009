"""A posterior for one data set: the scores of the region that refinement ended in (`refine.py`), and how it came there.

On disk it is the region's posterior as any composed one, and beside it the rounds with their regions, and the start, if the
region's scores see observations through it.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.compose import Rule
from scorefold.disk import strict
from scorefold.disk.tensors import Arrays, Spec
from scorefold.errors import ModelError, ScorefoldError, UntrustworthyDraws
from scorefold.methods.refine.region import Fit, fit_of
from scorefold.methods.refine.score_summaries import Summaries, centre_of
from scorefold.posterior.composed import ComposedPosterior, Composition
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.posterior import Frame, Posterior
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.prior import Prior
from scorefold.prior import codec as described
from scorefold.prior.proposal import GaussianProposal, Proposal, read_proposal, whole
from scorefold.sample import Info, Sampler
from scorefold.train.training import MOST_RUNS

MOST_ROUNDS, MOST_CALLS = 1_000, 10**12
SUMMARIES = "summaries."
"""Before the names of the start's arrays."""


class Round(NamedTuple):
    """What one round did."""

    proposal: Proposal
    locating: bool
    """By a straight line alone, in closed form."""
    simulations: int
    """Simulator calls, failed ones included."""
    failed: int
    cases: int
    """To train on, with the reused ones."""
    reused: int
    gate: float
    """Share of the network that unseen cases let pass, mean over levels; 0 where the base was alone."""
    fit: Fit
    several_modes: bool
    """In the draws that the region was proposed from."""
    lost_mode: bool
    shift: float
    """How far the means moved from the draws before, in posterior sd, root mean square."""
    widths: float
    """Mean log ratio of the sds after and before."""

    @property
    def counts(self) -> bool:
        """The draws lie where the simulations were, and no mode was lost."""
        return not (self.fit.missed or self.lost_mode)

    def __str__(self) -> str:
        network = f"base with {self.gate:.0%} of the network" if self.gate > 0.005 else "base alone"
        doubt = " missed;" if self.fit.missed else " lost a mode;" if self.lost_mode else ""
        again = f" and {self.reused:,} earlier cases" if self.reused else ""
        return (
            f"{self.simulations:,} simulations{again}, {network};{doubt} means moved by {self.shift:.2f} sd, widths by a "
            f"factor {np.exp(self.widths):.2f}"
        )

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            **self._asdict(),
            "proposal": self.proposal.describe(),
            "fit": {**self.fit._asdict(), "widths": list(self.fit.widths)},
        }

    @classmethod
    def read(cls, value: Any, dim: int) -> "Round":
        """From JSON that is not to be trusted."""
        value = strict.keys(value, cls._fields, "a round")
        described.check_proposal(value["proposal"], dim)
        fit = strict.keys(value["fit"], Fit._fields, "how the draws lie in a region")
        widths = [strict.number(v, "a width") for v in strict.listed(fit["widths"], "the widths", 2)]
        if len(widths) != 2:
            raise ModelError(f"expected a smallest and a largest width; got {widths}")
        counts: dict[str, Any] = {
            name: strict.whole(value[name], name, 0, MOST_CALLS) for name in ("simulations", "failed", "cases", "reused")
        }
        flags: dict[str, Any] = {name: strict.flag(value[name], name) for name in ("locating", "several_modes", "lost_mode")}
        numbers: dict[str, Any] = {name: strict.number(value[name], name) for name in ("gate", "shift", "widths")}
        far, mean = (strict.number(fit[name], name) for name in ("far", "mean"))
        region = read_proposal(value["proposal"])
        return cls(proposal=region, fit=Fit(far, mean, (widths[0], widths[1])), **counts, **flags, **numbers)


class Refinement(NamedTuple):
    """How draws were made, and the rounds before."""

    composition: Composition
    rounds: tuple[Round, ...]
    simulations: int
    """Simulator calls of all rounds."""
    agreed: bool
    """The last two rounds agree to 0.2 sd in means and widths."""
    shift: float
    """How far the last round moved the means, in posterior sd."""
    widths: float
    """By what factor it changed the sds."""
    fit: Fit
    """How these draws lie in the region."""


@dataclass(frozen=True)
class RefinedPosterior(Posterior):
    """A posterior for one data set and its neighbourhood: it knows only the region where that data set's posterior is."""

    prior: Prior
    method: Any
    history: Any
    shape: tuple[int, ...]
    local: ComposedPosterior
    """Of the last round that counts, in its proposal's own space; the start where no round counts."""
    summaries: Summaries | None
    """What it sees of an observation besides the observation."""
    n: int
    """In the data set that it is for."""
    rounds: tuple[Round, ...]
    agreed: bool

    kind: ClassVar[str] = "refined"
    options: ClassVar[tuple[str, ...]] = ("rule", "sampler", "set_size")

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """The region's posterior and the rounds."""
        config, arrays = self.local.parts()
        summaries = None
        if self.summaries is not None:
            start, more = self.summaries.start.parts()
            summaries = {"members": self.summaries.start.method.training.members, "start": start}
            arrays = {**arrays, **{SUMMARIES + name: array for name, array in more.items()}}
        refinement = {
            "local": config,
            "summaries": summaries,
            "region": self.local.prior.proposal and self.local.prior.proposal.describe(),
            "observations": int(self.n),
            "rounds": [one.describe() for one in self.rounds],
            "agreed": bool(self.agreed),
        }
        return refinement, arrays

    @classmethod
    def expected(cls, frame: Frame, config: Mapping[str, Any]) -> dict[str, Spec]:
        """The arrays of the region's posterior."""
        strict.keys(config, ("local", "summaries", "region", "observations", "rounds", "agreed"), "what was refined")
        strict.whole(config["observations"], "the observations", 1, MOST_CALLS)
        strict.flag(config["agreed"], "whether rounds agree")
        if not strict.listed(config["rounds"], "the rounds", MOST_ROUNDS) or not hasattr(frame.method, "network_shape"):
            raise ModelError("expected a method of composed scores and one round at least")
        for one in config["rounds"]:
            Round.read(one, frame.dim)
        if config["region"] is not None:
            described.check_proposal(config["region"], frame.dim)
        start = _start_frame(frame, config)
        if start is None:
            return ComposedPosterior.expected(frame, config["local"])
        more = ComposedPosterior.expected(start, config["summaries"]["start"])
        own = ComposedPosterior.expected(_joined(frame), config["local"])
        return {**own, **{SUMMARIES + name: spec for name, spec in more.items()}}

    @classmethod
    def from_parts(cls, prior: Prior, frame: Frame, config: Mapping[str, Any], arrays: Arrays) -> "RefinedPosterior":
        """The posterior again."""
        region = None if config["region"] is None else read_proposal(config["region"])
        own = prior if region is None else prior.proposing(region)
        start, summaries = _start_frame(frame, config), None
        if start is not None and region is not None:
            more = {name.removeprefix(SUMMARIES): array for name, array in arrays.items() if name.startswith(SUMMARIES)}
            before = ComposedPosterior.from_parts(prior, start, config["summaries"]["start"], more)
            summaries = Summaries(before, centre_of(region, frame.dim))
        local = ComposedPosterior.from_parts(own, frame if start is None else _joined(frame), config["local"], arrays)
        rounds = tuple(Round.read(one, frame.dim) for one in config["rounds"])
        about = config["observations"], rounds, config["agreed"]
        return cls(prior, frame.method, local.history, frame.shape, local, summaries, *about)

    def using(self, *, rule: str | Rule | None = None, sampler: str | Sampler | None = None) -> "RefinedPosterior":
        """As `Posterior.using` says."""
        local = self.local.using(rule=rule, sampler=sampler)
        assert isinstance(local, ComposedPosterior)
        return replace(self, method=local.method, local=local)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """As before; draws outside the region are not to be trusted, and it says so."""
        seen = x if self.summaries is None else self.summaries.join(x)
        drawn, fit = draw_in_region(self.local, seen, draws, seed, options)
        last = self.rounds[-1]
        if fit.missed:
            warnings.warn(
                f"{fit.far:.1%} of the draws lie far outside the region that was simulated, or their mean is at its edge. This "
                f"posterior was refined for one data set of n = {self.n} observations: refine again for another "
                "one, or with more rounds.",
                UntrustworthyDraws,
                stacklevel=4,
            )
            assert isinstance(drawn.info, Info)
            drawn = drawn._replace(info=drawn.info._replace(converged=jnp.array(False)))
        refinement = Refinement(
            drawn.how, self.rounds, sum(one.simulations for one in self.rounds), self.agreed, last.shift,
            float(np.exp(last.widths)), fit,
        )  # fmt: skip
        return drawn._replace(how=refinement)

    def __repr__(self) -> str:
        rounds = "; ".join(f"round {i}: {one}" for i, one in enumerate(self.rounds, 1))
        return (
            f"RefinedPosterior(for one data set of n = {self.n} and its neighbourhood, not for any other; {rounds}; "
            f"{'the last two agree' if self.agreed else 'the last two do not agree yet'})"
        )


def _start_frame(frame: Frame, config: Mapping[str, Any]) -> Frame | None:
    """Of the start, from JSON that is not to be trusted; None where nothing of it is kept."""
    if config["summaries"] is None:
        return None
    summaries = strict.keys(config["summaries"], ("members", "start"), "the summaries")
    if config["region"] is None or not isinstance(summaries["start"], dict):
        raise ModelError("expected a region, and what was trained before, where there are summaries")
    members = strict.whole(summaries["members"], "the members", 1, MOST_RUNS)
    own = frame.method.training
    return frame._replace(
        method=replace(frame.method, training=replace(own, members=members, learning_rates=own.learning_rates[:1]))
    )


def _joined(frame: Frame) -> Frame:
    """Of observations with their summaries."""
    return frame._replace(shape=(math.prod(frame.shape) + frame.dim,))


def draw_in_region(
    local: ComposedPosterior, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS
) -> tuple[Drawn, Fit]:
    """Draws of u, and how they lie in the region."""
    proposal = local.prior.proposal or whole(local.prior.dim)
    if isinstance(proposal, GaussianProposal) and local.prior.proposal is not None:
        sampler = options.sampler or local.method.sampler or "self-tuned"  # also for one set, which could else be reversed
        if get_sampler(sampler).reverses:
            raise ScorefoldError(
                f"expected a Langevin sampler for a posterior refined with Gaussian proposals; got {sampler!r}, which "
                "reverses a diffusion, and the tilted score is not that of one. Use 'self-tuned', or proposal='truncated'."
            )
        options = options._replace(sampler=sampler)
    drawn = local.draw(x, draws, seed, options)
    return drawn._replace(u=proposal.from_w(drawn.u)), fit_of(drawn.u, proposal)
