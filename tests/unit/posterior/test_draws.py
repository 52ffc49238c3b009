"""What draws are to a user: a table, arrays by name, and something that prints on a screen."""

import dataclasses
import re

import numpy as np
import pytest
import scipy.stats
from untrained import CASES, DRAWS, MARGINALS, NORMAL, REFINED, untrained

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.methods.smc_abc import SmcInfo
from scorefold.posterior.amortised import FlowInfo
from scorefold.posterior.trust import Trust
from scorefold.sample.tempered import TemperedInfo
from scorefold.sample.variational import VariationalInfo

THETA = np.random.default_rng(0).normal([1.0, -2.0], [0.1, 3.0], size=(500, 2))
INFO = FlowInfo(2.0, True, False)
DRAWN = sf.Draws(THETA, ("v", "a"), INFO, 30, None, 1.25)
SCREEN = (120, 24)
"""Columns and rows; the lines of a notebook or a terminal may wrap."""


def fits(text):
    wrapped = sum(-(-max(len(line), 1) // SCREEN[0]) for line in text.splitlines())
    return wrapped <= SCREEN[1]


def test_by_name_and_as_an_array():
    np.testing.assert_array_equal(DRAWN["a"], THETA[:, 1])
    assert len(DRAWN) == 500
    assert list(DRAWN) == ["v", "a"]
    assert "v" in DRAWN
    assert "w" not in DRAWN
    assert np.asarray(DRAWN) is THETA
    assert np.asarray(DRAWN, np.float32).dtype == np.float32
    copied = np.array(DRAWN)
    copied[:] = 0
    assert THETA.any()
    assert {name: column.shape for name, column in dict(DRAWN).items()} == {"v": (500,), "a": (500,)}


@pytest.mark.parametrize(
    ("wrong", "message"), [("V", "Did you mean 'v'"), (0, "draws.theta is the array"), ("zzz", "Known: v, a")]
)
def test_a_wrong_name_is_refused(unchecked, wrong, message):
    with pytest.raises(ScorefoldError, match=message):
        DRAWN[wrong]


def test_summary():
    found = DRAWN.summary()
    np.testing.assert_allclose(found.mean, THETA.mean(axis=0))
    np.testing.assert_allclose(found.sd, THETA.std(axis=0, ddof=1))
    np.testing.assert_allclose([found.low, found.median, found.high], np.quantile(THETA, [0.05, 0.5, 0.95], axis=0))
    lines = str(found).splitlines()
    assert lines[0].split() == ["parameter", "mean", "sd", "5", "%", "median", "95", "%"]
    assert lines[1].split()[:2] == ["v", f"{THETA[:, 0].mean():.4g}"]
    assert lines[-1] == "500 draws given 30 observations; the sampler settled; 1.2 s"
    assert "2.5 %" in str(DRAWN.summary(level=0.95))


def test_the_summary_holds_what_is_expected_of_the_errors():
    ones = np.ones(2)
    trust = Trust(("v", "a"), 0.125 * ones, 1.25 * ones, ones, 2 * ones, "good", "the networks agree")
    lines = str(dataclasses.replace(DRAWN, trust=trust).summary()).splitlines()
    assert "expected shift (sd)" in lines[0]
    assert lines[1].split()[-2:] == ["0.12", "1.25"]
    assert lines[-1] == "Trust: good: the networks agree"


def test_a_single_draw_has_a_summary():
    one = sf.Draws(THETA[:1], ("v", "a"), INFO, 1, None, 0.0).summary()
    assert one.sd.tolist() == [0, 0]
    assert "given 1 observation;" in str(one)


@pytest.mark.parametrize("level", [0, 1, 1.5, "0.9", None, np.nan])
def test_a_level_is_a_probability(unchecked, level):
    with pytest.raises(ScorefoldError, match="level between 0 and 1"):
        DRAWN.summary(level)


def test_health_is_shouted():
    lost = sf.Draws(THETA, ("v", "a"), FlowInfo(99.0, False, True), 30, None, 1.0)
    assert "DIVERGED" in repr(lost)
    assert "DIVERGED" in str(lost.summary())


@pytest.mark.parametrize("case", [*CASES, *REFINED])
def test_a_posterior_prints_on_a_screen_and_says_what_matters(case):
    posterior = untrained(case)
    text = repr(posterior)
    assert fits(text), text
    assert text.startswith(type(posterior).__name__)
    assert "a, b" in text
    assert "400 simulator calls, 7 of them failed" in text
    assert "array(" not in text
    assert "400 simulator calls" in posterior._repr_html_()


def test_a_posterior_says_which_outcomes_are_choices_and_counts():
    theta, rng = MARGINALS.sample(200, seed=0), np.random.default_rng(0)
    x = np.stack([rng.normal(size=200), rng.integers(2, size=200), rng.poisson(3, 200)], axis=1)
    size = rng.integers(1, 7, size=200)
    named = {"x_names": ("rt", "choice", "cases"), "inputs": size[:, None], "input_names": ["size"]}
    posterior = sf.fit(sf.Simulations(MARGINALS, theta, x, **named), "abc")
    assert "recognised      choice as binary, cases as count\n" in repr(posterior)
    assert "recognised" not in repr(sf.fit(sf.Simulations(MARGINALS, theta, x[:, :1]), "abc"))


MANY = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(5_000, 300)))


