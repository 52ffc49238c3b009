"""Which method `sf.fit` takes by itself, and why; nothing is trained."""

import warnings

import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold import methods, tasks
from scorefold.methods.choice import choose
from scorefold.methods.nle import NLE
from scorefold.methods.npse import NPSE

PRIOR = sf.Prior({"a": scipy.stats.norm(0, 1)})


def simulated(simulator, budget=300, **options):
    with warnings.catch_warnings(action="ignore"):  # that some failed
        return sf.simulate(PRIOR, simulator, budget, seed=0, **options)


def censored(theta, rng):
    return np.maximum(rng.normal(theta[0], 1.0, size=2), 0.0)


def repeated(theta, rng):
    x = rng.normal(theta[0], 1.0, size=2)
    return np.array([x[0], x[1], x[0] - 2 * x[1]])


def a_series(theta, rng):
    return rng.normal(theta[0], 1.0, size=(20, 2))


def long_vector(theta, rng):
    return rng.normal(theta[0], 1.0, size=40)


def fails_at_times(theta, rng):
    if rng.uniform() < 0.05:
        raise ValueError("no")
    return rng.normal(theta[0], 1.0, size=2)


@pytest.mark.parametrize(
    ("simulator", "word"),
    [
        (censored, "x0 has some of its values again and again"),
        (repeated, "follows from the other numbers"),
        (a_series, "20 × 2 numbers"),
        (long_vector, "40 numbers"),
        (fails_at_times, "simulations failed"),
    ],
)
def test_scores_where_a_likelihood_cannot_be_learned(simulator, word):
    found = choose(simulated(simulator))
    assert found.method == NPSE(set_size=1)
    assert word in found.why


def test_sets_of_observations_are_scored_as_sets():
    assert choose(simulated(lambda theta, rng: rng.normal(theta[0], 1.0, size=2), set_size=3)).method == NPSE()


def test_a_prior_that_is_known_by_draws_only_has_no_likelihood_to_go_with():
    prior = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(500, 1)), names=["a"])
    sims = sf.simulate(prior, lambda theta, rng: rng.normal(theta[0], 1.0, size=2), 300, seed=0)
    assert "draws only" in choose(sims).why


def test_counts_and_choices_have_probabilities():
    def simulator(theta, rng):
        return np.array([rng.poisson(np.exp(theta[0])), rng.uniform() < 0.3, rng.normal(theta[0])])

    assert choose(simulated(simulator)).method == NLE()


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_has_a_likelihood(name):
    task = tasks.get(name)
    assert choose(sf.simulate(task.prior, task.simulator, 300, seed=0)).method == NLE()


def test_auto_is_a_word_like_the_others():
    assert methods.get("auto").resumes
