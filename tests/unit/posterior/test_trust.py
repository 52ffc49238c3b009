"""What members' disagreement says of draws, and observations that are unlike the simulations."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import trust as trust_benchmark
from scorefold.posterior.at_draws import response
from scorefold.posterior.reach import Strangeness, fit_reach
from scorefold.posterior.trust import (
    BAD,
    CALIBRATION,
    GOOD,
    UNKNOWN,
    USABLE,
    Disagreement,
    Doubts,
    MemberScores,
    by_draws,
    by_scores,
    judge,
)  # fmt: skip

NAMES = ("a", "b")
COVARIANCE = np.array([[0.04, 0.01], [0.01, 0.09]])


class Settled:
    converged, diverged = True, False


class Unsettled:
    converged, diverged = False, False


def gaussian_draws(count=4_000):
    return np.random.default_rng(0).multivariate_normal([0.3, -0.2], COVARIANCE, count)


def member_scores(u, means, covariances):
    return np.stack([-(u - m) @ np.linalg.inv(c) for m, c in zip(means, covariances, strict=True)])


def test_a_member_s_shift_is_found_in_posterior_sd():
    u = gaussian_draws()
    moved = np.array([0.05, -0.03])
    scores = member_scores(u, [u.mean(axis=0) + moved, u.mean(axis=0) - moved], [COVARIANCE, COVARIANCE])
    found = by_scores(MemberScores(scores, COVARIANCE), u, u)
    sd = np.sqrt(np.diag(COVARIANCE))
    assert found.shift == pytest.approx(np.stack([moved / sd, -moved / sd]), rel=0.1)
    assert np.abs(found.log_width).max() < 1e-6


def test_a_member_s_width_is_found_as_a_log_ratio():
    u = gaussian_draws()
    scores = member_scores(u, [u.mean(axis=0)] * 2, [1.2 * COVARIANCE, COVARIANCE / 1.2])
    found = by_scores(MemberScores(scores, COVARIANCE), u, u)
    # To first order; the two members are 1.2 times wider and narrower in variance.
    assert found.log_width[0] == pytest.approx([np.log(1.2) / 2] * 2, rel=0.1)
    assert found.log_width[1] == pytest.approx([-np.log(1.2) / 2] * 2, rel=0.1)


def test_parameters_that_are_mapped_keep_their_shift():
    u = gaussian_draws()
    matrix = np.array([[3.0, 0.0], [100.0, 50.0]])
    moved = np.array([0.05, -0.03])
    scores = member_scores(u, [u.mean(axis=0) + moved, u.mean(axis=0) - moved], [COVARIANCE, COVARIANCE])
    expected = matrix @ moved / np.sqrt(np.diag(matrix @ COVARIANCE @ matrix.T))
    assert by_scores(MemberScores(scores, COVARIANCE), u, u @ matrix.T + 7).shift[0] == pytest.approx(expected, rel=0.1)


@pytest.mark.false_failure(1e-6)
def test_modes_far_apart_do_not_make_disagreement_look_large():
    rng = np.random.default_rng(0)
    side = rng.choice([-1.0, 1.0], (1_024, 1))
    u = 0.1 * rng.standard_normal((1_024, 2)) + side * [2.0, 0.0]
    # Each member moves both modes by a fifth of their width.
    own = [-(u - side * [2.0, 0.0] - moved) / 0.01 for moved in ([0.02, 0.0], [-0.02, 0.0])]
    scores = np.stack(own).astype(np.float32)
    found = by_scores(MemberScores(scores, np.asarray(response(jnp.asarray(u, jnp.float32), jnp.asarray(scores)))), u, u)
    assert found.shift[:, 0] == pytest.approx([0.01, -0.01], rel=0.2)  # the sd of all draws is 2
    by_covariance = by_scores(MemberScores(scores, np.cov(u, rowvar=False)), u, u)
    assert np.abs(by_covariance.shift).max() > 1


@pytest.mark.false_failure(1e-6)
def test_members_draws_are_compared_by_mean_and_sd():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((5_000, 1))
    theta = np.stack([z, 0.5 + 2 * z])
    found = by_draws(theta, theta.reshape(-1, 1).mean(axis=0), np.ones(1))
    assert found.shift[:, 0] == pytest.approx([-0.25, 0.25], abs=0.04)
    assert found.log_width[:, 0] == pytest.approx([-np.log(2) / 2, np.log(2) / 2], abs=0.01)


def spread(shift, log_width=0.0):
    """Two members as far apart."""
    both = np.array([[1.0, 0.0], [-1.0, 0.0]])
    return Disagreement(both * shift, both * log_width)


@pytest.mark.parametrize(
    ("doubts", "verdict"),
    [
        (Doubts(spread(0.01)), GOOD),
        (Doubts(spread(0.2)), USABLE),
        (Doubts(spread(2.0)), BAD),
        (Doubts(spread(0.01, 0.08)), USABLE),
        (Doubts(spread(0.01, 0.5)), BAD),
        (Doubts(spread(0.01), floor=0.3), USABLE),
        (Doubts(spread(0.01), strange=Strangeness(0.005, 3, 0.0)), USABLE),
        (Doubts(spread(0.01), strange=Strangeness(1e-6, 3, 0.0)), BAD),
        (Doubts(spread(0.01), strange=Strangeness(1.0, 3, 0.2)), USABLE),
        (Doubts(spread(0.01), strange=Strangeness(1.0, 3, 0.0)), GOOD),
        (Doubts(spread(0.01), found_off=0.5), GOOD),
        (Doubts(spread(0.01), found_off=1.5), BAD),
        (Doubts(spread(np.nan)), BAD),
        (Doubts("there is no ensemble"), UNKNOWN),
    ],
)
def test_verdicts(doubts, verdict):
    found = judge(NAMES, doubts, Settled())
    assert found.verdict == verdict
    assert found.known == (verdict != UNKNOWN)


def test_draws_of_a_sampler_that_has_not_settled_are_never_trusted():
    found = judge(NAMES, Doubts(spread(0.01)), Unsettled())
    assert found.bad
    assert "not settled" in found.why


def test_the_reason_names_the_parameter_and_the_observation():
    found = judge(NAMES, Doubts(spread(0.2), strange=Strangeness(1e-3, 4, 0.0)), Settled())
    assert "most off: a" in found.why
    assert "observation 4 is unlike any simulation" in found.why
    assert found.summary()["shift"]["b"] == 0.0


def simulations(count, rng, noise=1.0):
    u = rng.standard_normal((count, 2))
    x = np.stack([u[:, 0] + u[:, 1] ** 2, u[:, 1]], axis=1) + noise * rng.standard_normal((count, 2))
    return u, x


@pytest.mark.false_failure(1e-6)
def test_simulated_data_sets_are_rarely_called_strange():
    rng = np.random.default_rng(0)
    u, x = simulations(10_000, rng)
    reach = fit_reach(x, u)
    alarms = 0
    for _ in range(400):
        truth, one = rng.standard_normal((1, 2)), np.empty((20, 2))
        mean = np.stack([truth[:, 0] + truth[:, 1] ** 2, truth[:, 1]], axis=1)
        one = mean + rng.standard_normal((20, 2))
        draws = truth + rng.standard_normal((200, 2)) / np.sqrt(20)
        distance = reach.distances(one, draws).max()
        p = 20 * 0.05 * (max(distance, reach.start) / reach.start) ** (-1 / reach.decay)
        alarms += p < 0.01
    assert alarms <= 16  # at most 4 are expected; Poisson: 1e-6


def test_observations_like_none_simulated_are_found():
    rng = np.random.default_rng(1)
    u, x = simulations(5_000, rng)
    reach = fit_reach(x, u)
    draws = 0.1 * rng.standard_normal((200, 2))
    usual = reach.distances(rng.standard_normal((5, 2)), draws)
    strange = reach.distances(np.array([[0.0, 9.0]]), draws)
    assert strange[0] > 2 * usual.max()
    # The same observation is as usual at other parameters.
    assert reach.distances(np.array([[9.0, 3.0]]), draws + np.array([0.0, 3.0]))[0] < reach.start


def test_the_floor_falls_with_simulations_and_rises_with_observations():
    rng = np.random.default_rng(2)
    u, x = simulations(2_000, rng)
    reach, draws = fit_reach(x, u), np.zeros((10, 2))
    assert reach.floor(20, draws) == pytest.approx(0.1)
    assert reach.floor(80, draws) == pytest.approx(0.2)
    assert fit_reach(x, u, cases=8_000).floor(20, draws) == pytest.approx(0.05)


@pytest.mark.parametrize("folder", ["trust", "accuracy_nle"], ids=["composed scores", "likelihoods"])
def test_the_promises_hold_where_the_truth_is_known(folder):
    """Of cells called good 95 % are; of those more than 1 sd off 95 % are not; and enough cells are called good at all.

    The constants were learned from the composed scores' cells alone.
    """
    records = Path(trust_benchmark.__file__).with_name("results") / folder
    found = trust_benchmark.table(trust_benchmark.read(records))
    right, caught, called = trust_benchmark.promises(found, trust_benchmark.Map(*(tuple(one) for one in CALIBRATION)))
    assert len(found.task) >= 250
    assert right >= 0.95
    assert caught >= 0.95
    assert called >= 0.15
