"""Sets in which calls failed: what is left are fair cases for p(θ) ∏ p(x_j, ok | θ)."""

import warnings

import failing
import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.errors import ScorefoldWarning
from scorefold.simulation.screening import fails_by_theta, say_likelihood_alone
from scorefold.simulation.simulations import cut, split

SIMS = failing.simulations(60_000, set_size=4)


def close(u, s, limit=5.5):
    """Within so many standard errors of what s successes leave: 4 times in 10⁸ not."""
    mean, variance = failing.given_success(s)
    return abs(u.mean() - mean) < limit * np.sqrt(variance / len(u))


def test_calls_are_counted_where_some_failed():
    assert SIMS.calls.sum() <= SIMS.budget
    assert (SIMS.calls >= SIMS.sizes).all()
    assert (SIMS.calls > SIMS.sizes).any()
    assert SIMS.failed == SIMS.budget - SIMS.sizes.sum()


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_sets_of_s_or_more_come_from_parameters_with_s_successes(m):
    parts = split(SIMS, m)
    assert parts.calls is None
    for s in range(1, m + 1):
        assert close(parts.theta[parts.sizes >= s, 0], s)
    if m > 1:
        assert not close(parts.theta[parts.sizes == 1, 0], 1), "the second call may be the one that failed"


def test_a_set_holds_observations_of_its_own_case_once():
    own = SIMS._replace(
        x=np.where(np.arange(4)[:, None] < SIMS.sizes[:, None, None], np.arange(len(SIMS.x))[:, None, None], -1.0)
    )
    numbered = own._replace(
        x=np.concatenate([own.x[..., :1], np.broadcast_to(np.arange(4.0)[:, None], own.x[..., :1].shape)], 2)
    )
    parts = cut(numbered, 2)
    sets = parts.take(np.arange(len(parts.case)))
    real = np.arange(2) < sets.sizes[:, None]
    assert np.array_equal(sets.x[..., 0][real], np.repeat(parts.case, sets.sizes))
    pairs = sets.x[real]
    assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_one_by_one_nothing_is_lost():
    assert len(cut(SIMS, 1).case) == SIMS.sizes.sum()


def test_whether_failing_depends_on_theta():
    assert fails_by_theta(failing.simulations(2_000))
    some = failing.simulations(2_000)
    rng = np.random.default_rng(0)
    assert not fails_by_theta(some._replace(theta=rng.standard_normal(some.theta.shape)))
    assert not fails_by_theta(some._replace(failed=0))


def test_a_likelihood_alone_is_said():
    with pytest.warns(ScorefoldWarning, match=r"failing depends on θ, and NLE .* Use method='f-npse'"):
        say_likelihood_alone(failing.simulations(2_000), "NLE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        say_likelihood_alone(failing.simulations(2_000)._replace(failed=0), "NLE")


SAID = {
    "several lines": (RuntimeError("solver [did] not\nconverge"), r"raised: RuntimeError: solver \[did\] not converge\."),
    "no message": (ZeroDivisionError(), r"raised: ZeroDivisionError\."),
    "a novel": (ValueError("no end " * 1_000), r"raised: ValueError: no end (no end ){20,50}…\."),
}


@pytest.mark.parametrize("what", SAID)
def test_what_the_first_failure_said_is_one_line_and_whole(what):
    error, message = SAID[what]

    def simulator(theta, rng):
        if rng.random() < 0.05:
            raise error
        return theta

    with pytest.warns(ScorefoldWarning, match=message):
        sf.simulate(sf.Prior({"a": scipy.stats.norm(0, 1)}), simulator, 200)


def test_failures_are_counted_once_as_they_happen(capsys, monkeypatch):
    monkeypatch.setattr("scorefold.progress.SECONDS_A_LINE", 0.0)
    prior = sf.Prior({"a": scipy.stats.norm(0, 1)})

    def simulator(theta, rng):
        calls.append(1)
        return np.nan if len(calls) == 3 else theta

    calls: list[int] = []
    with pytest.warns(ScorefoldWarning, match="1 of 100 simulations failed"):
        sf.simulate(prior, simulator, 100, progress=True)
    said = capsys.readouterr().err
    assert "1 failed" in said
    assert "2 failed" not in said
