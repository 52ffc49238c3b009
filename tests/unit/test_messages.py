"""The messages of the first hour: each says what to write."""

import inspect
import re
import warnings

import numpy as np
import pytest
from scipy import stats
from untrained import untrained

import scorefold as sf
from scorefold import settings
from scorefold.app.commands.model_commands import fit as fit_command
from scorefold.errors import ScorefoldError, ScorefoldWarning, SimulatorError, UnknownSetting
from scorefold.simulation.run import check_simulator

PRIOR = sf.Prior({"v": stats.norm(0, 1), "a": stats.uniform(0.5, 1)})


def simulator(theta, rng):
    return theta + rng.normal(size=2)


# Simulators


@pytest.mark.parametrize("wrong", [lambda theta, rng: theta["v"], lambda theta, rng: theta.v], ids=["item", "attribute"])
def test_parameters_by_name_in_a_simulator(wrong):
    with pytest.raises(SimulatorError, match=r"order of the prior, v, a: write theta\[0\] for v, or `v, a = theta`"):
        sf.simulate(PRIOR, wrong, 200)


def test_another_index_error_has_no_such_advice():
    with pytest.raises(SimulatorError) as caught:
        sf.simulate(PRIOR, lambda theta, rng: theta[7], 200)
    assert "write theta[0]" not in str(caught.value)


def without_rng(theta):
    return theta


def with_three(theta, rng, coherence):
    return theta


@pytest.mark.parametrize("wrong", [without_rng, with_three])
def test_a_simulator_with_other_arguments(wrong):
    with pytest.raises(
        ScorefoldError, match=rf"takes \(theta, rng\); got {wrong.__name__}\(theta.*def {wrong.__name__}\(theta, rng\)"
    ):
        sf.simulate(PRIOR, wrong, 200)


@pytest.mark.parametrize(
    "right", [np.add, lambda *args: args[0], lambda theta, rng, scale=1.0: theta], ids=["ufunc", "args", "default"]
)
def test_whatever_can_be_called_with_two_is_a_simulator(right):
    check_simulator(right, sf.Workers())


@pytest.mark.parametrize(
    ("returned", "advice"),
    [
        (None, "The simulator returned nothing: end it with `return x`"),
        ({"rt": 0.5, "choice": 1}, "Return the numbers in one array, always in the same order; x_names="),
    ],
    ids=["nothing", "dict"],
)
def test_a_simulator_that_returns_no_array(returned, advice):
    with pytest.raises(SimulatorError, match=advice):
        sf.simulate(PRIOR, lambda theta, rng: returned, 200)


# Priors and settings


def test_parameters_of_a_prior_that_are_no_numbers():
    with pytest.raises(ScorefoldError, match=r"prior of 'v': expected numbers as the parameters of uniform; got loc = None"):
        sf.Prior({"v": stats.uniform(None, None)})
    with pytest.raises(ScorefoldError, match=r"uniform\(loc, scale\) goes from loc to loc \+ scale"):
        sf.Prior({"v": stats.uniform("low", 1)})


MISSPELT = {
    "NPSE": (lambda: sf.NPSE(widht=3), "NPSE has no setting 'widht'. Did you mean 'width'"),
    "NPE": (lambda: sf.NPE(layer=3), "Did you mean 'layers'"),
    "Training": (lambda: sf.Training(step=3), "Did you mean 'steps'"),
    "Workers": (lambda: sf.Workers(cuont=3), "Did you mean 'count'"),
}


@pytest.mark.parametrize("what", MISSPELT)
def test_a_misspelt_setting(unchecked, what):
    make, message = MISSPELT[what]
    with pytest.raises(UnknownSetting, match=message) as caught:
        make()
    assert isinstance(caught.value, TypeError)


def test_settings_by_position_and_too_many_of_them(unchecked):
    assert sf.Training(3, (1e-3,), 1e4).steps == 10_000
    with pytest.raises(TypeError):
        sf.ABC(0.1, "moments", True, 4)
    with pytest.raises(TypeError):
        sf.ABC(0.1, accept=0.2)


# Counts and seeds


def test_whole_floats_are_counts(unchecked):
    sims = sf.simulate(PRIOR, simulator, budget=2e2, set_size=2.0, seed=1)
    np.testing.assert_array_equal(sims.x, sf.simulate(PRIOR, simulator, 200, 2, seed=1).x)
    assert isinstance(sims.budget, int)
    assert PRIOR.sample(1e2, 0).shape == (100, 2)
    for made in (sf.Training(steps=1e4).steps, sf.NPSE(width=6e1).width, sf.Workers(2.0).count):
        assert isinstance(made, int)
    assert isinstance(sf.Workers(timeout=60.0).timeout, float)


@pytest.mark.parametrize("wrong", [150.5, np.nan, np.inf, "200", True, None, 1e300])
def test_what_is_no_count(unchecked, wrong):
    with pytest.raises(ScorefoldError, match="expected budget"):
        sf.simulate(PRIOR, simulator, wrong)


