"""Simulations that are hard to train on: handled as docs/training.md says, and never NaN.

All of them have the same shapes, so that one program is compiled for all.
"""

import re
import warnings

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning, UntrustworthyDraws

PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(-2, 4)})
METHOD = sf.NPSE(width=8, depth=1, correction=False, training=sf.Training(members=2, steps=100))
BUDGET = 300


def base(theta, rng):
    return theta[[0, 1, 0]] + 0.3 * rng.standard_normal(3)


def with_columns(change):
    def simulator(theta, rng):
        x = base(theta, rng)
        return change(x, rng)

    return simulator


def put(x, *values):
    x[3 - len(values) :] = values
    return x


# What the simulator does; what fit warns of; whether the draws should still be right.
SIMULATORS = {
    "plain": (lambda x, rng: x, None),
    "a constant column": (lambda x, rng: put(x, 7.0), "1 of the 3 numbers .* number 2, always 7"),
    "a constant column of zeros": (lambda x, rng: put(x, 0.0), "number 2, always 0"),
    "a huge constant": (lambda x, rng: put(x, 1e36), "number 2, always 1e.36"),
    "a duplicated column": (lambda x, rng: put(x, x[0]), None),
    "a sum of columns": (lambda x, rng: put(x, x[0] + x[1]), None),
    "a duplicate but for rounding": (lambda x, rng: put(x, x[0] * (1 + 1e-7)), None),
    "tiny and huge columns": (lambda x, rng: x * [1e-30, 1e30, 1.0], None),
    "hugely different columns": (lambda x, rng: x * [1e-36, 1e35, 1.0], None),
    "subnormal numbers": (lambda x, rng: put(x, 1e-42 * x[2]), None),
    "almost always zero": (lambda x, rng: put(x, x[2] if rng.random() < 0.05 else 0.0), None),
    "once something else": (lambda x, rng: put(x, float(rng.random() < 0.02)), None),
    "heavy tails": (lambda x, rng: put(x, x[2] * 10 ** np.clip(20 * rng.standard_cauchy(), -30, 30)), None),
    "integers": (lambda x, rng: np.round(x), None),
    "a large offset": (lambda x, rng: x + 1e6, None),
}


@pytest.fixture(scope="module")
def fitted():
    """Posteriors and what was said, made when they are asked for."""
    made = {}

    def get(what):
        if what not in made:
            change, _ = SIMULATORS[what]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                sims = sf.simulate(PRIOR, with_columns(change), BUDGET)
                made[what] = sf.fit(sims, METHOD), sims, [w for w in caught if issubclass(w.category, ScorefoldWarning)]
        return made[what]

    return get


def quiet(posterior, x, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        return posterior.sample(x, **how)


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
@pytest.mark.parametrize("what", SIMULATORS)
def test_hard_columns(fitted, what):
    change, message = SIMULATORS[what]
    posterior, _, said = fitted(what)
    assert len(said) == (message is not None)
    if message is not None:
        assert said[0].category is ScorefoldWarning
        assert re.search(message, str(said[0].message))
    rng = np.random.default_rng(3)
    truth = np.array([0.5, -1.0])
    x = np.stack([change(base(truth, rng), rng) for _ in range(8)])
    drawn = quiet(posterior, x, draws=128)
    assert np.isfinite(drawn.theta).all()
    # One column or two tell each parameter to 0.3/√8 = 0.1; a network trained for a second is allowed 0.7 of the prior's 1.
    assert np.abs(drawn.theta.mean(0) - truth).max() < 0.7
    assert drawn.theta.std(0).max() < 0.6


@pytest.mark.parametrize("value", [-1e37, -1e6, 0.0, 7.5, 1e37])
@pytest.mark.full
def test_what_an_observation_has_in_a_constant_column_does_not_matter(fitted, value):
    posterior, _, _ = fitted("a constant column")
    x = np.array([[0.5, -1.0, 7.0]] * 4)
    usual = quiet(posterior, x, draws=20)
    x[:, 2] = value
    other = quiet(posterior, x, draws=20)
    np.testing.assert_allclose(other.theta, usual.theta, atol=0.5 if abs(value) == 1e37 else 1e-4)


@pytest.mark.parametrize("what", ["plain", "tiny and huge columns", "subnormal numbers"])
@pytest.mark.parametrize("value", [1e37, -1e37, 1e-300, 1e20])
def test_absurd_observations_give_finite_draws_or_an_error(fitted, what, value):
    posterior, _, _ = fitted(what)
    try:
        drawn = quiet(posterior, np.full((4, 3), value), draws=20)
    except ScorefoldError as error:
        assert "diverged" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(drawn.theta).all()


def test_observations_beyond_single_precision(fitted):
    posterior, _, _ = fitted("plain")
    for value in (1.1e37, -1e300):
        with pytest.raises(ScorefoldError, match="single precision"):
            posterior.sample(np.full((4, 3), value), draws=20)


@pytest.mark.parametrize(("failed", "warned"), [(0, False), (15, False), (16, True)])
def test_many_failed_simulations_are_said(fitted, failed, warned):
    _, sims, _ = fitted("plain")
    sims = sims._replace(failed=failed)  # as if there had been so many: nothing compiles again
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = sf.fit(sims, METHOD)
    said = [str(w.message) for w in caught if issubclass(w.category, ScorefoldWarning)]
    assert len(said) == warned
    if warned:
        assert "16 of 300 simulations failed and were left out, 5%" in said[0]
        assert "did not fail" in said[0]
    assert posterior.made.failed == failed


# Training that goes wrong


@pytest.mark.full
def test_exploding_training_keeps_the_best_weights(fitted):
    _, sims, _ = fitted("plain")
    wild = sf.NPSE(width=8, depth=1, training=sf.Training(members=2, steps=100, learning_rates=(1e8,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)
        posterior = sf.fit(sims, wild)
    assert (posterior.history.kept == 0).all(), "the base alone"
    drawn = quiet(posterior, np.zeros((4, 3)), draws=128)
    assert np.isfinite(drawn.theta).all()
    assert np.abs(drawn.theta.mean(0)).max() < 0.5


@pytest.mark.full
def test_without_a_base_a_wild_learning_rate_is_said(fitted):
    _, sims, _ = fitted("plain")
    training = sf.Training(members=2, steps=100, learning_rates=(1e8,))
    with pytest.warns(ScorefoldWarning, match="random weights it started from|steps were left out"):
        posterior = sf.fit(sims, sf.NPSE(width=8, depth=1, base=False, correction=False, training=training))
    try:
        assert np.isfinite(quiet(posterior, np.zeros((4, 3)), draws=20).theta).all()
    except ScorefoldError as error:
        assert "diverged" in str(error)  # noqa: PT017


@pytest.mark.full
def test_the_smallest_budget_that_can_be_split():
    sims = sf.simulate(PRIOR, base, 100)
    posterior = sf.fit(sims, METHOD)
    assert np.isfinite(quiet(posterior, np.zeros((4, 3)), draws=20).theta).all()
    with pytest.raises(ScorefoldError, match="budget to be a whole number ≥ 100"):
        sf.simulate(PRIOR, base, 99)
