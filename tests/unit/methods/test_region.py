"""Regions around draws, what misses them, and simulations used again."""

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.methods.refine.region import fit_of, moved, pooled, propose, reusable
from scorefold.prior.proposal import GaussianProposal, whole
from scorefold.simulation.simulate import simulate
from scorefold.tasks.gaussian import standard_normal_prior

RNG = np.random.default_rng(0)
NOWHERE = np.zeros(3)
SD = np.array([0.01, 0.1, 0.9])
DRAWS = np.array([1.0, -0.5, 0.3]) + SD * RNG.standard_normal((1_000, 3))
PRIOR = standard_normal_prior(3)


def simulator(theta, rng):
    return theta + rng.standard_normal(3)


def test_gaussian_regions_are_inflated_up_to_the_prior():
    region = propose("gaussian", DRAWS, 16.0, NOWHERE)
    np.testing.assert_allclose(np.sqrt(np.diag(region.root @ region.root.T)), [0.04, 0.4, 1.0], rtol=0.1)
    np.testing.assert_allclose(region.mean, [1.0, -0.5, 0.0], atol=0.05)
    assert fit_of(region.to_w(DRAWS), region).right
    np.testing.assert_allclose(fit_of(region.to_w(DRAWS), region).widths, 0.25, rtol=0.02)


def test_draws_as_wide_as_the_prior_are_proposed_the_prior():
    region = propose("gaussian", RNG.standard_normal((1_000, 3)) + 0.5, 9.0, NOWHERE)
    assert region.log_excess(whole(3)) == 0.0
    assert fit_of(np.full((10, 3), 4.0) + RNG.standard_normal((10, 3)), region).right  # the prior cannot be missed


@pytest.mark.parametrize("kind", ["gaussian", "truncated"])
def test_every_draw_of_every_mode_is_inside(kind):
    u = np.concatenate([DRAWS[:500], DRAWS[500:] + np.array([0.5, 0.0, 0.0])])
    region = propose(kind, u, 4.0, NOWHERE)
    w = region.to_w(u)
    assert not fit_of(w, region).missed
    assert np.abs(w).max() < 3.5
    np.testing.assert_allclose(region.from_w(w), u, atol=1e-6)


@pytest.mark.parametrize("kind", ["gaussian", "truncated"])
def test_rounds_that_disagree_widen_the_region(kind):
    moved_by = np.array([0.3, 0.0, 0.0])
    close, wide = (propose(kind, DRAWS, 9.0, by) for by in (NOWHERE, moved_by))
    assert not fit_of(wide.to_w(DRAWS - moved_by), wide).missed
    assert fit_of(close.to_w(DRAWS - moved_by), close).missed


def test_unknown_kinds_are_refused():
    with pytest.raises(ScorefoldError, match="unknown proposal 'gausian'"):
        propose("gausian", DRAWS, 9.0, NOWHERE)


@pytest.mark.parametrize(
    ("w", "missed", "right"),
    [(0.3, False, True), (1.2, False, False), (0.05, False, False)],
)
def test_widths(w, missed, right):
    fit = fit_of(w * RNG.standard_normal((1_000, 2)), GaussianProposal(np.zeros(2), 0.1 * np.eye(2)))
    assert (fit.missed or w > 1, fit.right) == (missed or w > 1, right)


@pytest.mark.false_failure(1e-6)
def test_movement():
    before, after = RNG.standard_normal((50_000, 2)), 2 * RNG.standard_normal((50_000, 2)) + [2.0, -2.0]
    shift, widths = moved(before, after)
    np.testing.assert_allclose([shift, widths], [1.0, np.log(2)], atol=0.03)


@pytest.mark.false_failure(4e-6)
def test_simulations_used_again_are_distributed_as_the_proposal():
    old = GaussianProposal(np.array([0.5, 0.0, 0.0]), np.diag([0.5, 0.6, 0.7]))
    new = GaussianProposal(np.array([0.6, 0.1, 0.0]), np.diag([0.3, 0.4, 0.5]))
    sims = simulate(PRIOR.proposing(old), simulator, 6_000, seed=1)
    kept = reusable(sims, old, new, 3)
    w = PRIOR.proposing(new).to_normal(sims.theta[kept])
    np.testing.assert_allclose(kept.mean(), np.exp(-new.log_excess(old)), atol=0.04)  # 6 sd
    for i in range(3):
        assert stats.kstest(w[:, i], "norm").pvalue > 1e-6


def test_what_is_pooled():
    region = propose("gaussian", DRAWS, 9.0, NOWHERE)
    fresh, same = (simulate(PRIOR.proposing(region), simulator, 150, seed=seed) for seed in (1, 2))
    other = simulate(PRIOR.proposing(GaussianProposal(np.zeros(3), 1e-3 * np.eye(3))), simulator, 150, seed=3)
    cases = pooled(fresh, [(region, same), (other.prior.proposal, other)], region, 0)
    assert len(cases.theta) == 288  # of 300, so that few numbers of cases are compiled for
    assert np.array_equal(cases.theta[:150], fresh.theta)
    assert np.array_equal(cases.theta[150:], same.theta[:138])
    assert len(np.unique(cases.origin)) == 288
    assert cases.prior == fresh.prior


def test_cases_of_one_parameter_draw_stay_together():
    from scorefold.simulation.simulations import split

    sims = split(simulate(PRIOR, simulator, 600, set_size=4, seed=1), 1)
    new = GaussianProposal(np.zeros(3), 0.7 * np.eye(3))
    kept = reusable(sims, whole(3), new, 0)
    assert 0 < kept.sum() < len(kept)
    for origin in np.unique(sims.origin):
        assert len(set(kept[sims.origin == origin])) == 1


def test_the_public_verb_knows_proposals():
    assert isinstance(PRIOR.proposing(whole(3)), sf.Prior)
