"""Every finding has its next step, and a page shows it."""

import pytest
from some_summary import summary

from scorefold.report import next_steps
from scorefold.report.check_page import check_page
from scorefold.report.diagnosis_rows import caveat
from scorefold.report.infer_page import _trust
from scorefold.report.next_steps import after_diagnosis, after_inference


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"converged": False, "trust": {"verdict": "good"}}, next_steps.NOT_SETTLED),
        ({"converged": True, "trust": {"verdict": "good"}}, next_steps.BY_TRUST["good"]),
        ({"converged": True, "trust": {"verdict": "not to be trusted"}}, next_steps.BY_TRUST["not to be trusted"]),
        ({"converged": True, "trust": None}, next_steps.BY_TRUST["not known"]),
    ],
)
def test_after_an_inference(found, words):
    assert after_inference(found) == words


def test_nothing_wrong_says_what_it_is_good_for():
    (step,) = after_diagnosis(summary())
    assert "about 20 observations" in step
    assert "x_obs" in step
    assert caveat(summary()) == ""
    assert "x_obs" not in after_diagnosis(summary(observed={}))[0]


STEPS = {
    "not calibrated": (summary(good=False), ["posterior.refine", "simulate more (now 10,000 simulator calls)"]),
    "data ignored": (
        summary(good=False) | {"quantities": {"a": {"good": True}, "b": {"good": True}}},
        ["data are not used", "posterior.refine", "simulate more"],
    ),
    "wrong for the observed data set": (summary(observed={"local C2ST": 0.01}), ["posterior.check", "simulate more"]),
    "unlike the simulations": (summary(observed={"misspecification": 0.01}), ["units, columns and their order"]),
    "not reached by the posterior": (summary(observed={"posterior predictive": 0.01}), ["simulator leaves out"]),
    "many left out": (summary(failed=50, used=250), ["what they have in common"]),
    "many not settled": (summary(**{"not converged": 60}), ["sf.plots.sampler"]),
}


@pytest.mark.parametrize(("found", "says"), STEPS.values(), ids=STEPS)
def test_what_to_do_next(found, says):
    steps = after_diagnosis(found)
    assert len(steps) == len(says)
    for step, words in zip(steps, says, strict=True):
        assert words in step


@pytest.mark.parametrize(
    ("method", "says", "never"),
    [
        ("NPSE", ["posterior.refine", "train longer", "sf.plots.sampler"], "draws.info"),
        ("NLE", ["posterior.refine", "train longer", "draws.info"], "sf.plots.sampler"),
        ("NRE", ["posterior.check(x_obs", "train longer", "draws.info"], "posterior.refine"),
        ("ABC", ["method='nle'", "calls), and diagnose again", "draws.info"], "train longer"),
    ],
)
def test_no_method_is_advised_to_do_what_it_cannot(method, says, never):
    found = summary(good=False, **{"not converged": 60})
    found["settings"]["method"] = method
    steps = after_diagnosis(found)
    for step, words in zip(steps, says, strict=True):
        assert words in step
        assert never not in step


@pytest.mark.parametrize(("verdict", "says"), [("good", "can be used"), ("usable", "--save"), ("not to be trusted", "refine")])
def test_a_check_is_a_sentence_and_says_what_to_do(verdict, says):
    each = {"a": 0.1}
    found = {
        "n": 8, "simulations": 300, "failed": 0, "p": 0.5, "verdict": verdict, "words": f"{verdict}: a is most off",
        "shift": each, "shift error": each, "width": each, "width error": each,
    }  # fmt: skip
    page = check_page(found, {})
    assert f"{verdict[0].upper()}{verdict[1:]}: a is most off.</p>" in page
    assert "What next" in page
    assert says in page


def test_a_check_that_could_not_tell_asks_for_more_simulations():
    each = {"a": 0.1}
    found = {
        "n": 8, "simulations": 300, "failed": 0, "p": 0.5, "verdict": "not known", "limited": True, "words": "not known",
        "shift": each, "shift error": each, "width": each, "width error": each,
    }  # fmt: skip
    page = check_page(found, {})
    assert "four times as many halve the standard errors" in page
    assert '<p class="verdict unknown">Not known.</p>' in page


def test_trust_that_is_not_known_is_no_good_news_and_has_no_table():
    """It stood in green, over an explanation of numbers that were not there."""
    (said,) = _trust({"verdict": "not known", "why": "ABC has no ensemble"})
    assert 'class="verdict unknown"' in said
    told = {"verdict": "usable", "why": "because", "shift": {"a": 0.1}, "width": {"a": 1.1}}
    assert len(_trust(told)) == 2
    assert 'class="verdict good"' in _trust(told)[0]