@pytest.mark.parametrize("prior", [MARGINALS, NORMAL, DRAWS, MANY], ids=["marginals", "normal", "draws", "300 parameters"])
def test_a_prior_and_its_simulations_print_on_a_screen(prior):
    theta = prior.sample(100, seed=0)
    sims = sf.Simulations(prior, theta, theta, x_names=[f"<b>{name}" for name in prior.names])
    for one in (prior, sims):
        assert fits(repr(one))
        page = one._repr_html_()
        assert prior.names[0] in page
        assert "<b>" not in page.replace("&lt;b&gt;", "")
    if prior is MANY:
        assert "(300 in all)" in repr(prior)


@pytest.mark.parametrize(
    "info",
    [
        sf.samplers.Info(*[np.linspace(0, 1, 400)] * 5, np.array(False), np.array(True)),
        VariationalInfo(0.1, np.arange(5_000.0), True, False),
        TemperedInfo(*[np.linspace(0, 1, 300)] * 3, 5.0, 0.1, -20.0, 0.1, 1.0, 0.1, 2, True, False),
        SmcInfo(np.arange(300.0), np.arange(300.0), 10, 5.0, True, False),
        untrained("f-npse").history,
    ],
    ids=lambda info: type(info).__name__,
)
def test_what_happened_prints_on_a_screen(info):
    text = repr(info)
    assert fits(text), text
    assert text.startswith(type(info).__name__)
    assert "array(" not in text


def test_html_shows_words_to_the_left_and_says_what_it_leaves_out():
    page = untrained("f-npse")._repr_html_()
    assert "text-align:left" in page
    assert "text-align:right" not in page
    theta = MARGINALS.sample(200, seed=0)
    few = sf.Simulations(MARGINALS, theta, theta)._repr_html_()
    many = sf.Simulations(MARGINALS, theta, np.resize(np.random.default_rng(0).normal(size=50), (200, 50)))._repr_html_()
    assert "are shown" not in few
    assert "The table is of" not in few
    assert "Of 50 numbers the first" in many
    assert "text-align:right" in few


def test_a_prior_in_a_notebook_shows_where_its_parameters_lie():
    """It showed bounds alone, 0 and inf."""
    prior = sf.Prior({"rate": scipy.stats.lognorm(0.5, scale=2.0), "place": scipy.stats.uniform(-1, 2)})
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t", prior._repr_html_())
    assert cells[:6] == ["parameter", "least", "5 %", "median", "95 %", "most"]
    assert cells[6:12] == ["rate", "0", "0.8787", "2", "4.552", "inf"]
    assert cells[12:] == ["place", "-1", "-0.9", "0", "0.9", "1"]
    least, low, median, high, most = map(float, re.findall(r"<td[^>]*>([^<]*)</td", NORMAL._repr_html_())[1:6])
    assert least < low < median < high < most


def test_trust_is_shown_in_words():
    """It was a line of arrays."""
    known = Trust(("a",), *[np.array([0.1])] * 4, "good", "means expected within 0.1 posterior sd")
    assert repr(known) == "Trust(good: means expected within 0.1 posterior sd)"


def test_html_of_draws_escapes_names():
    page = sf.Draws(THETA, ("<script>alert(1)</script>", "a&b"), INFO, 30, None, 1.0)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a&amp;b" in page


@pytest.mark.parametrize("how", ["the nearest 100 of 2,000 sets", "smc", None])
def test_a_summary_of_draws_whose_making_is_told_in_words(how):
    assert "given 3 observations" in str(dataclasses.replace(DRAWN, how=how, n=3).summary())
