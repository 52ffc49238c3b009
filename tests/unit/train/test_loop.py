"""The loop for any network: it finds a known minimum, keeps the best weights and is decided by the seed."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold import types
from scorefold.errors import ScorefoldError
from scorefold.train import loop, schedule
from scorefold.train.loop import train
from scorefold.train.steps import Objective
from scorefold.train.training import Training, pace_of
from scorefold.train.training_set import Stream, TrainingSet, folds

COUNT = 500
RNG = np.random.default_rng(0)
X = RNG.standard_normal(COUNT)
CASES = (jnp.asarray(X), jnp.asarray(3 * X - 1 + 0.1 * RNG.standard_normal(COUNT)))
FOLD, NOTHING = folds(np.arange(COUNT), 0), np.zeros((COUNT, 1))
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


def trained(seed=0, loss=squares, training=TRAINING):
    data = TrainingSet(NOTHING, CASES, FOLD, seed)
    return train(Objective(Slope, (1,), loss, loss), [data], [jnp.zeros(())], training, base=True)[0]


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
    data = TrainingSet(NOTHING[: COUNT // 2], held, fold[: COUNT // 2], 0, Stream(take, fold, 8, 0))
    before = loop.advance._cache_size()
    network, history = train(Objective(Slope, (1,), squares, squares), [data], [jnp.zeros(())], TRAINING, base=True)[0]
    np.testing.assert_allclose(network.weight[:, 0], 3, atol=0.05)
    np.testing.assert_allclose(network.bias, -1, atol=0.05)
    assert loop.advance._cache_size() == before + 1
    # 32 of the 40 cases of a block make one step, so 50 blocks are a round.
    assert len(asked) == 50 * history.train.shape[1] == 300
    assert len(np.unique(np.concatenate(asked))) == COUNT


def test_the_seed_decides():
    one, again, other = trained(0), trained(0), trained(1)
    assert (one[0].weight == again[0].weight).all()
    assert (one[0].weight != other[0].weight).any()


@pytest.mark.parametrize("training", [TRAINING, replace(TRAINING, steps=50_000, patience=4)], ids=["limit", "patience"])
@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_runs_are_the_same_however_many_cores_share_them(cores, training, monkeypatch):
    """Rounds of several runs are done out of step, and may go beyond the end of all; nothing of that shows."""

    def by(cores):
        for module in (loop, types):
            monkeypatch.setattr(module, "cores", lambda: cores)
        return trained(training=training)

    alone = by(1)
    before = loop.advance._cache_size(), loop.validate._cache_size()
    network, history = by(cores)
    assert (loop.advance._cache_size(), loop.validate._cache_size()) == before, "nothing was compiled for it"
    np.testing.assert_array_equal(network.weight, alone[0].weight)
    np.testing.assert_array_equal(history.validation, alone[1].validation)
    np.testing.assert_array_equal(history.train, alone[1].train)


@pytest.mark.false_failure(1e-6, "300 weights fitted to the noise of 400 cases")
def test_what_learns_nothing_ends_after_its_trial():
    """The slope's noise is all there is to learn, and the weights begin at the answer."""

    class Zero(eqx.Module):
        weight: jax.Array

        def __init__(self, shape, *, key):
            self.weight = jnp.zeros(shape)

    def noise(network, fixed, cases, key):
        return jnp.mean((cases[1] - cases[0] @ network.weight) ** 2) + 0.0 * fixed

    rng = np.random.default_rng(2)
    cases = jnp.asarray(rng.standard_normal((COUNT, 300))), jnp.asarray(rng.standard_normal(COUNT))
    data = TrainingSet(NOTHING, cases, FOLD, 0)
    training = Training(members=3, learning_rates=(0.03,), steps=50_000, batch=32, weight_decay=0.1)
    _, history = train(Objective(Zero, (300,), noise, noise), [data], [jnp.zeros(())], training, base=True)[0]
    assert (history.kept < 3).all()
    assert history.train.shape == (3, schedule.limits_of(training, pace_of(training, 400, False)).trial)


def test_a_loss_that_is_not_a_number_is_refused():
    with pytest.raises(ScorefoldError, match="training failed"):
        trained(loss=broken)


class Weights(eqx.Module):
    matrix: jax.Array

    def __init__(self, shape, *, key):
        self.matrix = 0.01 * jax.random.normal(key, shape)


def distances(network, fixed, cases, key):
    return jnp.mean((cases[0] @ network.matrix - cases[1]) ** 2) + 0.0 * fixed


def test_the_first_rounds_decide_on_the_weight_decay():
    """Large weights without noise want little of it; weights that only fit noise, much."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 60))
    targets = {0.1: 3 * x[:, :1], 1.0: rng.standard_normal((120, 1))}
    objective = Objective(Weights, (60, 1), distances, distances)
    training = Training(members=4, learning_rates=(3e-2,), steps=50 * (schedule.TRIAL_ROUNDS + 10), batch=32, patience=99)
    for decay, y in targets.items():
        data = TrainingSet(NOTHING[:120], (jnp.asarray(x), jnp.asarray(y)), folds(np.arange(120), 0), 0)
        program = loop._program(objective, [data], [jnp.zeros(())], training)
        state = loop._run_rounds(program, False, None)
        np.testing.assert_allclose(state.arrays["decays"], decay)


def test_only_matrices_decay():
    """With nothing to learn a matrix goes to zero, and all else stays."""

    class Both(eqx.Module):
        matrix: jax.Array
        vector: jax.Array

        def __init__(self, shape, *, key):
            self.matrix, self.vector = jnp.ones(shape), jnp.ones(shape[:1])

    def nothing(network, fixed, cases, key):
        return 1.0 + 0.0 * (jnp.sum(network.matrix) + jnp.sum(network.vector) + jnp.sum(cases[0]) + fixed)

    def shrinking(network, fixed, cases, key):
        return jnp.sum(network.matrix) + 0.0 * (jnp.sum(network.vector) + jnp.sum(cases[0]) + fixed)

    data = TrainingSet(NOTHING, CASES, FOLD, 0)
    training = Training(members=1, learning_rates=(1e-2,), steps=200, weight_decay=1.0, average=0.0)
    network, _ = train(Objective(Both, (2, 2), nothing, shrinking), [data], [jnp.zeros(())], training, base=True)[0]
    # 100 steps of a rate that rises, 60 of the full one and 40 of one that falls: e^{-(50 + 60 + 20) · 0.01} for the matrix.
    np.testing.assert_allclose(network.matrix, np.exp(-1.3), rtol=0.1)
    np.testing.assert_allclose(network.vector, 1)


def product(network, fixed, cases, key):
    return network.weight[0] * jnp.dot(cases[0], cases[1])


def test_validation_is_as_precise_as_draws_are():
    """On accelerators products of float32 matrices are rounded to fewer bits unless all are asked for."""
    data = TrainingSet(NOTHING, CASES, FOLD, 0)
    program = loop._program(Objective(Slope, (1,), product, product), [data], [jnp.zeros(())], TRAINING)
    data = program.data
    runs = loop.untrained(program.setup.objective, data.keys)
    text = loop.validate.lower(program.setup, data.unseen, data.roots, runs, data.fixed, data.cases).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products)
