"""From a prior and a simulator to training cases: what is counted, which stream is whose, and every refusal.

Statistical comparisons use fixed seeds; on fresh ones each fails falsely less often than once in 10⁶.
"""

import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import plain_simulators
import pytest
from scipy import stats

from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.simulation.calls import plan
from scorefold.simulation.outcome import MISSING, OK, RAISED
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import Results, gather, split
from scorefold.simulation.sources import compiled
from scorefold.simulation.sources import source as here
from scorefold.simulation.store.store import Store
from scorefold.simulation.workers import Workers

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
    np.testing.assert_array_equal(small.x[whole], large.x[whole])


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
    monkeypatch.setattr(compiled, "BATCH", batch)
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

    with pytest.raises(SimulatorError, match=r"θ = \(a = -?\d"):
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


def test_gather_closes_ranks():
    calls = plan(PRIOR, 100, 4, seed=0)
    x, status = np.arange(100.0) + 1, np.full(100, OK)
    first = np.flatnonzero(calls.sizes == 4)[0]
    own = np.flatnonzero(calls.case == first)
    status[own[[0, 2]]] = RAISED
    sims = gather(PRIOR, calls, Results(status, [(0, x)], ()))
    assert sims.sizes[first] == 2
    assert (sims.budget, sims.failed) == (100, 2)
    np.testing.assert_array_equal(sims.x[first], [*x[own[[1, 3]]], 0, 0])
    assert [one.index for one in sims.failures] == own[[0, 2]].tolist()
    np.testing.assert_array_equal(sims.failures[0].theta, calls.theta[first])


def test_gather_leaves_out_cases_that_are_not_complete():
    calls = plan(PRIOR, 100, 4, seed=0)
    status = np.full(100, OK, np.uint8)
    first = np.flatnonzero(calls.sizes == 4)[0]
    own = np.flatnonzero(calls.case == first)
    status[own[1]], status[own[2]] = MISSING, RAISED
    sims = gather(PRIOR, calls, Results(status, [(0, np.ones(100))], ()))
    assert (sims.budget, sims.failed, sims.failures) == (96, 0, ())
    np.testing.assert_array_equal(sims.theta, np.delete(calls.theta, first, axis=0))


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


# One way to run


def assert_same(sims, others):
    for field in ("theta", "x", "sizes", "origin"):
        np.testing.assert_array_equal(getattr(sims, field), getattr(others, field))
    assert sims.failed == others.failed


@Batched
def shows_its_batch(theta, keys):
    """What no simulator should do: its result shows the size of the batch, which on some devices changes the last bits."""
    return batched_echo(theta, keys) * (1 + len(theta))


@pytest.mark.parametrize("way", ["this process", "a store", "a store here", "two workers"])
def test_plain_simulations_are_the_same_to_the_bit_whichever_way(tmp_path, way):
    how = {
        "this process": {"workers": 0},
        "a store": {"store": tmp_path, "workers": 1},
        "a store here": {"store": tmp_path, "workers": 0},
        "two workers": {"workers": 2},
    }[way]
    simulator = plain_simulators.echo
    alone = simulate(PRIOR, simulator, 333, set_size=3, seed=4)
    assert_same(alone, simulate(PRIOR, simulator, 333, set_size=3, seed=4, **how))


@pytest.mark.parametrize("budget", [333, 2_500])
def test_batched_simulations_are_the_same_to_the_bit_whichever_way(tmp_path, budget):
    """Budgets below, and not a multiple of, the 1,024 of a batch; the store is filled in pieces."""
    alone = simulate(PRIOR, shows_its_batch, budget, set_size=3, seed=4)
    assert_same(alone, simulate(PRIOR, shows_its_batch, budget, set_size=3, seed=4, workers=0))
    simulate(PRIOR, shows_its_batch, 150, set_size=3, seed=4, store=tmp_path)
    assert_same(alone, simulate(PRIOR, shows_its_batch, budget, set_size=3, seed=4, store=tmp_path))


# Failures


def raises_at(*indices):
    """A simulator whose calls of these numbers, in this process, raise."""
    calls = iter(range(10**6))

    def simulator(theta, rng):
        if (number := next(calls)) in indices:
            raise ZeroDivisionError(f"call {number} has no susceptibles left")
        return np.append(theta, rng.normal())

    return simulator


