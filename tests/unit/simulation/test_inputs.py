"""Known inputs: drawn independently of θ, given to the simulator, kept as the last numbers of an observation."""

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import scorefold as sf
from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.simulation.calls import repeat
from scorefold.simulation.inputs import INPUTS_A_STREAM, inputs_from
from scorefold.simulation.likeness import look, unlike
from scorefold.simulation.replicate import replicate

PRIOR = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
DOSES = pd.DataFrame({"dose": [0.0, 1.0, 2.5], "day": [1.0, 2.0, 3.0]})


def response(theta, rng, inputs):
    return [theta[0] + theta[1] * inputs[0], inputs[1], rng.normal()]


def one_dose(rng):
    return rng.uniform(1, 2)


def line(theta, rng, inputs):
    return rng.normal(theta[0] * inputs[0])


@sf.Batched
def batched(theta, keys, inputs):
    return theta[:, 0] * inputs[:, 0] + 0 * jax.vmap(jax.random.normal)(keys)


def test_the_simulator_gets_the_inputs_that_are_kept_with_the_observation():
    sims = sf.simulate(PRIOR, response, 200, inputs=DOSES, x_names=("level", "day seen", "noise"))
    assert sims.x.shape == (200, 1, 5)
    assert sims.x_names == ("level", "day seen", "noise", "dose", "day")
    assert sims.input_names == ("dose", "day")
    inputs = sims.inputs[:, 0]
    np.testing.assert_array_equal(sims.x[:, 0, 1], inputs[:, 1])
    np.testing.assert_allclose(sims.x[:, 0, 0], sims.theta[:, 0] + sims.theta[:, 1] * inputs[:, 0], rtol=1e-5, atol=1e-6)
    rows = {tuple(row) for row in inputs.tolist()}
    assert rows == {tuple(row) for row in DOSES.to_numpy().tolist()}, "whole rows of the table, all of them"
    assert "x 3 (level, day seen, noise) given inputs (dose, day)" in repr(sims)


@pytest.mark.false_failure(1e-6)
def test_inputs_are_independent_of_the_parameters():
    sims = sf.simulate(PRIOR, line, 5_000, inputs=one_dose)
    dose, a = sims.inputs[:, 0, 0], sims.theta[:, 0]
    assert abs(np.corrcoef(dose, a)[0, 1]) < 5 / np.sqrt(5_000)


def test_the_inputs_of_a_simulation_follow_from_seed_and_number_alone():
    inputs = inputs_from(one_dose, ["dose"])
    whole = inputs.drawn(3, 0, 3 * INPUTS_A_STREAM)
    np.testing.assert_array_equal(
        inputs.drawn(3, INPUTS_A_STREAM - 5, INPUTS_A_STREAM + 5), whole[INPUTS_A_STREAM - 5 : INPUTS_A_STREAM + 5]
    )
    assert not np.array_equal(inputs.drawn(4, 0, 10), whole[:10])
    assert inputs.drawn(3, 7, 7).shape == (0, 1)


def test_workers_stores_and_larger_budgets_give_the_same_simulations(tmp_path):
    whole = sf.simulate(PRIOR, line, 300, set_size=3, inputs=DOSES[["dose"]], x_names="y")
    sf.simulate(PRIOR, line, 200, set_size=3, inputs=DOSES[["dose"]], x_names="y", store=tmp_path / "store", workers=2)
    stored = sf.simulate(PRIOR, line, 300, set_size=3, inputs=DOSES[["dose"]], x_names="y", store=tmp_path / "store", workers=0)
    again = sf.Store.open(tmp_path / "store").simulations()
    for other in (stored, again):
        np.testing.assert_array_equal(other.x, whole.x)
        assert (other.x_names, other.input_names) == (("y", "dose"), ("dose",))


@pytest.mark.parametrize("other", [None, DOSES[["dose"]][:2], DOSES[["day"]], one_dose])
def test_a_store_is_not_continued_with_other_inputs(tmp_path, other):
    sf.simulate(PRIOR, line, 100, inputs=DOSES[["dose"]], store=tmp_path / "store", workers=0)
    with pytest.raises(ScorefoldError, match=r"inputs\n +in the store: dose"):
        sf.simulate(PRIOR, line if other is not None else lambda theta, rng: 0.0, 100, inputs=other, store=tmp_path / "store")


def test_a_batched_simulator_gets_a_batch_of_inputs():
    sims = sf.simulate(PRIOR, batched, 200, inputs=one_dose, input_names="dose")
    np.testing.assert_allclose(sims.x[:, 0, 0], sims.theta[:, 0] * sims.inputs[:, 0, 0], rtol=1e-5)
    assert sims.x_names == ("x[0]", "dose")


