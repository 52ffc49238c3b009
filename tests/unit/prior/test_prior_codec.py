"""Priors in files: what is written comes back with the same maps, and nothing else is taken up."""

import json
import warnings

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats._distr_params import distcont

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.prior.codec import KEYS, LAWS, arrays, describe, from_parts, parts, restore, shapes, size
from scorefold.prior.proposal import GaussianProposal, TruncatedProposal

RNG = np.random.default_rng(0)
DRAWS = RNG.normal(size=(20_000, 2)) @ [[1.0, 0.4], [0.0, 0.7]]
UNEQUAL = np.diag([1e-6, 1e6]) @ [[1.0, 0.5], [0.5, 1.0]] @ np.diag([1e-6, 1e6])
EXAMPLES = {name: args for name, args in distcont if isinstance(name, str)}

PRIORS = {
    "marginals": lambda: Prior({"β": stats.lognorm(0.5, scale=0.1 + 0.2), "γ": dist.Gamma(2.0, 3.0), "δ": stats.uniform(0, 2)}),
    "one-sided": lambda: Prior({"a": stats.truncnorm(-np.inf, 1), "b": dist.TruncatedNormal(0.3, 1.1, low=0.0)}),
    "multivariate": lambda: Prior(stats.multivariate_normal([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]]), names=["a", "b"]),
    "multivariate, unequal": lambda: Prior(stats.multivariate_normal([0.0, 1.0], UNEQUAL, allow_singular=True)),
    "NumPyro's multivariate": lambda: Prior(dist.MultivariateNormal(np.zeros(2), np.array([[2.0, 0.6], [0.6, 1.0]]))),
    "draws": lambda: Prior.from_draws(DRAWS, names=["a", "b"]),
    "draws within bounds": lambda: Prior.from_draws(np.exp(DRAWS), bounds={"theta_1": (0, np.inf)}),
    "a proposal": lambda: PRIORS["marginals"]().proposing(GaussianProposal(np.array([0.1, 0.2, 0.3]), 0.1 * np.eye(3))),
    "a box": lambda: PRIORS["multivariate"]().proposing(TruncatedProposal(np.eye(2), np.full(2, -0.5), np.ones(2))),
    **{name: (lambda name=name: Prior({"a": getattr(stats, name)(*EXAMPLES[name])})) for name in LAWS},
}


def through_json(prior: Prior) -> dict:
    return json.loads(json.dumps(describe(prior), allow_nan=False))


@pytest.mark.parametrize("key", PRIORS)
def test_what_is_written_comes_back_bit_for_bit(key):
    prior = PRIORS[key]()
    again = restore(through_json(prior), arrays(prior))
    u = np.random.default_rng(1).normal(size=(200, prior.dim))
    theta = prior.from_normal(u)
    assert again == prior
    assert again.names == prior.names
    np.testing.assert_array_equal(again.from_normal(u), theta)
    np.testing.assert_array_equal(again.to_normal(theta), prior.to_normal(theta))
    np.testing.assert_array_equal(again.bounds, prior.bounds)
    np.testing.assert_array_equal(again.sample(50, seed=3), prior.sample(50, seed=3))
    assert describe(again) == describe(prior)
    assert repr(again) == repr(prior)


@pytest.mark.parametrize("key", ["marginals", "multivariate", "draws", "draws within bounds", "a proposal", "a box"])
def test_the_same_with_vectors_and_matrices_apart(key):
    prior = PRIORS[key]()
    description, apart = parts(prior)
    description = json.loads(json.dumps(description, allow_nan=False))
    assert shapes(description) == {name: array.shape for name, array in apart.items()}
    assert size(description) == (prior.dim, prior.has_density)
    again = from_parts(description, apart)
    assert again == prior
    np.testing.assert_array_equal(again.sample(50, seed=3), prior.sample(50, seed=3))
    for name, array in apart.items():
        wrong = [np.full_like(array, np.nan), array[..., :-1], array.astype(np.float32)]
        for other in wrong:
            with pytest.raises(ScorefoldError, match="cannot be taken up"):
                from_parts(description, {**apart, name: other})
        top, _, own = name.rpartition(".")
        inside = {**description[top], own: [0.0]} if top else {}
        twice = {**description, top: inside} if top else {**description, own: [0.0]}
        with pytest.raises(ScorefoldError, match=r"should be among the arrays|unknown here: 'draws'"):
            from_parts(twice, apart)


