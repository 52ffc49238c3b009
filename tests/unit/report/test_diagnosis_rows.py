"""What a diagnosis says in words: nothing that contradicts itself, and what to do next."""

import copy

import pytest

from scorefold.report import diagnosis_rows as say

RIGHT = {
    "verdict": "well calibrated: 300 data sets would have shown a width 16% off",
    "good": True,
    "n": 20,
    "draws": 100,
    "data sets": {"simulated": 300, "used": 300, "failed": 0, "diverged": 0, "not converged": 0},
    "p": {"SBC": 0.5, "coverage": 0.5, "highest density": 0.5, "TARP": 0.5},
    "settings": {"method": "NPSE", "trained on": "10,000 simulator calls"},
}
OBSERVED = {"misspecification": 0.5, "local C2ST": 0.5, "prior predictive": 0.5, "posterior predictive": 0.5}


def summary(good=True, observed=None, **data_sets):
    made = copy.deepcopy(RIGHT) | {"good": good}
    made["data sets"] |= data_sets
    return made if observed is None else made | {"observed": {"p": OBSERVED | observed}}


def test_nothing_wrong_says_what_it_is_good_for():
    (step,) = say.next_steps(summary())
    assert "about 20 observations" in step
    assert "x_obs" in step
    assert say.caveat(summary()) == ""
    assert "x_obs" not in say.next_steps(summary(observed={}))[0]


STEPS = {
    "not calibrated": (summary(good=False), ["posterior.refine", "more simulations (now 10,000 simulator calls)"]),
    "wrong for the observed data set": (summary(observed={"local C2ST": 0.01}), ["posterior.check", "more simulations"]),
    "unlike the simulations": (summary(observed={"misspecification": 0.01}), ["units, the order of columns"]),
    "not reached by the posterior": (summary(observed={"posterior predictive": 0.01}), ["the simulator leaves out"]),
    "many left out": (summary(failed=50, used=250), ["what they have in common"]),
    "many not settled": (summary(**{"not converged": 60}), ["sf.plots.sampler"]),
}


@pytest.mark.parametrize(("found", "says"), STEPS.values(), ids=STEPS)
def test_what_to_do_next(found, says):
    steps = say.next_steps(found)
    assert len(steps) == len(says)
    for step, words in zip(steps, says, strict=True):
        assert words in step


def test_a_verdict_on_average_and_one_at_the_observations_do_not_contradict_each_other():
    good = say.caveat(summary(observed={"local C2ST": 0.01}))
    assert good == "That is on average over the prior; for the observed data set it is NOT right (local C2ST)."
    bad = say.caveat(summary(good=False, observed={}))
    assert bad == "That is on average over the prior; for the observed data set it is right, as far as can be told."
    assert say.caveat(summary(observed={})) == ""
    assert say.caveat(summary(good=False, observed={"local C2ST": 0.01})) == ""


@pytest.mark.parametrize(("method", "says"), [("NLE", "posterior.check(x_obs"), ("ABC", "method='f-npse'")])
def test_no_method_is_advised_to_do_what_it_cannot(method, says):
    found = summary(good=False)
    found["settings"]["method"] = method
    step = say.next_steps(found)[0]
    assert says in step
    assert "posterior.refine" not in step