def test_an_exception_costs_one_simulation():
    message = (
        r"^1 of 200 simulations failed \(1 raised\) and were left out\. The first was simulation 77, θ = \(a = .*\), raised: "
        r"ZeroDivisionError: call 77 has no susceptibles left\. The posterior counts every observation"
    )
    with pytest.warns(ScorefoldWarning, match=message) as caught:
        sims = simulate(PRIOR, raises_at(77), 200, seed=3)
    assert len(caught) == 1
    whole = simulate(PRIOR, echo, 200, seed=3)
    np.testing.assert_array_equal(sims.x, np.delete(whole.x, 77, axis=0))
    (failure,) = sims.failures
    assert (sims.failed, sims.budget, failure.index, failure.status) == (1, 200, 77, "raised")
    np.testing.assert_array_equal(failure.theta, whole.theta[77])
    assert failure.text.startswith("Traceback")
    assert "raise ZeroDivisionError" in failure.text


def test_a_tenth_may_fail_by_default():
    with pytest.warns(ScorefoldWarning, match="20 of 200 simulations failed"):
        sims = simulate(PRIOR, raises_at(*range(0, 200, 10)), 200)
    assert [one.index for one in sims.failures] == list(range(0, 200, 10))
    with pytest.raises(SimulatorError, match=r"(?s)fraction 0\.1 \(max_failures\).* got 21 of 200: 21 raised.*simulation 0, θ"):
        simulate(PRIOR, raises_at(1, *range(0, 200, 10)), 200)


def test_a_simulator_that_always_fails_stops_after_twenty_calls():
    calls = []

    def broken(theta, rng):
        calls.append(theta)
        raise KeyError("beta")

    with pytest.raises(SimulatorError, match=r"(?s)20 of 20: 20 raised.*simulation 0, θ = \(a = .*Traceback.*KeyError: 'beta'"):
        simulate(PRIOR, broken, 1_000)
    assert len(calls) == 20


def test_only_the_first_hundred_failures_are_kept():
    with pytest.warns(ScorefoldWarning, match="150 of 300"):
        sims = simulate(PRIOR, raises_at(*range(1, 300, 2)), 300, workers=Workers(max_failures=0.6))
    assert [one.index for one in sims.failures] == list(range(1, 200, 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 3])
def test_failed_simulations_are_left_out_and_counted(m, bad):
    def fails_sometimes(theta, rng):
        ok = theta[0] < 1.5 and rng.uniform() < 0.8
        return np.array([theta[0], theta[1] if ok else bad])

    with pytest.warns(ScorefoldWarning, match=r"^\d+ of 600 simulations failed \(\d+ not finite\) and were left out"):
        sims = simulate(PRIOR, fails_sometimes, 600, set_size=m, workers=Workers(max_failures=0.5))
    assert sims.budget == 600
    assert 0 < sims.failed == 600 - sims.sizes.sum()
    assert np.isfinite(sims.x).all()
    assert (sims.sizes >= 1).all()
    assert (sims.theta[:, 0] < 1.5).all(), "cases without any observation are left out"
    real = np.arange(m) < sims.sizes[:, None]
    np.testing.assert_allclose(sims.x[real], np.repeat(sims.theta, sims.sizes, axis=0), rtol=1e-6)


# Ctrl-C


def interrupted_at(number):
    """A simulator during whose call of this number somebody presses Ctrl-C."""
    calls = iter(range(10**6))

    def simulator(theta, rng):
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return np.append(theta, rng.normal())

    return simulator


@pytest.mark.parametrize("block_seconds", [-1.0, 1.0])
def test_an_interrupt_in_memory_keeps_what_is_done(monkeypatch, block_seconds):
    monkeypatch.setattr(here, "BLOCK_SECONDS", block_seconds)
    with pytest.raises(Interrupted, match=r"after 200 of 500 simulations\. A store \(store=folder\) would have kept") as caught:
        simulate(PRIOR, interrupted_at(200), 500, set_size=3, seed=3)
    sims, whole = caught.value.simulations, simulate(PRIOR, echo, 500, set_size=3, seed=3)
    cases = len(sims.theta)
    assert f"{cases:,} cases are in the attribute `simulations`" in str(caught.value)
    assert 197 < sims.budget == sims.sizes.sum() <= 200
    assert sims.failed == 0
    np.testing.assert_array_equal(sims.x, whole.x[:cases])
    np.testing.assert_array_equal(sims.theta, whole.theta[:cases])


@pytest.mark.parametrize("number", [0, 3, 30])
def test_an_early_interrupt_has_nothing_to_keep(number):
    done = 0 if number < 8 else number  # the first eight go together
    with pytest.raises(Interrupted, match=f"after {done} of 500 simulations, which are lost. A store") as caught:
        simulate(PRIOR, interrupted_at(number), 500)
    assert caught.value.simulations is None


