"""Checks by simulations at the draws, on a posterior that is right and on others that are spoiled by known errors."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from linear_posterior import NOISE, exact, linear_posterior, simulator, spoiled
from untrained import untrained

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.posterior import sum_of_terms
from scorefold.posterior.check import Simulating, run_check
from scorefold.posterior.draws import Drawn
from scorefold.posterior.pair_moments import SLOPE_BOUNDS, Pairs, _stable, moments, of_observations
from scorefold.posterior.trust import BAD, GOOD
from scorefold.score.local_mean import LocalMean

N, SIMS = 30, 3_000
X = np.array([0.4, -0.3]) + NOISE * np.random.default_rng(3).standard_normal((N, 2))
RIGHT = linear_posterior()


def off(posterior):
    """Shift and width against the true posterior."""
    mean, sd = exact(X)
    draws = posterior.sample(X, 2_000)
    return (draws.theta.mean(axis=0) - mean) / sd, draws.theta.std(axis=0) / sd, draws.trust


class Scores:
    """Scores c g + offset + slope u, with g exact for x = θ + noise."""

    def __init__(self, offset=(0.0, 0.0), slope=(0.0, 0.0), factor=1.0):
        self.prior, self.shape = RIGHT.prior, (2,)
        self.offset, self.slope, self.factor = np.array(offset), np.array(slope), factor

    lowest_noise = 0.0

    def checked_size(self, n):
        return 1

    def unseen(self, x, u):
        return np.zeros((2, 2))

    def at_pairs(self, x, u):
        score = self.factor * (x[:, 0] - u) / NOISE**2 + self.offset + self.slope * u
        jacobian = np.diag(-self.factor / NOISE**2 + self.slope)
        return Pairs(score, np.broadcast_to(jacobian, (len(u), 2, 2)))

    def posterior(self):
        """Mean and sd of what draws follow."""
        precision = N * (self.factor / NOISE**2 - self.slope) + 1
        return (self.factor * X.sum(axis=0) / NOISE**2 + N * self.offset) / precision, precision**-0.5


@pytest.mark.parametrize(
    "scores",
    [Scores(), Scores(offset=(0.3, -0.1)), Scores(slope=(-0.5, -0.2)), Scores(factor=1.5), Scores(factor=0.7)],
    ids=["right", "offset", "slope", "too large", "too small"],
)
@pytest.mark.false_failure(1e-6)
def test_known_errors_are_found_within_their_standard_errors(scores):
    (mean, sd), (true_mean, true_sd) = scores.posterior(), exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    found = run_check(scores, X, u, Simulating(simulator, 20_000, 0, None, False))
    # The draws' own mean is known to 1/√1000 sd only.
    assert np.abs(found.shift - (mean - true_mean) / sd).max() < 5.5 * np.hypot(found.shift_error, 0.04).max() + 0.1
    assert np.abs(found.log_width - np.log(sd / true_sd)).max() < 5.5 * found.log_width_error.max() + 0.05
    assert found.shift_error == pytest.approx(np.sqrt(N / 20_000) * np.ones(2), rel=0.3)


class Doubtful(Scores):
    """Its members differ in the score of these observations."""

    def unseen(self, x, u):
        assert x.shape == (N, 2)
        return np.diag([0.0, (0.4 / u[:, 1].std()) ** 2])


@pytest.mark.false_failure(1e-9)
def test_what_members_say_of_these_observations_joins_the_standard_error():
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    how = Simulating(simulator, 20_000, 0, None, False)
    plain, found = run_check(Scores(), X, u, how), run_check(Doubtful(), X, u, how)
    assert found.shift_error[0] == pytest.approx(plain.shift_error[0], rel=0.1)
    assert found.shift_error[1] == pytest.approx(np.hypot(plain.shift_error[1], 0.4), rel=0.1)
    assert np.array_equal(found.shift, plain.shift)
    assert np.allclose(found.correction.offset, plain.correction.offset)
    assert found.correction.error[1, 1] > 10 * plain.correction.error[1, 1]


@pytest.mark.false_failure(1e-9)
def test_what_is_the_same_for_all_observations_simulations_can_tell():
    rng = np.random.default_rng(0)
    bias, own = rng.normal(size=(4, 1, 2)), 0.3 * rng.normal(size=(4, 5_000, 2))
    assert np.allclose(of_observations(bias + np.zeros((4, 50, 2))), 0)
    assert np.allclose(of_observations(bias + own), 5_000 * 0.3**2 * np.eye(2), rtol=0.1, atol=30)


@pytest.mark.false_failure(1e-9)
def test_draws_of_several_modes_are_not_corrected_by_a_straight_line():
    u = np.random.default_rng(0).standard_normal((1_000, 2)) / 10
    how = Simulating(simulator, 400, 0, None, False)
    one, two = (run_check(Scores(), X, u + side * (np.arange(1_000) % 2)[:, None], how) for side in (0, 2))
    assert one.correction_for(RIGHT.prior, (2,)) is one.correction
    with pytest.raises(ScorefoldError, match="expected draws with one mode to correct; got several"):
        two.correction_for(RIGHT.prior, (2,))


def test_scores_of_members_are_the_gradients_of_their_terms():
    posterior = untrained("nle")
    x, u = jnp.ones((16, 2)) * jnp.arange(16)[:, None] / 10, jnp.array([0.2, -0.1])
    scores = sum_of_terms.scores_of_members(posterior.terms, x, u)
    mean = sum_of_terms.paired_scores(posterior.terms, x, jnp.tile(u, (16, 1)))
    assert scores.shape == (2, 16, 2)
    assert np.allclose(scores.mean(axis=0), mean, rtol=1e-4, atol=1e-4)
    assert posterior.unseen(np.asarray(x), np.asarray(u)[None]).shape == (2, 2)


class InAPlane(Scores):
    """Of x = u_1 + u_2 + noise: one number tells of two parameters."""

    def at_pairs(self, x, u):
        score = (x[:, 0] - u.sum(axis=1, keepdims=True)) * np.ones(2)
        return Pairs(score, np.full((len(u), 2, 2), -1.0))


@pytest.mark.false_failure(0)
def test_more_parameters_than_numbers_can_be_checked():
    """Scores in a plane were a LinAlgError, or a matter of rounding."""
    u = np.random.default_rng(0).standard_normal((1_000, 2))
    how = Simulating(lambda theta, rng: theta.sum() + rng.normal(size=1), 400, 0, None, False)
    scores = InAPlane()
    scores.shape = (1,)
    found = run_check(scores, X[:, :1], u, how)
    assert np.isfinite([*found.shift, *found.shift_error, *found.log_width, *found.log_width_error]).all()


@pytest.mark.false_failure(1e-6)
def test_words_say_what_is_wrong():
    scores = Scores(offset=(0.5, 0.0))
    mean, sd = scores.posterior()
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    found = run_check(scores, X, u, Simulating(simulator, 3_000, 0, None, False))
    assert found.verdict == BAD
    assert "a is most off, by +" in str(found)
    assert repr(found) == f"Check({found.words})"
    assert "a is most off, by +" in found._repr_html_()
    assert found.summary()["shift"]["a"] == pytest.approx(found.shift[0])
    vague = replace(found, log_width=np.array([0.1, -2.0]), log_width_error=np.array([0.05, 8.0]))
    assert "the width of a is 1.11 times the right one (within a factor 1.05)" in vague.words
    assert vague.rows()[1][2] == "not told by so few simulations"
    vaguer = replace(vague, log_width_error=np.array([2.0, 8.0]))
    assert "the widths cannot be told by so few simulations" in vaguer.words
    assert "(within a factor 1.05), that of b cannot be told" in vague.words


@pytest.mark.false_failure(0)
@pytest.mark.parametrize(
    ("shift", "shift_error", "log_width", "width_error", "verdict", "limited"),
    [
        (0.1, 0.1, 0.05, 0.1, "good", False),
        (0.1, 0.3, 0.05, 0.1, "usable", True),
        (0.5, 0.3, 0.05, 0.1, "usable", False),
        (0.1, 0.1, 0.05, 0.4, "usable", True),
        (0.1, 0.1, 0.05, 1.2, "not known", True),
        (0.1, 0.8, 0.05, 0.1, "not known", True),
        (2.0, 0.8, 0.05, 0.1, BAD, False),
    ],
)
def test_no_verdict_is_better_than_the_standard_errors(shift, shift_error, log_width, width_error, verdict, limited):
    """Draws were called good by errors of 0.3 sd, and by widths that could not be told at all."""
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    found = run_check(Scores(), X, u, Simulating(simulator, 200, 0, None, False))
    numbers = {"shift": shift, "shift_error": shift_error, "log_width": log_width, "log_width_error": width_error}
    found = replace(found, p_value=0.5, **{name: np.array([0.0, value]) for name, value in numbers.items()})
    assert (found.verdict, found.limited, found.summary()["limited"]) == (verdict, limited, limited)
    assert found.words.startswith(f"{verdict}, as 200 simulations cannot tell more: " if limited else f"{verdict}: ")


@pytest.mark.false_failure(0)
def test_the_slope_s_chance_does_not_depend_on_the_axes():
    """Its indices were wrong, which is the same where all is diagonal, and else threw a slope away."""
    rng = np.random.default_rng(0)
    off, noise = rng.normal(size=(500, 2)), rng.normal(size=(500, 2))
    score = off @ np.array([[0.3, 0.0], [0.1, -0.2]]) + noise
    turned, other = np.array([[1.0, 0.8], [0.0, 0.5]]), np.array([[1.0, -0.6], [0.4, 2.0]])
    jacobian = np.zeros((500, 2, 2))
    plain = moments(Pairs(score, jacobian), off, 1.0).slope_chance
    assert plain > 5
    assert moments(Pairs(score @ other, jacobian), off @ turned, 1.0).slope_chance == pytest.approx(plain)


@pytest.mark.false_failure(1e-6)
def test_failed_simulations_are_left_out_and_counted():
    def fails(theta, rng):
        return np.full(2, np.nan) if rng.uniform() < 0.1 else simulator(theta, rng)

    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    found = run_check(Scores(), X, u, Simulating(fails, 1_000, 0, sf.Workers(max_failures=0.5), False))
    assert 50 < found.failed < 150
    assert np.abs(found.shift).max() < 1


@pytest.mark.false_failure(0)
def test_every_long_step_is_told_of(capsys):
    """After the simulations it was silent, for longer than they take."""
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    run_check(Scores(), X, u, Simulating(simulator, 500, 0, None, True))
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["simulating", "comparing", "comparing"]


@pytest.mark.false_failure(1e-6)
def test_observations_unlike_the_simulations_are_a_misfit():
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    how = Simulating(simulator, 500, 0, None, False)
    like = [mean + NOISE * np.random.default_rng(seed).standard_normal((N, 2)) for seed in range(3)]
    assert max(run_check(Scores(), x, u, how).p_value for x in like) > 0.01  # all three below it: once in a million
    strange = X.copy()
    strange[:, 1] = mean[1] + 5 * (X[:, 1] - X[:, 1].mean())
    assert run_check(Scores(), strange, u, how).p_value < 0.01


@pytest.mark.false_failure(0)  # whatever the draws are
def test_too_few_simulations_are_refused():
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    with pytest.raises(ScorefoldError, match="sims of 50 or more"):
        run_check(Scores(), X, u, Simulating(simulator, 20, 0, None, False))


@pytest.mark.false_failure(0)  # whatever the draws are
def test_another_posterior_s_check_is_refused():
    mean, sd = exact(X)
    u = mean + sd * np.random.default_rng(0).standard_normal((1_000, 2))
    found = run_check(Scores(), X, u, Simulating(simulator, 200, 0, None, False))
    with pytest.raises(ScorefoldError, match="check of this posterior"):
        RIGHT.corrected(replace(found, shape=(3,)))
    with pytest.raises(ScorefoldError, match="not corrected before"):
        RIGHT.corrected(found).corrected(found)


def test_a_method_without_a_score_is_refused():
    sims = sf.simulate(RIGHT.prior, simulator, budget=500, set_size=2)
    with pytest.raises(ScorefoldError, match="has none"):
        sf.fit(sims, "abc").check(X[:2], simulator)


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_the_correction_takes_known_errors_away_and_is_saved(tmp_path):
    base = RIGHT.ensemble.base
    wide = replace(RIGHT.ensemble, base=replace(base, variances=1.25 * base.variances))
    wrong = spoiled(replace(RIGHT, ensemble=wide), offset=(0.3, -0.1))
    shift, width, _ = off(wrong)
    assert np.abs(shift).max() > 0.8
    assert width.max() > 1.3
    found = wrong.check(X, simulator, SIMS)
    assert np.abs(found.shift * width - shift).max() < 0.6
    assert found.verdict == BAD
    mended = wrong.corrected(found)
    shift, width, trust = off(mended)
    assert np.abs(shift).max() < 0.45  # four standard errors of 0.1
    assert np.abs(np.log(width)).max() < 0.2
    assert trust.verdict != BAD
    again = sf.load(mended.save(tmp_path / "model"))
    assert np.array_equal(again.sample(X, 2_000).theta, mended.sample(X, 2_000).theta)


def test_right_draws_are_called_good():
    shift, _, trust = off(RIGHT)
    assert np.abs(shift).max() < 0.2
    assert trust.verdict == GOOD


def test_a_corrected_score_has_no_density_to_compare():
    zero, one = np.zeros(2), np.eye(2)
    local = LocalMean(zero, one, zero, 0 * one, one, one, zero, 0.01, 1.0)
    with pytest.raises(ScorefoldError, match="corrected score has none"):
        replace(untrained("conservative"), local=local).sample(X[:2])


def test_a_line_is_never_so_steep_that_draws_run_away():
    slope = np.array([[-40.0, 3.0], [-3.0, 0.5]])
    bounded = _stable(slope)
    np.testing.assert_allclose(np.linalg.eigvalsh((bounded + bounded.T) / 2), [SLOPE_BOUNDS[0], 0.5])
    np.testing.assert_allclose(bounded - bounded.T, slope - slope.T)
    np.testing.assert_allclose(_stable(np.diag([-0.5, 2.0])), np.diag([-0.5, 2.0]), atol=1e-12)


@pytest.mark.full
def test_a_refined_posterior_that_sees_scores_of_its_start_is_checked(monkeypatch):
    posterior = untrained("refined with summaries")
    u = np.random.default_rng(0).normal([0.1, -0.3], 0.05, size=(100, 2))
    monkeypatch.setattr(type(posterior), "draw", lambda self, *how: Drawn(u, None, None))
    found = posterior.check(X[:4, :2], lambda theta, rng: theta[:2] + rng.normal(size=2), sims=200)
    assert found.n == 4
    assert np.isfinite(found.shift).all()