def test_seed_none_is_a_fresh_seed_and_is_said():
    with pytest.warns(
        ScorefoldWarning, match=r"seed=None: the fresh random seed is \d+. Write seed=\d+ to repeat this"
    ) as caught:
        sims = sf.simulate(PRIOR, simulator, 100, seed=None)
    assert f"seed={sims.seed} " in str(caught[0].message)
    np.testing.assert_array_equal(sims.x, sf.simulate(PRIOR, simulator, 100, seed=sims.seed).x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert settings.seed(None) != settings.seed(None)
    with pytest.warns(ScorefoldWarning, match="fresh random seed"):
        assert sf.fit(sims, "abc", seed=None).sample([[0.0, 1.0]], 50).n == 1


@pytest.mark.parametrize(
    "verb",
    [
        sf.simulate, sf.fit, sf.Prior.sample, sf.Posterior.sample, sf.Posterior.check, sf.Posterior.refine, sf.Draws.predict,
        sf.smc_abc, sf.evidence, sf.diagnose, sf.compare, sf.plots.predictive,
    ],
)  # fmt: skip
def test_every_verb_takes_seed_none(verb):
    assert inspect.signature(verb).parameters["seed"].annotation == (int | None)


def test_a_fresh_seed_of_the_priors_draws_is_said():
    with pytest.warns(ScorefoldWarning, match=r"fresh random seed is \d+") as caught:
        theta = PRIOR.sample(3, None)
    said = int(re.search(r"seed=(\d+) to repeat", str(caught[0].message))[1])
    np.testing.assert_array_equal(theta, PRIOR.sample(3, said))


# Methods and stores


def test_pf_npse_on_sets_of_one_is_said_to_be_f_npse(monkeypatch):
    sims = sf.simulate(PRIOR, simulator, 100)
    monkeypatch.setattr(sf.NPSE, "train", lambda self, sims, *rest: [untrained("f-npse")])
    with pytest.warns(ScorefoldWarning, match="sets of one observation, for which pf-npse is f-npse"):
        sf.fit_many([sims], "pf-npse", [0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.fit_many([sims], sf.NPSE(), [0])
        sf.fit_many([sf.simulate(PRIOR, simulator, 300, set_size=3)], "pf-npse", [0])


def test_simulations_of_ones_own_and_a_method_without_brackets(unchecked):
    sims = sf.simulate(PRIOR, simulator, 100)
    with pytest.raises(ScorefoldError, match=r"got tuple. Make them of .* by sf.Simulations\(prior, theta, x\)"):
        sf.fit((sims.theta, sims.x))
    with pytest.raises(ScorefoldError, match=r"got the class NLE. Write sf.NLE\(\)"):
        sf.fit(sims, sf.NLE)


def test_sample_tells_that_it_draws(capsys):
    posterior = sf.fit(sf.simulate(PRIOR, simulator, 200), "abc")
    x = np.zeros((1, 2))
    posterior.sample(x, 50)
    assert capsys.readouterr().err == ""
    posterior.sample(x, 50, progress=True)
    assert capsys.readouterr().err == "drawing: begun\ndrawing: done, 0:00\n"
    posterior.sample([x, x], 50, progress=True)
    assert capsys.readouterr().err == "drawing: 2 of 2 (100%), 0:00\n"


def test_one_default_method():
    asked = inspect.signature(fit_command).parameters["method"].default
    assert inspect.signature(sf.fit).parameters["method"].default == asked


def test_a_store_says_what_is_in_it(tmp_path):
    """It was `<… object at 0x…>`."""

    def sometimes(theta, rng):
        return theta * (np.nan if theta[0] > 1.7 else 1.0)

    with pytest.warns(ScorefoldWarning, match="6 of 100 simulations failed"):
        sf.simulate(PRIOR, sometimes, 100, store=tmp_path / "sims", workers=0)
    said = repr(sf.Store.open(tmp_path / "sims"))
    assert said == f"Store({tmp_path / 'sims'}: 94 ok, 6 not finite; {PRIOR!r})"


def test_a_store_with_another_prior_shows_only_what_differs(tmp_path):
    sf.simulate(PRIOR, simulator, 100, store=tmp_path, workers=0)
    other = sf.Prior({"v": stats.norm(0, 2), "a": stats.uniform(0.5, 1)})
    with pytest.raises(ScorefoldError) as caught:
        sf.simulate(other, simulator, 100, store=tmp_path, workers=0)
    text = str(caught.value)
    assert "  prior of v\n    in the store: norm(loc=0.0, scale=1.0)\n    now:          norm(loc=0.0, scale=2.0)" in text
    assert "uniform" not in text
    assert "simulator\n" not in text
    more = sf.Prior({"v": stats.norm(0, 1), "a": stats.uniform(0.5, 1), "t0": stats.expon()})
    with pytest.raises(ScorefoldError, match=r"prior of t0\n    in the store: no such parameter\n    now: +expon"):
        sf.simulate(more, simulator, 100, store=tmp_path, workers=0)
    turned = sf.Prior({"a": stats.uniform(0.5, 1), "v": stats.norm(0, 1)})
    with pytest.raises(ScorefoldError, match=r"order of the parameters\n    in the store: v, a\n    now: +a, v"):
        sf.simulate(turned, simulator, 100, store=tmp_path, workers=0)
    normal = sf.Prior(stats.multivariate_normal([0, 1], np.eye(2)), names=["v", "a"])
    with pytest.raises(ScorefoldError, match="prior: kind"):
        sf.simulate(normal, simulator, 100, store=tmp_path, workers=0)


@pytest.mark.parametrize("value", [1j, [1.0, np.complex64(2)], [None, np.array(0j, np.complex64)], np.ones(2, complex)])
def test_complex_numbers_are_refused_wherever_they_are(value):
    with pytest.raises(ScorefoldError, match="expected x to be numbers"):
        settings.numbers("x", value)
