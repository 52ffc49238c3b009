"""Whether a likelihood's network is better than the straight line that it starts from: cases that it did not see say.

Training keeps the weights with the best held-out log likelihood. That is mostly about what x looks like at any u, and little
about how x depends on u, which is all that counts here, and counts n times. So line and network are compared by how far their
scores are off (`score_error.py`), every case by a member that did not see it, and the network is kept if it is better by more
than a standard error ("Classification and regression trees", Breiman, Friedman, Olshen and Stone, 1984).
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density.mean_terms import MeanTerms
from scorefold.methods.refine.score_error import Scores, difference, scores_at, steps
from scorefold.posterior.check import FEWEST_SETS
from scorefold.posterior.summed import SummedPosterior
from scorefold.simulation.simulations import Simulations
from scorefold.train.rows import bucket
from scorefold.train.training_set import training_sets

CENTRAL = 2.0
"""Sd of the frame: cases farther out say little of where the posterior is."""
OF_FRAME = 0.5
"""The draws' sd, in sd of a frame."""
ENOUGH = 2_048
"""Cases: more would take long."""


def line_or_network(local: SummedPosterior, cases: Simulations, seed: int, n: int) -> tuple[SummedPosterior, bool]:
    """A likelihood trained on these cases with this seed, for n observations: with its network or without, and which."""
    terms = local.terms
    if not isinstance(terms, MeanTerms) or terms.line is None:
        return local, True
    training = local.method.training
    made = training_sets([cases], 1, training, [seed])[0]
    unseen = made.unseen(training.members) & (np.abs(made.u) < CENTRAL).all(axis=1)
    first = np.where(unseen.any(axis=0), unseen.argmax(axis=0), -1)
    rows = [_some(np.flatnonzero(first == member), ENOUGH // training.members) for member in range(training.members)]
    alone = line_alone(local)
    if sum(map(len, rows)) < FEWEST_SETS:
        return alone, False
    u = np.concatenate([made.u[own] for own in rows])
    root, found = OF_FRAME * np.eye(u.shape[1]), []
    for one in (terms, alone.terms):
        each = [_scores(local, one, member, made.x[own, 0], made.u[own], root) for member, own in enumerate(rows) if len(own)]
        found.append(Scores(*(np.concatenate(part) for part in zip(*each, strict=True))))
    worse, chance = difference(found[1], found[0], u, root @ root.T, n)
    kept = bool(worse > chance)
    return (local if kept else alone), kept


def _some(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many, spread over all of them."""
    return rows[:: max(1, -(-len(rows) // max(most, 1)))]


def line_alone(local: SummedPosterior) -> SummedPosterior:
    """The same likelihood with networks that add nothing."""
    terms: Any = local.terms
    return replace(local, terms=replace(terms, network=jax.tree.map(jnp.zeros_like, terms.network)))


def _scores(local: SummedPosterior, terms: Any, member: int, x: np.ndarray, u: np.ndarray, root: np.ndarray) -> Scores:
    """By one member, at cases that are filled up to a bucket's size: few programs serve any number of them."""
    alone = replace(terms, network=jax.tree.map(lambda v: v[member : member + 1], terms.network))
    room = bucket(len(u))
    x, at = np.resize(x, (room, x.shape[1])), np.resize(u, (room, u.shape[1]))
    found = scores_at(replace(local, terms=alone), x, at, steps(room, root, member))
    return Scores(found.score[: len(u)], found.bend[: len(u)])
