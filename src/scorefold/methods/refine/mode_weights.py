"""How much of a posterior each of its modes holds, and how sure that is.

A mode's weight w_m is its share of the draws. Two things are wrong with it. The sampler: clouds that ran on their own give
shares of their own, whose scatter over C clouds, divided by √C, or that of independent draws if it is larger, is its part of
the standard error. And the learned likelihood: with L_k(u) = Σ_j log q_k(x_j|u) by member k and L̄ the members' mean, which
the draws follow, member k alone would give, to first order in the difference,

    w_mk ∝ w_m exp(mean of L_k(u) - L̄(u) over the draws u of mode m),

and their standard deviation over the members is the other part. Both are added as squares.
"""

import numpy as np

from scorefold.posterior.modes import Mode, count_of, divided, which_of
from scorefold.posterior.summed import SummedPosterior

FARTHEST_LOG = 50.0


def modes_by_scores(u: np.ndarray) -> tuple[Mode, ...]:
    """The modes of draws; scores do not tell how sure their weights are. None where there is one mode."""
    labels = _labels(u)
    return () if labels is None else _modes(u, labels, [None] * (labels.max() + 1))


def modes_by_likelihood(local: SummedPosterior, x: np.ndarray, w: np.ndarray, u: np.ndarray, clouds: int) -> tuple[Mode, ...]:
    """The modes of draws u (w in the likelihood's own space), which lie in so many clouds in turn; none where there is one."""
    labels = _labels(u)
    if labels is None:
        return ()
    sampler = sampling_error(labels, clouds)
    members = local.by_member(x, w)
    learned = np.zeros_like(sampler) if len(members) < 2 else members_error(labels, members)
    return _modes(u, labels, list(np.hypot(sampler, learned)))


def sampling_error(labels: np.ndarray, clouds: int) -> np.ndarray:
    """(modes,) what the sampler leaves open."""
    count = labels.max() + 1
    shares = np.bincount(labels, minlength=count) / len(labels)
    alike = np.sqrt(shares * (1 - shares) / len(labels))
    if clouds < 2:
        return alike
    own = np.stack([np.bincount(labels[i::clouds], minlength=count) / len(labels[i::clouds]) for i in range(clouds)])
    return np.maximum(alike, own.std(axis=0, ddof=1) / np.sqrt(clouds))


def members_error(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(modes,) what members (members, draws) disagree on."""
    count = labels.max() + 1
    shares = np.bincount(labels, minlength=count) / len(labels)
    off = values - values.mean(axis=0)
    means = np.stack([off[:, labels == mode].mean(axis=1) for mode in range(count)], axis=1)
    weights = shares * np.exp(np.clip(means - means.max(axis=1, keepdims=True), -FARTHEST_LOG, 0.0))
    return (weights / weights.sum(axis=1, keepdims=True)).std(axis=0, ddof=1)


def _labels(u: np.ndarray) -> np.ndarray | None:
    modes = divided(u)
    return None if count_of(modes) == 1 else which_of(modes, u)


def _modes(u: np.ndarray, labels: np.ndarray, errors: list[float | None]) -> tuple[Mode, ...]:
    """The heaviest first."""
    found = [
        Mode(u[labels == mode].mean(axis=0), float((labels == mode).mean()), None if error is None else float(error))
        for mode, error in enumerate(errors)
    ]
    return tuple(sorted(found, key=lambda one: -one.weight))
