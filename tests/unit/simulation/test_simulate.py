"""From a prior and a simulator to training cases: what is counted, which stream is whose, and every refusal.

Statistical comparisons use fixed seeds; on fresh ones each fails falsely less often than once in 10⁶.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scorefold.errors import ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.simulation import simulate as run
from scorefold.simulation.batched import Batched
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import gather, plan, split

pytestmark = pytest.mark.usefixtures("quick_to_compile")

PRIOR = Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})
BUDGETS = [100, 101, 997]
SET_SIZES = [1, 2, 5]
P_MIN = 1e-6
Z_MAX = 5.0  # 6 times in 10⁷


def echo(theta, rng):
    """θ itself, and one random number."""
    return np.append(theta, rng.normal())


@Batched
def batched_echo(theta, keys):
    return jnp.column_stack([theta, jax.vmap(jax.random.normal)(keys)])


SIMULATORS = {"plain": echo, "batched": batched_echo}


@pytest.fixture(params=SIMULATORS)
def simulator(request):
    return SIMULATORS[request.param]


# Planning


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("m", SET_SIZES)
def test_the_budget_counts_calls_exactly(m, budget):
    planned = plan(PRIOR, budget, m, seed=3)
    assert planned.sizes.sum() == len(planned.case) == budget
    assert planned.sizes.min() >= 1
    assert planned.sizes.max() <= m
    np.testing.assert_array_equal(planned.case, np.repeat(np.arange(len(planned.theta)), planned.sizes))


@pytest.mark.parametrize("m", SET_SIZES)
def test_sizes_are_uniform(m):
    sizes = plan(PRIOR, 30_000, m, seed=0).sizes[:-1]  # the last one is cut
    observed = np.bincount(sizes, minlength=m + 1)[1:]
    assert len(observed) == m
    assert m == 1 or stats.chisquare(observed).pvalue > P_MIN  # P_MIN on fresh seeds


@pytest.mark.parametrize("m", SET_SIZES)
def test_a_case_costs_half_of_m_plus_one_calls(m):
    budget, mean, variance = 30_000, (m + 1) / 2, (m**2 - 1) / 12
    cases = len(plan(PRIOR, budget, m, seed=0).sizes)
    # The number of renewals within the budget: mean budget/μ, variance budget σ²/μ³, up to one case.
    assert abs(cases - budget / mean) <= 1 + Z_MAX * np.sqrt(budget * variance / mean**3)


@pytest.mark.parametrize("m", SET_SIZES)
def test_a_larger_budget_continues_a_smaller_one(simulator, m):
    small, large = (simulate(PRIOR, simulator, budget, m, seed=5) for budget in (150, 400))
    whole = slice(len(small.theta) - 1)  # the last case may be cut
    assert len(large.theta) > len(small.theta)
    np.testing.assert_array_equal(small.theta, large.theta[: len(small.theta)])
    np.testing.assert_array_equal(small.sizes[whole], large.sizes[whole])
    np.testing.assert_allclose(small.x[whole], large.x[whole], rtol=1e-6)  # other batch sizes round differently


# Random streams


def test_plain_streams_depend_on_seed_and_index_alone():
    """In reverse, each by itself, and with a simulator that uses more of some streams than of others."""

    def greedy(theta, rng):
        return rng.normal(size=1 + int(10 * abs(theta[0])))[0]

    sims = simulate(PRIOR, greedy, 120, seed=9)
    for i in reversed(range(120)):
        rng = np.random.default_rng(np.random.SeedSequence(9, spawn_key=(2, i)))
        assert sims.x[i, 0] == np.float32(rng.normal())


@pytest.mark.parametrize("batch", [1, 64, 150, 1000])
def test_batched_streams_depend_on_seed_and_index_alone(monkeypatch, batch):
    monkeypatch.setattr(run, "BATCH", batch)
    sims = simulate(PRIOR, batched_echo, 150, seed=9)
    wanted = [jax.random.normal(jax.random.fold_in(jax.random.key(9), i)) for i in (0, 1, 63, 64, 149)]
    np.testing.assert_allclose(sims.x[[0, 1, 63, 64, 149], 0, 2], wanted, rtol=1e-6)
    np.testing.assert_allclose(sims.x[:, 0, :2], sims.theta, rtol=1e-6)


@pytest.mark.false_failure(1e-6)
def test_seeds_and_calls_share_nothing(simulator):
    noise = np.concatenate([simulate(PRIOR, simulator, 200, seed=seed).x[:, 0, 2] for seed in range(5)])
    # Float32 normals tie by chance once in 2²³ pairs, so more than 5 times in 5·10⁵ pairs once in 10¹⁰ runs.
    assert len(noise) - len(np.unique(noise)) <= 5
    assert stats.kstest(noise, "norm").pvalue > P_MIN  # P_MIN on fresh seeds


def test_large_seeds_are_seeds_of_their_own(simulator):
    small, large = (simulate(PRIOR, simulator, 100, seed=seed).x[..., 2] for seed in (1, 1 + 2**64))
    assert np.intersect1d(small, large).size <= 2  # of 10⁴ pairs; by chance more than 2 once in 10⁹ runs


def test_a_simulator_may_change_its_argument():
    def vandal(theta, rng):
        x = theta.copy()
        theta[:] = np.nan
        return x

    sims = simulate(PRIOR, vandal, 100)
    np.testing.assert_array_equal(sims.x[:, 0], sims.theta.astype(np.float32))

    def vandal_that_fails(theta, rng):
        raise ArithmeticError(vandal(theta, rng))

    with pytest.raises(SimulatorError, match=r"θ = \[-?\d"):
        simulate(PRIOR, vandal_that_fails, 100)


# Cases


def test_every_set_belongs_to_its_parameters(simulator):
    sims = simulate(PRIOR, simulator, 500, set_size=4)
    real = np.arange(4) < sims.sizes[:, None]
    assert sims.x.shape == (len(sims.theta), 4, 3)
    assert sims.x.dtype == np.float32
    assert real.sum() == sims.budget == 500
    assert (sims.x[~real] == 0).all()
    np.testing.assert_allclose(sims.x[..., :2][real], np.repeat(sims.theta, sims.sizes, axis=0), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_observations_of_any_shape(shape):
    plain = simulate(PRIOR, lambda theta, rng: np.full(shape, theta[0]), 100, set_size=2)
    batched = simulate(
        PRIOR,
        Batched(lambda theta, _: jnp.broadcast_to(theta[:, :1].reshape(-1, *(1 for _ in shape)), (len(theta), *shape))),
        100,
        set_size=2,
    )
    for sims in (plain, batched):
        assert sims.shape == shape
        assert sims.x.shape == (len(sims.theta), 2, *shape)
        np.testing.assert_allclose(sims.x[:, 0].reshape(len(sims.theta), -1)[:, 0], sims.theta[:, 0], rtol=1e-6)


def test_a_python_number_is_an_observation():
    assert simulate(PRIOR, lambda theta, rng: 7, 100).shape == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 3])
def test_failed_simulations_are_left_out_and_counted(m, bad):
    def fails_sometimes(theta, rng):
        ok = theta[0] < 1.5 and rng.uniform() < 0.8
        return np.array([theta[0], theta[1] if ok else bad])

    with pytest.warns(ScorefoldWarning, match=r"^\d+ of 600 simulations gave NaN or infinity and were left out"):
        sims = simulate(PRIOR, fails_sometimes, 600, set_size=m)
    assert sims.budget == 600
    assert 0 < sims.failed == 600 - sims.sizes.sum()
    assert np.isfinite(sims.x).all()
    assert (sims.sizes >= 1).all()
    assert (sims.theta[:, 0] < 1.5).all(), "cases without any observation are left out"
    real = np.arange(m) < sims.sizes[:, None]
    np.testing.assert_allclose(sims.x[real], np.repeat(sims.theta, sims.sizes, axis=0), rtol=1e-6)


def test_gather_closes_ranks():
    planned = plan(PRIOR, 100, 4, seed=0)
    x = np.arange(100.0) + 1
    first = np.flatnonzero(planned.sizes == 4)[0]
    calls = np.flatnonzero(planned.case == first)
    x[calls[[0, 2]]] = np.nan
    sims = gather(PRIOR, planned, x, 4, seed=0)
    assert sims.sizes[first] == 2
    assert sims.failed == 2
    np.testing.assert_array_equal(sims.x[first], [*x[calls[[1, 3]]], 0, 0])


@pytest.mark.parametrize("m", [1, 2, 3, 5, 9])
def test_split_keeps_every_observation_with_its_parameters(m):
    sims = simulate(PRIOR, echo, 400, set_size=5)
    parts = split(sims, m)
    assert parts.set_size == min(m, 5)
    assert parts.sizes.min() >= 1
    assert parts.sizes.max() == min(m, 5)
    assert len(parts.theta) == np.ceil(sims.sizes / m).sum()

    def observations(sims):
        real = np.arange(sims.set_size) < sims.sizes[:, None]
        assert (sims.x[~real] == 0).all()
        np.testing.assert_allclose(sims.x[..., :2][real], np.repeat(sims.theta, sims.sizes, axis=0), rtol=1e-6)
        return np.sort(sims.x[..., 2][real])

    np.testing.assert_array_equal(observations(parts), observations(sims))


def test_repr_says_what_there_is():
    text = repr(simulate(PRIOR, lambda theta, rng: np.zeros((3, 2)), 1000))
    assert text == "Simulations(1,000 cases from 1,000 simulator calls, 0 failed; θ = (a, b), x 3×2, sets of up to 1)"


def test_progress_changes_nothing(simulator):
    quiet, shown = (simulate(PRIOR, simulator, 100, progress=progress) for progress in (False, True))
    np.testing.assert_array_equal(quiet.x, shown.x)


# Refusals


def raises(theta, rng):
    if theta[0] > 0:
        raise ZeroDivisionError("no susceptibles left")
    return theta


def grows(theta, rng):
    return np.zeros(2 if theta[0] > 0 else 3)


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        (raises, r"failed on simulation \d+, θ = \[.*ZeroDivisionError: no susceptibles left"),
        (grows, r"shape of the first, \(\d,\); simulation \d+ gave \(\d,\) for θ = .* one fixed shape"),
        (lambda theta, rng: "x", "failed on simulation 0.*expected an observation to be numbers; got str"),
        (lambda theta, rng: "3", "failed on simulation 0.*expected an observation to be numbers; got str"),
        (lambda theta, rng: theta * 1j, "failed on simulation 0.*expected an observation to be numbers; got ndarray"),
        (lambda theta, rng: sys.exit(3), "failed on simulation 0.*SystemExit: 3"),
        (lambda theta, rng: None, "mostly returns finite observations; 100 of 100 calls"),
        (
            lambda theta, rng: theta * np.nan,
            "100 of 100 calls gave NaN .* Try it by hand on θ = .* narrow the prior",
        ),
        (lambda theta: theta, "failed on simulation 0.*TypeError"),
        (Batched(lambda theta, keys: theta / 0), "mostly returns finite observations"),
        (Batched(lambda theta, keys: theta * 1j), "batched simulator failed.*expected observations to be numbers"),
        (Batched(lambda theta, keys: [theta, theta]), r"one observation per row, \(100, …\); got shape \(2, 100, 2\)"),
        (Batched(lambda theta, keys: theta[:7]), r"one observation per row, \(100, …\); got shape \(7, 2\)"),
        (Batched(lambda theta, keys: theta.sum()), r"one observation per row.*got shape \(\)"),
        (
            Batched(lambda theta, keys: theta @ theta),
            r"batched simulator failed on θ of shape \(100, 2\): TypeError",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_a_simulator_may_not_do(simulator, message):
    with pytest.raises(SimulatorError, match=message) as caught:
        simulate(PRIOR, simulator, 100)
    assert "failed on" not in message or caught.value.__cause__ is not None


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_too_many_failures_are_refused(part):
    def fails_often(theta, rng):
        return theta[0] if rng.uniform() < 1 - part else np.nan

    with pytest.raises(SimulatorError, match=r"fraction 0\.2 \(max_failures\) .* the first on θ = \["):
        simulate(PRIOR, fails_often, 400, max_failures=0.2)
    with pytest.warns(ScorefoldWarning, match="were left out"):
        simulate(PRIOR, fails_often, 400, max_failures=0.9)


@pytest.mark.parametrize("value", [1.1e37, -2e37, 1e39])
def test_observations_beyond_single_precision_are_refused(value):
    with pytest.raises(SimulatorError, match=r"gave numbers that do not fit in single precision.*take logarithms"):
        simulate(PRIOR, lambda theta, rng: value, 100)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prior": stats.norm(0, 1)}, r"expected a scorefold\.Prior; got rv_continuous_frozen\. Build one"),
        ({"simulator": 3}, r"expected a simulator\(theta, rng\) -> x that can be called; got int"),
        (
            {"budget": 99},
            r"expected budget to be a whole number ≥ 100; got 99\. Fewer simulations cannot be split",
        ),
        ({"budget": 1e4}, r"budget to be a whole number ≥ 100; got 10000\.0"),
        ({"budget": True}, "got True"),
        ({"budget": 10**12}, "budget and set_size up to 1,000,000,000; got 1,000,000,000,000 and 1"),
        ({"set_size": 2**70}, "budget and set_size up to 1,000,000,000"),
        ({"store": 3}, "expected the path of a folder; got 3"),
        ({"store": "a\0b"}, "expected the path of a folder"),
        ({"set_size": 0}, r"expected set_size to be a whole number ≥ 1; got 0"),
        ({"set_size": 1.5}, "set_size.*got 1.5"),
        ({"seed": -1}, r"expected seed to be a whole number ≥ 0; got -1"),
        ({"seed": None}, "seed.*got None"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused_before_anything_runs(wrong, message):
    def never(theta, rng):
        raise AssertionError("called")

    with pytest.raises(ScorefoldError, match=message):
        simulate(**{"prior": PRIOR, "simulator": never, "budget": 100, **wrong})


@pytest.mark.usefixtures("unchecked")
def test_numpy_numbers_are_numbers():
    assert simulate(PRIOR, echo, np.int64(100), set_size=np.int32(1), seed=np.uint8(0)).budget == 100


def test_too_few_cases_are_not_blamed_on_the_simulator():
    with pytest.raises(ScorefoldError, match=r"100 simulator calls in sets of up to 20 make \d+\. Raise the budget or lower"):
        simulate(PRIOR, echo, 100, set_size=20)
