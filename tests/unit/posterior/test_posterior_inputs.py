"""Posteriors of simulations with known inputs: observations come with theirs, and new simulations have the right ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from exact_posteriors import Health, Settings

import scorefold as sf
from scorefold.density.likelihood import Likelihood, LikelihoodShape, Prepared, likelihood_network
from scorefold.density.line import fit_line
from scorefold.diagnostics.observed_dataset import posterior_predictive
from scorefold.errors import ScorefoldError, UnlikeSimulations
from scorefold.posterior.draws import Draws
from scorefold.posterior.summed import SummedPosterior
from scorefold.score.standardize import fit_standardize
from scorefold.simulation.columns import Columns
from scorefold.simulation.simulations import Simulations

PRIOR = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
SEEN: list[float] = []


def response(theta, rng, inputs):
    SEEN.append(float(inputs[0]))
    return rng.normal(theta[0] + theta[1] * inputs[0], 0.5)


@pytest.fixture(scope="module")
def sims() -> Simulations:
    return sf.simulate(PRIOR, response, 2_000, 4, inputs=lambda rng: rng.uniform(-1, 1), input_names=["dose"], x_names=["y"])


@pytest.fixture(scope="module")
def posterior(sims):
    return sf.fit(sims, "abc")


Y = np.array([0.1, 0.7, 0.4, -0.3])
DOSE = np.array([-0.5, 0.0, 0.5, 0.9])
FORMS = {
    "arrays": (Y[:, None], DOSE[:, None]),
    "one number each": (Y, DOSE),
    "inputs behind outcomes": (np.c_[Y, DOSE], None),
    "a table": (pd.DataFrame({"y": Y, "dose": DOSE}), None),
    "a table with inputs first": (pd.DataFrame({"dose": DOSE, "y": Y}), None),
    "two tables": (pd.DataFrame({"y": Y}), pd.DataFrame({"dose": DOSE})),
}


@pytest.mark.parametrize(("x_obs", "inputs"), FORMS.values(), ids=FORMS)
def test_observations_come_with_their_inputs_in_any_form(posterior, x_obs, inputs):
    draws = posterior.sample(x_obs, 50, inputs=inputs)
    np.testing.assert_array_equal(draws.theta, posterior.sample(np.c_[Y, DOSE], 50).theta)
    np.testing.assert_array_equal(draws.x_obs, Y[:, None])
    np.testing.assert_array_equal(draws.inputs, DOSE[:, None])
    assert (draws.x_names, draws.input_names) == (("y",), ("dose",))


def test_each_data_set_of_a_list_has_its_inputs(posterior):
    pair = posterior.sample([Y[:2, None], Y[2:, None]], 30, inputs=[DOSE[:2], DOSE[2:]])
    np.testing.assert_array_equal(pair[1].inputs[:, 0], DOSE[2:])
    with pytest.raises(ScorefoldError, match="inputs as a list"):
        posterior.sample([Y[:2, None], Y[2:, None]], 30, inputs=DOSE)
    many = posterior.sample_many(np.stack([Y, Y])[..., None], 20, inputs=np.stack([DOSE, DOSE])[..., None])
    assert many.theta.shape == (2, 20, 2)


REFUSED = {
    "no inputs": (Y, None, "the known inputs of each observation, dose: write inputs="),
    "transposed": (np.c_[Y, DOSE].T, None, r"shape \(n, 2\) \(y, dose\).*\(2, 4\).* Transposed it would fit: write x_obs.T"),
    "a number too many": (np.c_[Y, Y, DOSE], None, r"shape \(n, 2\) \(y, dose\), as the simulations were; got \(4, 3\)"),
    "rows of several lengths": ([[0.1, 0.2], [0.3]], None, r"expected x_obs to be numbers of shape \(n, 2\)"),
    "a table without them": (pd.DataFrame({"y": Y}), None, "the known inputs of each observation, dose"),
    "a file without them": (Columns(("y",), (Y,)), None, "dose: add a column for each to the file, or .*--inputs"),
    "a table of something else": (pd.DataFrame({"rt": Y, "dose": DOSE}), None, "y is missing. There are rt, dose"),
    "another table": (pd.DataFrame({"rt": Y, "choice": Y}), None, "y, dose are missing. There are rt, choice"),
    "too few": (Y, DOSE[:3], r"inputs of shape \(4, 1\), a row \(dose\) for each observation; got \(3, 1\)"),
    "one with another name": (Y, pd.DataFrame({"day": DOSE}), "the columns dose of inputs"),
    "NaN": (Y, [0.0, 0.0, np.nan, 0.0], "Inputs are always known"),
}


@pytest.mark.parametrize(("x_obs", "inputs", "message"), REFUSED.values(), ids=REFUSED)
def test_missing_and_wrong_inputs_are_refused(posterior, x_obs, inputs, message):
    with pytest.raises(ScorefoldError, match=message):
        posterior.sample(x_obs, 10, inputs=inputs)


def test_a_posterior_without_inputs_refuses_some():
    plain = sf.fit(sf.simulate(PRIOR, lambda theta, rng: rng.normal(theta), 200), "abc")
    with pytest.raises(ScorefoldError, match="no inputs, as the simulations have none"):
        plain.sample(np.zeros((1, 2)), 10, inputs=[1.0])


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_an_input_beyond_those_simulated_is_said(posterior):
    with pytest.warns(UnlikeSimulations, match="dose was simulated from"):
        posterior.sample(Y, 10, inputs=DOSE + 30)


def test_models_keep_their_inputs(posterior, tmp_path):
    back = sf.load(posterior.save(tmp_path / "model"))
    assert back.made == posterior.made
    assert (back.outcome_names, back.input_names) == (("y",), ("dose",))
    assert "y, given the inputs dose" in repr(back)
    np.testing.assert_array_equal(back.sample(Y, 20, inputs=DOSE).theta, posterior.sample(Y, 20, inputs=DOSE).theta)


def test_predictions_have_the_inputs_of_the_observations_or_those_asked_for(posterior):
    draws = posterior.sample(Y, 25, inputs=DOSE)
    SEEN.clear()
    assert draws.predict(response).shape == (25, 4, 1)
    np.testing.assert_allclose(sorted(set(SEEN)), sorted(DOSE))
    SEEN.clear()
    assert draws.predict(response, inputs=[0.25, 0.75]).shape == (25, 2, 1)
    assert set(SEEN) == {0.25, 0.75}
    with pytest.raises(ScorefoldError, match=r"inputs of shape \(3, 1\)"):
        draws.predict(response, n=3)
    found = posterior_predictive(draws, response)
    assert found.x.shape == (25, 4, 1)
    assert found.x_names == ("y",)
    assert draws.to_arviz()["constant_data"]["dose"].shape == (4,)


def test_diagnosis_draws_inputs_as_simulated_and_takes_the_observed_ones_with_observations(posterior):
    SEEN.clear()
    found = sf.diagnose(posterior, response, n=2, sims=40, draws=20)
    assert len(found.truth) == 40
    assert len(set(SEEN)) > 60
    assert -1 <= min(SEEN) < -0.8
    SEEN.clear()
    observed = sf.diagnose(posterior, response, sims=40, draws=20, x_obs=Y, inputs=DOSE).observed
    np.testing.assert_allclose(sorted(set(SEEN)), sorted(DOSE))
    assert observed.misspecification.numbers == 1
    with pytest.raises(ScorefoldError, match="inputs only with x_obs"):
        sf.diagnose(posterior, response, n=2, sims=40, inputs=DOSE)


def test_a_comparison_draws_inputs_as_simulated(sims, posterior):
    SEEN.clear()
    found = sf.compare([posterior, sf.fit(sims, sf.ABC(accept=0.5))], response, n=2, sims=20, draws=20, names=["near", "far"])
    assert len(found.standings) == 2
    assert len(set(SEEN)) > 30


@pytest.mark.false_failure(1e-6)
def test_smc_abc_simulates_with_the_observed_inputs():
    rng = np.random.default_rng(0)
    dose, theta = np.linspace(-1, 1, 30), (0.5, 1.5)
    y = rng.normal(theta[0] + theta[1] * dose, 0.5)
    design = np.c_[np.ones(30), dose]
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / 0.25)
    mean = covariance @ design.T @ y / 0.25
    SEEN.clear()
    with pytest.warns(sf.errors.UntrustworthyDraws):
        draws = sf.smc_abc(PRIOR, response, y, 15_000, 500, inputs=dose)
    np.testing.assert_allclose(sorted(set(SEEN)), dose)
    assert np.abs(draws.theta.mean(axis=0) - mean).max() < 0.3, "without the products, b would stay near its prior mean of 0"
    with pytest.raises(ScorefoldError, match="a row for each of the 30"):
        sf.smc_abc(PRIOR, response, y, 15_000, inputs=dose[:5])


def test_a_likelihood_is_of_the_outcomes_given_the_inputs():
    """∫ q(x | u, c) dx = 1 for every u and c, and it changes with c."""
    rng = np.random.default_rng(0)
    u, c = rng.normal(size=(500, 2)), rng.uniform(-1, 1, size=500)
    x = np.c_[u[:, 0] + 2 * u[:, 1] * c + 3 * c + rng.normal(size=500), c]
    scale = fit_standardize(x)
    z = np.asarray(jax.vmap(scale)(jnp.asarray(x, jnp.float32)))
    line = fit_line(z[:, :1], np.concatenate([u, z[:, 1:]], axis=1))
    network = likelihood_network(LikelihoodShape(2, 2, 16, 1, 2, "affine", inputs=1), key=jax.random.key(0))
    model = Likelihood(network, scale, line)
    grid = jnp.linspace(-8.0, 8.0, 4_001)

    def mass_and_mean(own):
        def term(y):
            return model.term(jnp.array([0.3, -0.2]), Prepared(y[None], own[None], None))

        density = jnp.exp(jax.vmap(term)(grid)) * line.whiten[0, 0]
        step = grid[1] - grid[0]
        return float(density.sum() * step), float((grid * density).sum() * step)

    low, high = mass_and_mean(jnp.float32(-1.0)), mass_and_mean(jnp.float32(1.0))
    assert low[0] == pytest.approx(1, abs=1e-3)
    assert high[0] == pytest.approx(1, abs=1e-3)
    assert high[1] - low[1] > 0.5


class Response(eqx.Module):
    """y | u, dose ~ N(u_0 + u_1 dose, 0.25), exactly."""

    normalised: bool = eqx.field(static=True, default=True)

    def prepare(self, x):
        return x

    def term(self, u, x):
        return -((x[0] - u[0] - u[1] * x[1]) ** 2) / 2 / 0.25

    def log_volume(self, x):
        return -jnp.log(2 * jnp.pi * 0.25) / 2


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_densities_and_the_evidence_are_given_the_inputs(posterior):
    exact = SummedPosterior(PRIOR, Settings(sampler="smc"), Response(), None, (2,), inputs=1, made=posterior.made)
    design, law = np.c_[np.ones(4), DOSE], scipy.stats.multivariate_normal
    precision = np.eye(2) + design.T @ design / 0.25
    right = law(np.linalg.solve(precision, design.T @ Y / 0.25), np.linalg.inv(precision))
    theta = right.rvs(2_000, random_state=0)
    each = scipy.stats.norm(theta @ design.T, 0.5).logpdf(Y)
    np.testing.assert_allclose(exact.log_likelihood(theta, Y, inputs=DOSE), each, atol=1e-3)
    draws = Draws(theta, PRIOR.names, Health(), 4, None, 0.0)
    some = theta[:20]
    np.testing.assert_allclose(exact.log_prob(some, Y, draws=draws, inputs=DOSE), right.logpdf(some), atol=0.1)
    np.testing.assert_allclose(exact.map(Y, draws=draws, inputs=DOSE), right.mean, atol=0.02)
    found = sf.evidence(exact, Y, draws=draws, inputs=DOSE)
    assert abs(found.log - law(np.zeros(4), 0.25 * np.eye(4) + design @ design.T).logpdf(Y)) < 0.1
    assert exact.sensitivity(Y, draws=draws, inputs=DOSE).observations.shape == (4, 2)
    with pytest.raises(ScorefoldError, match="known inputs of each observation"):
        exact.log_prob(some, Y)
