"""One simulation that fails costs one simulation, by default, in every verb that simulates; and all take the same workers.

After Ctrl-C all of them go on with the simulations that are done or, where these are too few to say anything, keep them.

Refinement, which trains, is in `tests/learned/test_refined.py`.
"""

import itertools
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from full import shortly
from linear_posterior import NOISE, linear_posterior
from scipy import stats

import scorefold as sf
from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, SimulatorError, UntrustworthyDraws
from scorefold.simulation.sources import isolated

PRIOR = linear_posterior().prior
X = np.array([[0.4, -0.3], [0.1, 0.9], [0.5, 0.2]])


def plain(theta, rng):
    return theta + NOISE * rng.standard_normal(2)


@pytest.fixture
def failing(tmp_path):
    """A simulator of which one call, whichever process makes it, does something else."""

    def make(what):
        marker = str(tmp_path / what.__name__)

        def simulator(theta, rng):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return plain(theta, rng)
            return what()

        return simulator

    return make


def raises():
    raise RuntimeError("the solver did not converge")


def hangs():
    time.sleep(100)


def dies():
    os._exit(3)


@pytest.fixture(scope="module")
def posteriors():
    sims = sf.simulate(PRIOR, plain, 2_000, set_size=3)
    return [sf.fit(sims, sf.ABC(accept=share)) for share in (0.2, 0.5)]


def simulate(posteriors, simulator, workers):
    return sf.simulate(PRIOR, simulator, 200, workers=workers).failed


def predict(posteriors, simulator, workers):
    x = posteriors[0].sample(X, 100).predict(simulator, n=2, workers=workers)
    return int(np.isnan(x).any(axis=2).sum())


def diagnose(posteriors, simulator, workers):
    return sf.diagnose(posteriors[0], simulator, 3, 40, 20, workers=workers).failed


def compare(posteriors, simulator, workers):
    return sf.compare(posteriors, simulator, 3, 40, 20, workers=workers).failed


def check(posteriors, simulator, workers):
    return linear_posterior().check(X, simulator, 200, workers=workers).failed


def smc_abc(posteriors, simulator, workers):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sf.smc_abc(PRIOR, simulator, X, budget=900, workers=workers)
    (one,) = [str(one.message) for one in said if "failed" in str(one.message)]
    return int(one.split(" of ")[0].split()[-1].replace(",", ""))


VERBS = {verb.__name__: verb for verb in (simulate, predict, diagnose, compare, check, smc_abc)}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore::scorefold.errors.ScorefoldWarning")
def test_an_exception_costs_one_simulation(verb, posteriors, failing):
    assert VERBS[verb](posteriors, failing(raises), None) == 1


@pytest.mark.parametrize(
    ("verb", "what"), shortly(itertools.product(VERBS, [hangs, dies]), ("simulate", dies), ("predict", hangs))
)
@pytest.mark.filterwarnings("ignore::scorefold.errors.ScorefoldWarning")
def test_one_that_hangs_or_dies_costs_one_simulation_where_workers_watch(verb, what, posteriors, failing):
    workers = sf.Workers(1, timeout=2 if what is hangs else None)
    assert VERBS[verb](posteriors, failing(what), workers) == 1


@pytest.mark.parametrize("verb", shortly(list(VERBS), "compare"))
@pytest.mark.filterwarnings("ignore::scorefold.errors.ScorefoldWarning")
def test_every_verb_takes_an_executor(verb, posteriors, failing):
    with ThreadPoolExecutor(1) as executor:
        assert VERBS[verb](posteriors, failing(raises), sf.Workers(executor=executor)) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_max_failures_stops_every_verb(verb, posteriors, failing):
    with pytest.raises(SimulatorError, match="the solver did not converge"):
        VERBS[verb](posteriors, failing(raises), sf.Workers(max_failures=0.0))


def test_one_of_a_handful_may_fail():
    """It is more than a tenth of them, and says nothing."""
    prior = sf.Prior({"a": stats.norm(0, 1)})
    posterior = sf.fit(sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=1), 500), "abc")
    calls = iter(range(5))

    def simulator(theta, rng):
        return np.array([np.nan]) if next(calls) == 3 else theta

    with pytest.warns(ScorefoldWarning, match="1 of 5 simulations failed"):
        x = posterior.sample([[0.3]], 5).predict(simulator)
    assert np.isnan(x).sum() == 1


# A run that is given up, as too many fail, has not been for nothing


def failing_from(number):
    """A simulator that fails from the call of this number on."""
    calls = itertools.count()

    def simulator(theta, rng):
        if next(calls) >= number:
            raise RuntimeError("the solver did not converge")
        return plain(theta, rng)

    return simulator


def test_simulations_in_memory_before_too_many_failed_are_kept():
    with pytest.raises(SimulatorError, match=r"180 cases are complete, and in the attribute `simulations`") as given_up:
        sf.simulate(PRIOR, failing_from(180), 300)
    kept = given_up.value.simulations
    np.testing.assert_array_equal(kept.x, sf.simulate(PRIOR, plain, 300).x[:180])
    assert kept.failures[0].text.endswith("the solver did not converge\n")
    with pytest.raises(SimulatorError) as given_up:
        sf.simulate(PRIOR, failing_from(30), 300)
    assert given_up.value.simulations is None


