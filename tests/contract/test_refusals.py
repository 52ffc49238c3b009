"""What cannot be right is refused with one paragraph that names what came, by every kind of posterior alike."""

import subprocess
import sys

import numpy as np
import pytest
from exact_posteriors import Analytic, simulator, summed
from untrained import untrained

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.tasks.gaussian import standard_normal_prior

pytestmark = pytest.mark.usefixtures("unchecked")

X = np.random.default_rng(0).standard_normal((8, 2))
KINDS = {
    "composed": lambda: untrained("f-npse"),
    "summed": summed,
    "abc": lambda: sf.fit(sf.simulate(standard_normal_prior(2), simulator, 200), "abc"),
    "one's own": Analytic,
}


@pytest.fixture(scope="module", params=KINDS)
def posterior(request):
    return KINDS[request.param]()


@pytest.fixture(scope="module")
def composed():
    return untrained("f-npse")


def refused(call, message):
    with pytest.raises(ScorefoldError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(str(caught.value)) < 500


NAN, INF = X[:3].copy(), X[:3].copy()
NAN[1, 1], INF[2, 0] = np.nan, np.inf

OBSERVATIONS = {
    "too narrow": (X[:, :1], r"shape \(n, 2\).*got \(8, 1\)"),
    "too wide": (np.zeros((3, 11)), r"got \(3, 11\)"),
    "one observation": (X[0], r"got \(2,\).*For one observation write x_obs\[None\]"),
    "a number": (3.0, r"got \(\)"),
    "nothing": (None, "numbers of shape .* got NoneType"),
    "NaN": (NAN, r"1 of 3 hold NaN or infinity .*x_obs\[1\]"),
    "infinity": (INF, r"1 of 3 hold NaN or infinity .*x_obs\[2\]"),
    "beyond single precision": (np.full((3, 2), 1e39), "single precision"),
    "no observations": (X[:0], r"got n = 0.*prior\.sample"),
    "an empty list": ([], r"got \(0,\)"),
    "a word": ("abc", "numbers of shape .* got str"),
    "words": ([["a"] * 2], "numbers of shape .* got list"),
    "a dictionary": ({"x": X}, "got dict"),
    "ragged rows": ([X[0], X[0, :1]], "numbers of shape .* got list"),
    "a ragged data set in a list": ([[X[0], X[0, :1]]], "numbers of shape .* got list"),
    "an axis too many": (X[None], r"got \(1, 8, 2\)"),
    "a list with one bad item": ([X, X[:, :1]], r"got \(8, 1\)"),
    "a list with an empty item": ([X, X[:0]], "got n = 0"),
    "a list with a word": ([X, "abc"], "got str"),
}


@pytest.mark.parametrize("what", OBSERVATIONS)
def test_observations(posterior, what):
    x_obs, message = OBSERVATIONS[what]
    refused(lambda: posterior.sample(x_obs, draws=10), message)


MANY = {
    "one data set": (X, {}, r"expected x_obs of shape \(data sets, n, 2\)"),
    "none": (X[None][:0], {}, "expected x_obs of shape"),
    "NaN": (NAN[None], {}, "hold NaN"),
    "no draws": (X[None], {"draws": 0}, "expected draws"),
}


@pytest.mark.parametrize("what", MANY)
def test_many_data_sets(posterior, what):
    x_obs, how, message = MANY[what]
    refused(lambda: posterior.sample_many(x_obs, **how), message)


NUMBERS = {
    "no draws": ({"draws": 0}, "draws to be a whole number ≥ 1; got 0"),
    "half a draw": ({"draws": 2.5}, "draws to be a whole number ≥ 1; got 2.5"),
    "draws = True": ({"draws": True}, "got True"),
    "draws in words": ({"draws": "ten"}, "got 'ten'"),
    "negative seed": ({"seed": -1}, "seed to be a whole number ≥ 0; got -1"),
    "seed = '0'": ({"seed": "0"}, "seed to be a whole number ≥ 0; got '0'"),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_draws_and_seeds(posterior, what):
    numbers, message = NUMBERS[what]
    refused(lambda: posterior.sample(X, **{"draws": 10, **numbers}), message)


SETTINGS = {
    "another method's option": ({"chains": 4}, "expected only rule, sampler, set_size, prior, given for NPSE; got chains"),
    "Ancestral": ({"sampler": sf.samplers.Ancestral()}, "does not go with 'ancestral' for 8 sets.*Use the self-tuned sampler"),
    "Transitions": ({"sampler": sf.samplers.Transitions()}, "derived for the tempered rule"),
    "misspelt rule": ({"rule": "difused"}, "unknown rule 'difused'. Did you mean 'diffused'"),
    "unknown rule": ({"rule": 3}, "unknown rule 3"),
    "misspelt sampler": ({"sampler": "langevan"}, "got 'langevan'. Did you mean 'langevin'"),
    "a number as sampler": ({"sampler": 3}, "expected a sampler .* got"),
    "a class as sampler": ({"sampler": sf.samplers.SelfTuned}, "expected a sampler .* got"),
    "larger sets than trained": ({"set_size": 2}, "set_size between 1 and 1, as trained, or 'auto'; got 2"),
    "set_size in words": ({"set_size": "two"}, "got 'two'"),
    "too many levels": ({"sampler": sf.samplers.SelfTuned(levels=401)}, "count = 401"),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_rules_samplers_and_set_sizes(composed, what):
    settings, message = SETTINGS[what]
    refused(lambda: composed.sample(X, **{"draws": 10, **settings}), message)


SUMMED = {
    "another sampler": ({"sampler": "hmc"}, "Known: smc, nuts, vi"),
    "one chain": ({"chains": 1}, "2 chains or more"),
    "a rule": ({"rule": "diffused"}, "expected only sampler, chains"),
}


@pytest.mark.parametrize("what", SUMMED)
def test_samplers_and_chains_of_summed_terms(what):
    settings, message = SUMMED[what]
    refused(lambda: summed().sample(X, 10, **settings), message)


def test_fits():
    sims = sf.simulate(standard_normal_prior(2), simulator, 100)
    refused(lambda: sf.fit(X), "expected the Simulations that sf.simulate returns; got ndarray")
    refused(lambda: sf.fit(None), "got NoneType")
    refused(lambda: sf.fit(tuple(sims)), "got tuple")
    refused(lambda: sf.fit(sims, "fnpse"), "unknown method 'fnpse'. Did you mean 'f-npse'")
    refused(lambda: sf.fit(sims, sf.NPSE), "got the class NPSE. Write sf.NPSE")
    refused(lambda: sf.fit(sims, seed=-1), "seed to be a whole number ≥ 0; got -1")
    refused(lambda: sf.fit(sims, seed=1.0), "got 1.0")
    refused(lambda: sf.fit(sims, "npse"), "expected simulations in sets.*set_size=n_max")


METHOD_SETTINGS = {
    "an unknown embedding": (
        lambda: sf.NPSE(embedding="convolutoin"),
        "Did you mean 'convolution'",
    ),
    "a flow of NPE": (lambda: sf.NPE(flow="planar"), "expected flow affine or spline"),
    "layers of NPE": (lambda: sf.NPE(layers=0), "layers of NPE to be at least 1"),
    "width of NPE": (lambda: sf.NPE(width=0), "width of NPE to be at least 1"),
    "a flow of NLE": (lambda: sf.NLE(flow="planar"), "affine or spline"),
    "a sampler of NLE": (lambda: sf.NLE(sampler="gibbs"), "smc, nuts, vi"),
    "one chain": (lambda: sf.NLE(chains=1), "2 chains or more"),
    "depth of NRE": (lambda: sf.NRE(depth=0), "depth of NRE to be at least 1"),
    "none accepted": (lambda: sf.ABC(accept=0.0), "0 < accept ≤ 1"),
    "more than all accepted": (lambda: sf.ABC(accept=2.0), "0 < accept ≤ 1"),
    "an unknown summary": (lambda: sf.ABC(summary="median"), "0 < accept ≤ 1"),
}


@pytest.mark.parametrize("what", METHOD_SETTINGS)
def test_settings_of_methods(what):
    make, message = METHOD_SETTINGS[what]
    refused(make, message)


@pytest.mark.parametrize("method", ["nle", "nre"])
def test_a_prior_from_draws_where_its_density_is_needed(method):
    prior = Prior.from_draws(np.random.default_rng(0).standard_normal((200, 2)))
    sims = sf.simulate(prior, simulator, 100)
    refused(lambda: sf.fit(sims, method), f"known density for {method.upper()}")


def test_the_verb_simulate_is_not_hidden_by_a_folder():
    # Whatever was imported before it: a folder of that name once was the package's attribute.
    code = "import scorefold as sf, scorefold.tasks; sf.NPSE, sf.Batched; assert callable(sf.simulate), sf.simulate"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