@pytest.mark.parametrize(
    ("stop", "raised", "message"),
    [
        (KeyboardInterrupt(), Interrupted, "after 128 of 300"),
        (SimulatorError("out of memory"), SimulatorError, "128 cases are complete"),
    ],
)
def test_a_batch_that_stops_the_run_keeps_those_before(monkeypatch, stop, raised, message):
    batches = []

    def run_batch(*arguments):
        if len(batches) == 2:
            raise stop
        batches.append(arguments)
        return real(*arguments)

    real = compiled.run_batch
    monkeypatch.setattr(compiled, "BATCH", 64)
    whole = simulate(PRIOR, batched_echo, 300)
    monkeypatch.setattr(compiled, "run_batch", run_batch)
    with pytest.raises(raised, match=message) as caught:
        simulate(PRIOR, batched_echo, 300)
    np.testing.assert_array_equal(caught.value.simulations.x, whole.x[:128])


def test_an_interrupt_with_a_store_says_where_they_are(tmp_path):
    with pytest.raises(
        Interrupted, match=r"after 60 of 200 simulations; they are kept in .* The same call continues"
    ) as caught:
        simulate(PRIOR, interrupted_at(60), 200, store=tmp_path, workers=0)
    assert caught.value.simulations is None
    assert Store.open(tmp_path).stop() == 60


# Refusals


def grows(theta, rng):
    return np.zeros(2 if theta[0] > 0 else 3)


def always(text):
    """All fail, and the first is shown."""
    return rf"(?s)20 of 20: 20 .*The first to fail was simulation 0, θ = \(a = .*{text}"


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        (grows, r"(?s)of 100: \d+ wrong shape.*expected an observation of shape \(\d,\).* one fixed shape"),
        (lambda theta, rng: "x", always("raised: .*expected an observation to be numbers; got str")),
        (lambda theta, rng: "3", always("raised: .*expected an observation to be numbers; got str")),
        (lambda theta, rng: theta * 1j, always("raised: .*expected an observation to be numbers; got ndarray")),
        (lambda theta, rng: sys.exit(3), always("raised: .*SystemExit: 3")),
        (lambda theta, rng: None, always("raised: .*expected an observation to be numbers; got NoneType")),
        (lambda theta, rng: theta * np.nan, always("not finite: it returned NaN")),
        (lambda theta: theta, r"expected a simulator that takes \(theta, rng\); got <lambda>\(theta\)"),
        (Batched(lambda theta, keys: theta / 0), "100 of 100: 100 not finite"),
        (Batched(lambda theta, keys: theta * 1j), "batched simulator failed.*expected observations to be numbers"),
        (Batched(lambda theta, keys: [theta, theta]), r"one observation per row, \(1024, …\); got shape \(\)"),
        (Batched(lambda theta, keys: theta[:7]), r"one observation per row, \(1024, …\); got shape \(7, 2\)"),
        (Batched(lambda theta, keys: theta.sum()), r"one observation per row.*got shape \(\)"),
        (
            Batched(lambda theta, keys: theta @ theta),
            r"batched simulator failed on θ of shape \(1024, 2\): TypeError",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_a_simulator_may_not_do(simulator, message):
    with pytest.raises(SimulatorError, match=message):
        simulate(PRIOR, simulator, 100)


def test_too_few_cases_left_are_refused():
    message = r"expected a simulator that mostly returns finite .* 60 of 100 simulations failed \(60 raised\).*Narrow the prior"
    with pytest.raises(SimulatorError, match=message):
        simulate(PRIOR, raises_at(*range(40, 100)), 100, workers=Workers(max_failures=1.0))


@pytest.mark.parametrize("value", [1.1e37, -2e37, 1e39])
def test_observations_beyond_single_precision_are_refused(value):
    with pytest.raises(SimulatorError, match=r"(?s)20 not finite.*fit in single precision.*by taking logarithms"):
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
        ({"budget": 10000.5}, r"budget to be a whole number ≥ 100; got 10000\.5"),
        ({"budget": True}, "got True"),
        ({"budget": 10**12}, "budget and set_size up to 1,000,000,000; got 1,000,000,000,000 and 1"),
        ({"set_size": 2**70}, "budget and set_size up to 1,000,000,000"),
        ({"store": 3}, "expected the path of a folder; got 3"),
        ({"store": "a\0b"}, "expected the path of a folder"),
        ({"set_size": 0}, r"expected set_size to be a whole number ≥ 1; got 0"),
        ({"set_size": 1.5}, "set_size.*got 1.5"),
        ({"seed": -1}, r"expected seed to be a whole number ≥ 0; got -1"),
        ({"seed": "1"}, "seed.*got '1'"),
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
