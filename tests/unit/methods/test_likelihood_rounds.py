"""Where rounds of likelihoods simulate, which cases they take, and what a likelihood in a frame draws; no training."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import scorefold as sf
from scorefold.methods.nle import local_likelihood
from scorefold.methods.refine import around_draws
from scorefold.methods.refine.around_draws import Job, first_draws, spread
from scorefold.methods.refine.cases import EDGE, near_modes, nearest, together
from scorefold.methods.refine.cases import FRAME as FRAME_INFLATION
from scorefold.methods.refine.likelihood_rounds import Fitting, _each_mode_moved_on
from scorefold.methods.refine.region import moved_within_modes, propose, round_number
from scorefold.posterior.refining import Refining
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior.proposal import GaussianProposal
from scorefold.tasks.gaussian import standard_normal_prior
from scorefold.types import Array

PRIOR = standard_normal_prior(2)
PLAN = Refining(600, 2, 0, "gaussian", None, None, None, False)
FRAME = GaussianProposal(np.array([0.8, -0.4]), np.array([[0.3, 0.1], [0.1, 0.2]]))


@pytest.mark.false_failure(1e-6)
def test_every_mode_gets_simulations_in_proportion_and_of_its_own_shape():
    rng = np.random.default_rng(0)
    wide, narrow = np.array([0.3, 0.02]), np.array([0.02, 0.3])
    u = np.concatenate([[2, 0] + wide * rng.normal(size=(700, 2)), [-2, 0] + narrow * rng.normal(size=(300, 2))])
    places = spread(u, 20_000, 0)
    right = places[:, 0] > 0
    assert abs(right.mean() - 0.7) < 0.02
    for mode, sd in ((places[right], wide), (places[~right], narrow)):
        ratio = mode.std(axis=0) / sd
        assert (ratio > 1.02).all()
        assert (ratio < 3).all()


def some_simulations(count, seed):
    theta = PRIOR.sample(count, seed=seed)
    return sf.Simulations(PRIOR, theta, theta + 1)


def test_all_simulations_in_the_frame_are_cases_in_its_own_space():
    parts = [some_simulations(60, 0), some_simulations(80, 1)]
    joined = together(parts)
    assert len(np.unique(joined.origin)) == 140
    cases = nearest(joined, FRAME, PRIOR)
    w = FRAME.to_w(PRIOR.to_normal(joined.theta))
    far = np.abs(w).max(axis=1)
    count = round_number(int((far < EDGE).sum()))
    assert 0 < count < (far < EDGE).sum() < 140
    nearby = far <= np.sort(far)[count - 1]
    assert np.array_equal(cases.theta, joined.theta[nearby])
    assert np.allclose(cases.prior.to_normal(cases.theta), w[nearby], atol=1e-5)


def in_two_modes(share, count=1_000):
    """Draws of w around ±2, so many of them on the lower side."""
    rng = np.random.default_rng(1)
    side = np.where(np.arange(count) < share * count, -2.0, 2.0)
    return np.stack([side, np.zeros(count)], axis=1) + 0.1 * rng.normal(size=(count, 2))


@pytest.mark.false_failure(1e-9)
def test_around_several_modes_the_cases_near_one_of_them_count():
    cases = nearest(some_simulations(4_000, 2), GaussianProposal(np.zeros(2), np.eye(2)), PRIOR)
    near, places = near_modes(cases, in_two_modes(0.4))
    assert np.allclose(np.sort(places.centre[:, 0]), [-2, 2], atol=0.05)
    assert np.abs(np.abs(near.theta[:, 0]) - 2).max() < EDGE * 2 * 0.15
    assert 0 < len(near.theta) < len(cases.theta) / 2
    few = nearest(some_simulations(60, 2), GaussianProposal(np.zeros(2), np.eye(2)), PRIOR)
    same, nowhere = near_modes(few, in_two_modes(0.4))
    assert nowhere is None
    assert same is few


def squares(theta, rng):
    """The sign of the first parameter cannot be told."""
    return np.array([theta[0] ** 2, theta[1]]) + 0.3 * rng.normal(size=2)


@pytest.mark.false_failure(1e-9)
def test_each_mode_moves_on_by_itself_and_none_gets_lost():
    """One has a fortieth of the draws, and both are off; with one line for both they would be at 0."""
    rng = np.random.default_rng(3)
    side = np.where(np.arange(1_000) < 975, 1.0, -1.0)
    before = np.stack([side * 1.15, np.full(1_000, 0.4)], axis=1) + 0.08 * rng.normal(size=(1_000, 2))
    theta = spread(before, 800, 0) * np.where(rng.uniform(size=(800, 1)) < 0.5, [[-1, 1]], [[1, 1]])
    observed = np.stack([squares(one, rng) for one in theta])[:, None].astype(np.float32)
    sims = some_simulations(800, 0)._replace(theta=theta, x=observed)
    x = np.stack([squares([1.0, 0.5], rng) for _ in range(20)])
    method = sf.NLE(layers=2, width=8, depth=1, tails=False, training=sf.Training(members=2))
    job = Job(SummedPosterior(PRIOR, method, InFrame(jnp.zeros(2), jnp.eye(2)), None, (2,)), x, squares, PLAN, method)
    frame = propose("gaussian", before, FRAME_INFLATION, np.zeros(2))
    _, after = _each_mode_moved_on(Fitting(frame, together([sims]), before, 0), job)
    lower = after[:, 0] < 0
    assert lower.mean() == pytest.approx(0.5, abs=0.01)
    sd = 0.3 / np.sqrt(20) / 2
    for own, where in ((~lower, 1.0), (lower, -1.0)):
        assert after[own, 0].mean() == pytest.approx(where * np.sqrt(x[:, 0].mean()), abs=1.5 * sd)
        assert after[own, 0].std() == pytest.approx(sd, rel=0.4)
    assert moved_within_modes(after, after[lower]) == pytest.approx((0, 0), abs=1e-6)


def test_a_mode_of_copies_of_few_draws_does_not_say_how_far_it_moved():
    rng = np.random.default_rng(4)
    before = rng.normal(size=(1_000, 2)) * 0.1 + np.where(np.arange(1_000) < 500, 1.0, -1.0)[:, None]
    after = before + np.array([0.02, 0.0])
    after[500:] = after[500]
    assert moved_within_modes(before, after) == pytest.approx(moved_within_modes(before[:500], after[:500]), abs=0.02)
    assert np.isfinite(moved_within_modes(before, np.tile(after[500], (1_000, 1)))).all()


@pytest.mark.false_failure(1e-9)
def test_the_first_draws_are_as_wide_as_the_start_may_be_off(monkeypatch):
    terms = InFrame(jnp.zeros(2), jnp.eye(2))
    start = SummedPosterior(PRIOR, sf.NLE(), terms, None, (2,))
    x = np.array([[0.9, -0.6], [1.3, 0.1], [0.4, -0.9]])
    begun, same = first_draws(start, x, (0, 0))
    assert same is begun  # there is no ensemble that could say how far it is off
    monkeypatch.setattr(around_draws, "expected_shift", lambda doubts: np.array([2.0, 1.0]))
    begun, wide = first_draws(start, x, (0, 0))
    precision = 1 + len(x) / 0.5**2
    tempered = 1 + len(x) / 0.5**2 / (1 + (2.0**2 + 1.0**2) / 2)
    assert np.allclose(begun.std(axis=0), precision**-0.5, rtol=0.15)
    assert np.allclose(wide.std(axis=0), tempered**-0.5, rtol=0.15)


class InFrame(eqx.Module):
    """log N(x | u, s² I) as a function of w."""

    mean: Array
    root: Array
    noise: float = 0.5

    def prepare(self, x):
        return x

    def term(self, w, x):
        return -jnp.sum((x - self.mean - self.root @ w) ** 2) / (2 * self.noise**2)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("sampler", ["smc", "nuts"])
def test_a_likelihood_learned_in_a_frame_draws_the_posterior_under_the_prior(sampler):
    terms = InFrame(jnp.asarray(FRAME.mean, jnp.float32), jnp.asarray(FRAME.root, jnp.float32))
    posterior = SummedPosterior(PRIOR.proposing(FRAME), sf.NLE(sampler=sampler), terms, None, (2,))
    x = np.array([[0.9, -0.6], [1.3, 0.1], [0.4, -0.9]])
    u = FRAME.from_w(posterior.draw(x, 2_000, (0, 0)).u)
    precision = 1 + len(x) / 0.5**2
    mean, sd = x.sum(axis=0) / 0.5**2 / precision, precision**-0.5
    assert np.abs(u.mean(axis=0) - mean).max() < 0.25 * sd
    assert np.abs(u.std(axis=0) / sd - 1).max() < 0.15


@pytest.mark.parametrize("own", [None, sf.Training(members=1, steps=50)])
def test_a_likelihood_beside_the_scores_is_trained_as_the_caller_says_or_shortly(own):
    plan = Refining(600, 2, 0, "gaussian", own, None, 0, False)
    method = local_likelihood(plan)
    assert method.training == (own or sf.Training(members=3, learning_rates=(1e-3,), steps=3_000))
    assert method.training.steps < sf.NLE().training.steps
