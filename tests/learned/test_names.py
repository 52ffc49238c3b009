"""Names of outcomes on the whole walk: one's own simulations, a model, strange data, draws and figures."""

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, UnlikeSimulations

PRIOR = sf.Prior({"v": stats.norm(0, 1), "a": stats.uniform(0.5, 1.5)})


def reaction(theta, rng):
    return np.array([0.2 + rng.gamma(2 * theta[1], 0.3), float(rng.random() < 1 / (1 + np.exp(-theta[0])))])


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    theta = PRIOR.sample(600, seed=1)
    sims = sf.Simulations(PRIOR, theta, [reaction(one, rng) for one in theta], x_names=("rt", "choice"))
    return sf.fit(sims, sf.NPSE(width=8, depth=1, correction=False, training=sf.Training(members=2, steps=200)))


@pytest.fixture(scope="module")
def x_obs():
    rng = np.random.default_rng(3)
    return np.stack([reaction(np.array([0.5, 1.0]), rng) for _ in range(20)])


def test_names_come_back_with_the_model_and_the_draws(posterior, x_obs, tmp_path):
    back = sf.load(posterior.save(tmp_path / "model"))
    assert back.x_names == ("rt", "choice")
    draws = back.sample(x_obs, 200)
    assert draws.x_names == ("rt", "choice")
    assert not draws.noticed
    figure = sf.plots.predictive(draws, reaction)
    assert [axes.get_xlabel() for axes in figure.axes] == ["rt, where choice = 0", "rt, where choice = 1", "choice"]


STRANGE = {
    "milliseconds": (lambda x: x * np.array([1000, 1]), "rt was simulated from .* Divided by 1,000, rt would be like them"),
    "swapped": (lambda x: x[:, ::-1], "With rt and choice swapped they would be like them"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_sample_notices_data_unlike_anything_simulated(posterior, x_obs, what):
    change, message = STRANGE[what]
    with pytest.warns(UnlikeSimulations, match=message):
        draws = posterior.sample(change(x_obs), 100)
    assert "unlike anything simulated" in str(draws.summary())


def test_tables_are_matched_by_name(posterior, x_obs):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x_obs, columns=["rt", "choice"])
    np.testing.assert_array_equal(posterior.sample(frame, 50).theta, posterior.sample(x_obs, 50).theta)
    with pytest.raises(ScorefoldError, match="in this order; got choice, rt"):
        posterior.sample(frame[["choice", "rt"]], 50)