def test_the_laws_are_scipys_own_and_have_no_second_entry():
    assert len(set(LAWS)) == len(LAWS)
    assert all(isinstance(getattr(stats, name), stats.rv_continuous) for name in LAWS)


def test_without_its_draws_a_prior_maps_but_cannot_be_drawn_from():
    prior = PRIORS["draws"]()
    again = restore(through_json(prior))
    np.testing.assert_array_equal(again.to_normal(DRAWS), prior.to_normal(DRAWS))
    assert not arrays(again)
    with pytest.raises(ScorefoldError, match="expected the draws that this prior was made from"):
        again.sample(10, seed=0)


def test_draws_are_not_in_the_description():
    few = Prior.from_draws(DRAWS[:200])
    assert "draws" not in describe(few)
    assert len(json.dumps(describe(few))) < 1_000


def changed(description: dict, path: tuple, value: object) -> dict:
    """A copy with what is at the end of the path put in, or taken out if the value is `...`."""
    copy = json.loads(json.dumps(description))
    place = copy
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


NAN, HUGE = float("nan"), 10**400
REFUSED = [
    ("marginals", ("kind",), "pickle", "kinds are marginals"),
    ("marginals", ("kind",), ["marginals"], "kinds are marginals"),
    ("marginals", ("kind",), ..., "its kind is None"),
    ("marginals", ("extra",), 1, "unknown here: 'extra', missing: none"),
    ("marginals", ("names",), ..., "missing: 'names'"),
    ("marginals", ("names",), "abc", "1 to 1000 strings"),
    ("marginals", ("names",), [], "1 to 1000 strings"),
    ("marginals", ("names",), ["a"] * 1001, "1 to 1000 strings"),
    ("marginals", ("names", 0), 3, "1 to 1000 strings"),
    ("marginals", ("names", 0), "γ", "3 different names"),
    ("marginals", ("marginals",), {}, "list of 3"),
    ("marginals", ("marginals", 2), ..., "list of 3"),
    ("marginals", ("marginals", 0), "norm", "a marginal should be an object"),
    ("marginals", ("marginals", 0, "distribution"), "rv_histogram", "not a distribution that files may hold"),
    ("marginals", ("marginals", 0, "distribution"), "levy_stable", "not a distribution that files may hold"),
    ("marginals", ("marginals", 0, "distribution"), "lognrm", "Did you mean 'lognorm'"),
    ("marginals", ("marginals", 0, "distribution"), "__class__", "not a distribution that files may hold"),
    ("marginals", ("marginals", 0, "distribution"), ["norm"], "not a distribution that files may hold"),
    ("marginals", ("marginals", 0, "more"), 1, "unknown here: 'more'"),
    ("marginals", ("marginals", 0, "parameters"), [0.5], "should be an object"),
    ("marginals", ("marginals", 0, "parameters", "s"), ..., "missing: 's'"),
    ("marginals", ("marginals", 0, "parameters", "seed"), 1, "unknown here: 'seed'"),
    ("marginals", ("marginals", 0, "parameters", "s"), NAN, "s of lognorm should be a finite number"),
    ("marginals", ("marginals", 0, "parameters", "s"), True, "finite number, not True"),
    ("marginals", ("marginals", 0, "parameters", "s"), "0.5", "finite number, not '0.5'"),
    ("marginals", ("marginals", 0, "parameters", "s"), "inf", "finite number, not 'inf'"),
    ("marginals", ("marginals", 0, "parameters", "s"), HUGE, "finite number, not 1000"),
    ("marginals", ("marginals", 0, "parameters", "s"), -1.0, "proper distribution"),
    ("marginals", ("marginals", 0, "parameters", "scale"), 0, "proper distribution"),
    ("one-sided", ("marginals", 0, "parameters", "a"), "nan", "finite number, not 'nan'"),
    ("one-sided", ("marginals", 0, "parameters", "a"), "Infinity", "finite number, not 'Infinity'"),
    ("multivariate", ("mean",), [0.0], "mean should be a list of 2"),
    ("multivariate", ("mean", 0), None, "mean should be a finite number"),
    ("multivariate", ("cov",), [1.0, 2.0], "a row of cov should be a list of 2"),
    ("multivariate", ("cov", 0), [1.0, 2.0, 3.0], "a row of cov should be a list of 2"),
    ("multivariate", ("cov", 0, 1), 9.0, "symmetric"),
    ("multivariate", ("cov",), [[1.0, 1.0], [1.0, 1.0]], "positive definite"),
    ("multivariate", ("cov",), [[-1.0, 0.0], [0.0, 1.0]], "positive"),
    ("draws", ("draws",), [[1.0, 2.0]], "unknown here: 'draws'"),
    ("draws", ("count",), 20_001, "fingerprint"),
    ("draws", ("count",), 2e4, "count should be a whole number"),
    ("draws", ("count",), True, "count should be a whole number"),
    ("draws", ("sha256",), "0" * 64, "fingerprint"),
    ("draws", ("sha256",), "x" * 64, "64 hexadecimal digits"),
    ("draws", ("factor", 0, 0), 0.0, "not those of a prior"),
    ("draws", ("factor", 0, 1), 1.0, "lower triangular"),
    ("draws", ("bounds", 0), [1.0, "-inf"], "not those of a prior"),
    ("draws", ("bounds", 0), [NAN, 1.0], "finite number"),
]


