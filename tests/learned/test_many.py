"""Draws for many data sets together: the same as one by one, in bounded memory, compiled once."""

import numpy as np
import pytest

from scorefold import tasks
from scorefold.posterior import clouds, composed

pytestmark = pytest.mark.full  # unit/posterior/test_sample_many.py needs no training

GAUSSIAN = tasks.get("gaussian")
X = np.stack([GAUSSIAN.observe(5, seed)[1] for seed in range(6)])


@pytest.fixture
def posterior(gaussian):
    return gaussian


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"sampler": "langevin"},
        {"rule": "gauss", "sampler": "ancestral"},
        {"rule": "gauss-pilots", "sampler": "ancestral"},
    ],
)
def test_the_same_as_one_by_one(posterior, how):
    many = posterior.sample_many(X[:3], draws=100, seed=2, **how)
    assert many.converged.all()
    for one, drawn in zip(many.theta, posterior.sample(list(X[:3]), draws=100, seed=2, **how), strict=True):
        assert one == pytest.approx(drawn.theta, abs=1e-4)
    assert not {row.tobytes() for row in many.theta[0]} & {row.tobytes() for row in many.theta[1]}


def test_a_seed_for_each_data_set_in_one_program(posterior):
    how = {"sampler": "ancestral", "rule": "gauss"}
    many = posterior.sample_many(X[:2], draws=100, seed=[5, 2**40], **how)
    assert many.theta[1] == pytest.approx(posterior.sample(X[1], draws=100, seed=2**40, **how).theta, abs=1e-4)


def test_their_number_changes_nothing_and_compiles_nothing(posterior, monkeypatch):
    monkeypatch.setattr(composed, "DRAWS_TOGETHER", 4 * 128)
    six = posterior.sample_many(X, draws=100, seed=6)
    before = clouds.draw_many._cached._cache_size()
    one, three = (posterior.sample_many(X[:count], draws=100, seed=6) for count in (1, 3))
    assert clouds.draw_many._cached._cache_size() == before
    assert (one.theta == six.theta[:1]).all()
    assert (three.theta == six.theta[:3]).all()
    assert len({row.tobytes() for row in six.theta.reshape(-1, 10)}) == 600


def test_several_clouds(posterior, monkeypatch):
    monkeypatch.setattr(clouds, "LARGEST_CLOUD", 128)
    many = posterior.sample_many(X[:2], draws=200, seed=7)
    assert many.theta.shape == (2, 200, 10)
    assert len({row.tobytes() for row in many.theta.reshape(-1, 10)}) == 400


@pytest.mark.false_failure(1e-6)
def test_single_scores_add_up(posterior):
    u = GAUSSIAN.prior.to_normal(GAUSSIAN.reference(X[0], 50, 0))
    scores, prior = posterior.single_scores(X[0], u)
    assert scores.shape == (5, 50, 10)
    assert prior == pytest.approx(-u, abs=1e-5)
    # The score of N(m_j, Λ_j⁻¹) at the lowest level, which this base nearly has.
    precision = 1 + 1 / np.linspace(0.6, 1.4, 10)
    exact = -precision * (u - X[0][:, None] / np.linspace(0.6, 1.4, 10) / precision)
    assert np.abs(scores - exact).mean() < 0.3 * np.abs(exact).mean()
