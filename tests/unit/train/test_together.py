"""Images are judged a few at a time: the memory that compiled programs need does not grow with how many there are.

Programs are compiled for shapes, and never run.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full import shortly

import scorefold as sf
from scorefold.density import set_flow
from scorefold.methods.load import POSTERIORS
from scorefold.noise import levels
from scorefold.posterior.saved import LARGEST_COUNT, About
from scorefold.score import correction
from scorefold.score.denoising import score_validation
from scorefold.score.fixed import Fixed
from scorefold.score.network import ScoreModel
from scorefold.train import rows
from scorefold.train.rows import few_at_a_time
from scorefold.train.training_set import Cases

IMAGE = (32, 32)
MEMBERS = 2
FEW, MANY = 1_024, 8_192
LEVELS = levels("log-snr", 40)


def blank(method):
    """The networks of a method for images, as shapes and types."""
    (kind,) = (kind for kind, methods in POSTERIORS.items() if isinstance(method, methods))
    return kind.blank(About(method, 2, True, IMAGE, {"largest_set": 1}, LARGEST_COUNT))


def cases(count):
    shape = jax.ShapeDtypeStruct
    x = shape((count, 1, int(np.prod(IMAGE))), jnp.float32)
    return Cases(shape((count, 2), jnp.float32), x, shape((count,), jnp.int32))


def bytes_of(function, *shapes):
    """That the compiled program needs besides what goes in and comes out."""
    return jax.jit(lambda *rows: function(*rows)).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


TRAINING = sf.Training(members=MEMBERS)
NPSE = sf.NPSE(set_size=1, width=8, depth=1, embedding="convolution", training=TRAINING)
NPE = sf.NPE(layers=1, width=8, depth=1, embedding="convolution", training=TRAINING)


def member(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


def validating_scores(count):
    (ensemble,) = blank(NPSE)
    fixed = Fixed(LEVELS, ensemble.standardize, ensemble.base)
    return bytes_of(score_validation, member(ensemble.network), fixed, cases(count), jax.random.key(0))


def validating_flows(count):
    network, standardize, base = blank(NPE)
    return bytes_of(set_flow.set_flow_validation, member(network), (standardize, base), cases(count), jax.random.key(0))


def correcting(count):
    (ensemble,) = blank(NPSE)
    knots = jax.tree.map(lambda v: v[:2], LEVELS)
    keys = jax.random.split(jax.random.key(0), 2)
    over_levels = correction._over_levels.__wrapped__
    models = ScoreModel(ensemble.network, ensemble.standardize, ensemble.base)
    return bytes_of(over_levels, models, member(ensemble.network), cases(count), None, knots, keys)


@pytest.mark.parametrize("judge", shortly([validating_scores, validating_flows, correcting], validating_flows))
def test_memory_hardly_grows_with_the_number_of_images(judge, monkeypatch):
    few, many = judge(FEW), judge(MANY)
    print(judge.__name__, few, many)
    images = 4 * MANY * int(np.prod(IMAGE))
    assert many - few < 1.5 * images  # a copy of them at most
    monkeypatch.setattr(rows, "NUMBERS_TOGETHER", 1 << 40)
    few, many = judge(FEW), judge(MANY)
    print("all at once", few, many)
    assert many - few > 3 * images  # what it took all at once


def test_a_few_at_a_time_is_the_same_as_all_at_once(monkeypatch):
    x, u = np.random.default_rng(0).normal(size=(2, 103, 7))

    def one(x, u):
        return {"sum": jnp.sum(x * u), "x": x}

    whole = few_at_a_time(one)(jnp.asarray(x), jnp.asarray(u))
    monkeypatch.setattr(rows, "NUMBERS_TOGETHER", 70)
    parts = few_at_a_time(one)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_array_equal(parts["x"], whole["x"])
    np.testing.assert_allclose(parts["sum"], whole["sum"], rtol=1e-6)


@pytest.mark.parametrize("count", [100, 103])
def test_results_without_numbers_come_a_few_at_a_time_too(count, monkeypatch):
    """Observations that are counts only leave nothing for a density: an array of no columns."""
    monkeypatch.setattr(rows, "NUMBERS_TOGETHER", 70)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(count, 7)))
    empty, first = few_at_a_time(lambda row: (row[7:], row[0]))(x)
    assert empty.shape == (count, 0)
    np.testing.assert_array_equal(first, x[:, 0])
