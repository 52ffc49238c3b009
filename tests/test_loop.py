"""The loop for any network: it finds a known minimum, keeps the best weights and is decided by the seed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.errors import ScorefoldError
from scorefold.train import loop
from scorefold.train.cases import Stream, folds, held_out
from scorefold.train.loop import Lesson, Objective, train
from scorefold.train.training import Training

COUNT = 500
RNG = np.random.default_rng(0)
X = RNG.standard_normal(COUNT)
CASES = (jnp.asarray(X), jnp.asarray(3 * X - 1 + 0.1 * RNG.standard_normal(COUNT)))
UNSEEN = held_out(folds(np.arange(COUNT), 0), 2)
TRAINING = Training(members=2, learning_rates=(1e-4, 3e-2), steps=300, weight_decay=0.0, average=0.9)


class Slope(eqx.Module):
    weight: jax.Array
    bias: jax.Array

    def __init__(self, shape, *, key):
        self.weight, self.bias = jax.random.normal(key, shape), jnp.zeros(())


def squares(network, fixed, cases, key):
    return jnp.mean((network.weight[0] * cases[0] + network.bias - cases[1]) ** 2) + 0.0 * fixed


def broken(network, fixed, cases, key):
    return jnp.nan * network.bias


def trained(seed=0, loss=squares):
    lesson = Lesson(CASES, jnp.zeros(()), UNSEEN, seed)
    return train(Objective(Slope, (1,), loss, loss), [lesson], TRAINING, base=True)[0]


def test_it_finds_the_line_with_the_better_learning_rate():
    network, history = trained()
    np.testing.assert_allclose(network.weight[:, 0], 3, atol=0.03)
    np.testing.assert_allclose(network.bias, -1, atol=0.03)
    assert history.learning_rate == 3e-2
    assert history.validation.shape == (2, history.train.shape[1] + 1)
    assert (history.validation[np.arange(2), history.kept] == history.validation.min(axis=1)).all()


def test_it_learns_from_blocks_that_stream_by():
    """What is held is the first half of the cases, and is only there to judge by."""
    fold = folds(np.arange(COUNT), 0)
    asked = []

    def take(rows):
        asked.append(rows)
        return tuple(v[rows] for v in CASES)

    held = tuple(v[: COUNT // 2] for v in CASES)
    lesson = Lesson(held, jnp.zeros(()), held_out(fold[: COUNT // 2], 2), 0, Stream(take, fold, 8, 0))
    before = loop._round._cache_size()
    network, history = train(Objective(Slope, (1,), squares, squares), [lesson], TRAINING, base=True)[0]
    np.testing.assert_allclose(network.weight[:, 0], 3, atol=0.05)
    np.testing.assert_allclose(network.bias, -1, atol=0.05)
    assert loop._round._cache_size() == before + 1
    # 32 of the 40 cases of a block make one step, so 50 blocks are a round.
    assert len(asked) == 50 * history.train.shape[1] == 300
    assert len(np.unique(np.concatenate(asked))) == COUNT


def test_the_seed_decides():
    one, again, other = trained(0), trained(0), trained(1)
    assert (one[0].weight == again[0].weight).all()
    assert (one[0].weight != other[0].weight).any()


def test_a_loss_that_is_not_a_number_is_refused():
    with pytest.raises(ScorefoldError, match="training failed"):
        trained(loss=broken)
