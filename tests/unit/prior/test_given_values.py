"""Planes on which parameters have the values that they were given."""

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.prior.given_values import plane, with_given
from scorefold.prior.proposal import GaussianProposal, TruncatedProposal

MARGINALS = sf.Prior({"a": stats.lognorm(0.5, scale=2.0), "b": stats.uniform(-1, 4), "c": stats.norm(0, 1)})
CORRELATED = sf.Prior(
    stats.multivariate_normal([0, 1, 2], [[1, 0.5, 0.1], [0.5, 2, 0.2], [0.1, 0.2, 1]]), names=["a", "b", "c"]
)
ROWS = np.abs(np.random.default_rng(0).normal(1, 0.5, size=(300, 3))) + 0.01
PRIORS = {
    "marginals": MARGINALS,
    "correlated": CORRELATED,
    "draws": sf.Prior.from_draws(ROWS, names=["a", "b", "c"], bounds={"a": (0, np.inf)}),
    "proposal": MARGINALS.proposing(GaussianProposal(np.array([0.1, -0.3, 0.2]), np.diag([0.2, 0.1, 0.5]) + 0.02)),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_plane_holds_the_values(name):
    prior = PRIORS[name]
    found = plane(prior, {"c": 0.4, "a": 1.5})
    assert found.free.shape == (3, 1)
    np.testing.assert_allclose(found.free.T @ found.free, np.eye(1), atol=1e-12)
    np.testing.assert_allclose(found.origin @ found.free, 0, atol=1e-9)
    theta = prior.from_normal(found.origin + np.linspace(-2, 2, 9)[:, None] * found.free[:, 0])
    np.testing.assert_allclose(theta[:, [0, 2]], np.tile([1.5, 0.4], (9, 1)), rtol=1e-6)
    assert np.ptp(theta[:, 1]) > 0.1


@pytest.mark.parametrize("name", PRIORS)
def test_drawn_parameters_have_the_values_exactly(name):
    prior, given = PRIORS[name], {"c": 0.4, "a": 1.5}
    found = plane(prior, given)
    u = np.float32(found.origin + np.linspace(-2, 2, 9)[:, None] * found.free[:, 0])
    theta = with_given(prior.from_normal(u.astype(np.float64)), prior, given)
    assert (theta[:, [0, 2]] == [1.5, 0.4]).all()
    np.testing.assert_allclose(theta, prior.from_normal(u.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"d": 1.0}, "'d'"),
        ({"b": 7.0}, "'b' in given within the support of its prior, -1 to 3; got 7"),
        ({"a": "1"}, "a finite number for 'a'"),
        ({"a": 1.0, "b": 0.0, "c": 0.0}, "nothing to draw"),
        ({}, "values by name"),
        ("a", "values by name"),
    ],
)
def test_what_cannot_be_given(given, words):
    with pytest.raises(ScorefoldError, match=words):
        plane(MARGINALS, given)


TOO_FAR = [("marginals", {"a": 2000.0}), ("correlated", {"b": 10.0}), ("proposal", {"c": -7.0})]


@pytest.mark.parametrize(("name", "given"), TOO_FAR)
def test_where_nothing_was_simulated(name, given):
    with pytest.raises(ScorefoldError, match=r"within 6 prior sd, as there are no simulations beyond; got"):
        plane(PRIORS[name], given)


def test_the_end_of_an_interval_can_be_given():
    assert np.isfinite(plane(MARGINALS, {"b": -1.0}).origin).all()


def test_not_in_a_box():
    box = TruncatedProposal(np.eye(3), -np.ones(3), np.ones(3))
    with pytest.raises(ScorefoldError, match="Gaussian proposals"):
        plane(MARGINALS.proposing(box), {"c": 0.0})