def test_own_simulations_come_with_their_inputs():
    theta, rng = PRIOR.sample(60, seed=0), np.random.default_rng(0)
    x, dose = rng.normal(size=(60, 2)), rng.uniform(size=60)
    sims = sf.Simulations(PRIOR, theta, x, inputs=dose, input_names=["dose"], x_names=["p", "q"])
    np.testing.assert_allclose(sims.x[:, 0], np.c_[x, dose], rtol=1e-6)
    assert sims.x_names == ("p", "q", "dose")
    sets = [rng.normal(size=(1 + i % 3, 2)) for i in range(60)]
    own = [pd.DataFrame({"dose": rng.uniform(size=len(one))}) for one in sets]
    both = sf.Simulations(PRIOR, theta, sets, sets=True, inputs=own)
    np.testing.assert_allclose(both.x[2, :3, 2], own[2]["dose"], rtol=1e-6)
    with pytest.raises(ScorefoldError, match="a row of inputs for each of the 60 observations"):
        sf.Simulations(PRIOR, theta, x, inputs=dose[:50])


def test_a_replicated_data_set_has_the_inputs_that_were_asked_for():
    theta = PRIOR.sample(4, seed=0)
    same = replicate(repeat(theta, 3, 0, np.array([[1.0], [2.0], [3.0]])), line)
    np.testing.assert_allclose(same[..., 1], np.tile([1.0, 2.0, 3.0], (4, 1)))
    own = np.arange(12.0).reshape(4, 3, 1)
    np.testing.assert_allclose(replicate(repeat(theta, 3, 0, own), line)[..., 1:], own)


def test_inputs_unlike_the_simulated_ones_are_noticed_by_name():
    sims = sf.simulate(PRIOR, line, 500, inputs=one_dose, input_names=["dose"], x_names="y")
    seen = look(sims)
    assert seen.input_names == ("dose",)
    assert seen.inputs.shape == (500, 1)
    assert unlike(seen, np.array([[0.3, 1.5]])) == ""
    assert "dose was simulated from" in unlike(seen, np.array([[0.3, 15.0]]))


REFUSED = {
    "names without inputs": (dict(input_names=["dose"]), "input_names only with inputs"),
    "a name too many": (dict(inputs=one_dose, input_names=["dose", "day"]), "expected 1 different names"),
    "an array of three axes": (dict(inputs=np.zeros((2, 2, 2))), r"\(n, inputs\); got shape"),
    "an empty table": (dict(inputs=np.zeros((0, 1))), "a row or more"),
    "NaN in the table": (dict(inputs=[1.0, np.nan]), "Inputs are always known"),
    "words in the table": (dict(inputs=pd.DataFrame({"dose": ["low", "high"]})), "'dose' of inputs to hold numbers"),
    "a sampler that raises": (dict(inputs=lambda rng: rng.nothing()), r"inputs\(rng\) to draw .* AttributeError"),
    "a sampler of matrices": (dict(inputs=lambda rng: np.zeros((2, 2))), "a number or a list of numbers"),
    "a name of an outcome": (dict(inputs=one_dose, input_names=["y"], x_names=["y"]), "different names; got y for both"),
    "x_names for inputs too": (dict(inputs=one_dose, x_names=["y", "dose"]), "x_names for the 1 numbers"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_inputs_is_refused(arguments, message):
    with pytest.raises(ScorefoldError, match=message):
        sf.simulate(PRIOR, line, 100, **arguments)


def test_a_simulator_and_its_inputs_must_go_together():
    with pytest.raises(SimulatorError, match=r"takes \(theta, rng, inputs\); got <lambda>\(theta, rng\)"):
        sf.simulate(PRIOR, lambda theta, rng: 0.0, 100, inputs=one_dose)
    with pytest.raises(SimulatorError, match=r"A third argument gets the known inputs .* inputs=…"):
        sf.simulate(PRIOR, line, 100)


def test_inputs_do_not_go_with_series_and_failures_show_them():
    with pytest.raises(SimulatorError, match="a number or a list of numbers as the outcome"):
        sf.simulate(PRIOR, lambda theta, rng, inputs: np.zeros((3, 4)), 100, inputs=one_dose)
    with pytest.raises(SimulatorError, match=r"with inputs \[1\."):
        sf.simulate(PRIOR, lambda theta, rng, inputs: 1 / 0, 100, inputs=one_dose)