def test_with_a_store_they_are_there_and_not_in_memory(tmp_path):
    with pytest.raises(SimulatorError, match="kept where there is a store") as given_up:
        sf.simulate(PRIOR, failing_from(180), 300, store=tmp_path, workers=0)
    assert given_up.value.simulations is None
    assert sf.Store.open(tmp_path).counts()["ok"] == 180


class Leaving(ThreadPoolExecutor):
    """Takes no more work after some; no more than two tasks are in flight."""

    taken = 0

    def submit(self, function, /, *args, **kwargs):
        self.taken += len(args[0].theta)
        if self.taken > 250:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return super().submit(function, *args, **kwargs)


def test_simulations_before_an_executor_went_away_are_kept(monkeypatch):
    monkeypatch.setattr(isolated, "ROWS_IN_TASK", 40)
    with Leaving(1) as executor, pytest.raises(ScorefoldError, match="the executor takes no more work") as left:
        sf.simulate(PRIOR, plain, 400, workers=sf.Workers(executor=executor))
    kept = left.value.simulations
    np.testing.assert_array_equal(kept.x, sf.simulate(PRIOR, plain, 400).x[: len(kept.x)])


def test_data_sets_before_too_many_failed_are_kept(posteriors):
    draws = posteriors[0].sample(X, 100)
    with pytest.raises(SimulatorError, match=r"The first 100 data sets of 2 are in the attribute `x`") as given_up:
        draws.predict(failing_from(150), n=2)
    np.testing.assert_array_equal(given_up.value.x[:75], draws.predict(plain, n=2)[:75])
    assert np.isnan(given_up.value.x[75:]).all()


# Ctrl-C


def stopped_at(number):
    """A simulator in whose call of this number somebody presses Ctrl-C."""
    calls = itertools.count()

    def simulator(theta, rng):
        if next(calls) == number:
            raise KeyboardInterrupt
        return plain(theta, rng)

    return simulator


def test_predict_keeps_the_data_sets_that_are_complete(posteriors):
    draws = posteriors[0].sample(X, 100)
    with pytest.raises(
        Interrupted, match=r"after 101 of 200 simulations; the first 50 data sets of 2 are in .* `x`"
    ) as stopped:
        draws.predict(stopped_at(101), n=2)
    np.testing.assert_array_equal(stopped.value.x, draws.predict(plain, n=2)[:50])
    with pytest.raises(Interrupted, match="after 9 of 2,000 simulations, which are lost") as stopped:
        draws.predict(stopped_at(9), n=20)
    assert stopped.value.x is None


def test_a_diagnosis_rests_on_the_data_sets_that_are_simulated(posteriors):
    whole = sf.diagnose(posteriors[0], plain, 3, 60, 20)
    with pytest.warns(ScorefoldWarning, match="rests on the first 40 data sets. Ctrl-C once more"):
        found = sf.diagnose(posteriors[0], stopped_at(121), 3, 60, 20)
    np.testing.assert_array_equal(found.truth, whole.truth[:40])
    np.testing.assert_array_equal(found.draws, whole.draws[:40])
    with pytest.raises(Interrupted, match="after 59 of 180 simulations; the first 19 data sets"):
        sf.diagnose(posteriors[0], stopped_at(59), 3, 60, 20)


def test_a_predictive_check_rests_on_the_data_sets_that_are_simulated(posteriors):
    with pytest.warns(ScorefoldWarning, match="rests on the first 30 data sets"):
        found = sf.diagnose(posteriors[0], stopped_at(180 + 90), 3, 60, 20, x_obs=X)
    assert len(found.observed.posterior_predictive.x) == 30
    assert len(found.truth) == 60


def test_a_comparison_rests_on_the_data_sets_that_are_simulated(posteriors):
    with pytest.warns(ScorefoldWarning, match="rests on the first 40 data sets"):
        found = sf.compare(posteriors, stopped_at(120), 3, 60, 20)
    assert (found.used, found.asked) == (40, 60)


def test_a_check_rests_on_the_sets_that_are_simulated():
    posterior = linear_posterior()
    with pytest.warns(ScorefoldWarning, match="rests on the first 150 data sets"):
        found = posterior.check(X, stopped_at(150), 200)
    assert (found.sims, found.failed) == (150, 0)
    assert (found.shift_error > posterior.check(X, plain, 200).shift_error).all()
    with pytest.raises(Interrupted, match="after 49 of 200 simulations"):
        posterior.check(X, stopped_at(49), 200)


def test_smc_abc_draws_from_the_rounds_that_are_complete():
    with pytest.warns(UntrustworthyDraws):
        whole = sf.smc_abc(PRIOR, plain, X, budget=900)
    with pytest.warns(UntrustworthyDraws, match="it was interrupted, and the draws rest on the 2 rounds that are complete"):
        some = sf.smc_abc(PRIOR, stopped_at(500), X, budget=900)
    np.testing.assert_array_equal(some.info.tolerances, whole.info.tolerances[:2])
    assert (len(some.theta), some.info.calls, some.info.converged) == (1_000, 450, False)
    with pytest.raises(Interrupted, match="after 299 of 300 simulations"):
        sf.smc_abc(PRIOR, stopped_at(299), X, budget=900)