@pytest.mark.parametrize(("key", "path", "value", "message"), REFUSED)
def test_what_is_not_taken_up(key, path, value, message):
    prior = PRIORS[key]()
    with pytest.raises(ScorefoldError, match=message):
        restore(changed(through_json(prior), path, value), arrays(prior))


@pytest.mark.parametrize("wrong", [None, [], "marginals", 3])
@pytest.mark.usefixtures("unchecked")
def test_only_objects_are_descriptions(wrong):
    with pytest.raises(ScorefoldError, match="not an object but"):
        restore(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"draws": DRAWS[:-1]}, "fingerprint"),
        ({"draws": DRAWS + 1}, "fingerprint"),
        ({"draws": DRAWS.ravel()}, "one draw a row"),
        ({"draws": DRAWS.astype(np.float32)}, "float64"),
        ({"draws": np.where(DRAWS > 0, np.nan, DRAWS)}, "finite"),
        ({"draws": DRAWS, "more": DRAWS}, "no arrays named more"),
    ],
)
def test_only_its_own_draws_are_taken(wrong, message):
    with pytest.raises(ScorefoldError, match=message):
        restore(through_json(PRIORS["draws"]()), wrong)


def test_a_prior_with_a_density_has_no_arrays():
    prior = PRIORS["marginals"]()
    assert arrays(prior) == {}
    with pytest.raises(ScorefoldError, match="no arrays named draws"):
        restore(through_json(prior), {"draws": DRAWS})


def test_a_law_that_files_may_not_hold_is_refused_when_written():
    with pytest.raises(ScorefoldError, match=r"'norminvgauss' is not a distribution that files may hold"):
        describe(Prior({"a": stats.norminvgauss(1.25, 0.5)}))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["inf", "norm", "t", *KEYS])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["loc", "scale", "df", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = [(key, path) for key, path, *_ in REFUSED]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PATHS), values)
def test_any_change_gives_a_prior_or_one_error(place, value):
    key, path = place
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            again = restore(changed(through_json(PRIORS[key]()), path, value))
        except ScorefoldError:
            return
    assert np.isfinite(again.from_normal(np.zeros(again.dim))).all()
