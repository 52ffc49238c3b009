"""What a diagnosis says in words: nothing that contradicts itself."""

import pytest
from some_summary import summary

from scorefold.report import diagnosis_rows as say
from scorefold.report.next_steps import after_diagnosis


def test_a_verdict_on_average_and_one_at_the_observations_do_not_contradict_each_other():
    good = say.caveat(summary(observed={"local C2ST": 0.01}))
    assert good == (
        "That is on average over the prior; for the observed data set it is NOT right (local C2ST, p 0.010; a right one fails "
        "in 5 % of cases)."
    )
    bad = say.caveat(summary(good=False, observed={}))
    assert bad == "That is on average over the prior; for the observed data set it is right, as far as can be told."
    assert say.caveat(summary(observed={})) == ""
    assert say.caveat(summary(good=False, observed={"local C2ST": 0.01})) == ""


def test_a_headline_that_says_not_right_is_no_good_news():
    """Its page had the green of a good verdict beside it."""
    assert say.is_good(summary())
    assert say.is_good(summary(observed={}))
    assert not say.is_good(summary(observed={"local C2ST": 0.01}))
    assert not say.is_good(summary(good=False, observed={}))


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (20, "fewer than 40 data sets notice next to nothing. With 300 they would notice a width 1.3"),
        (60, "60 data sets notice at least what 40 do, a width 1.7 times too large in 65 %"),
        (150, "150 data sets notice at least what 100 do, a width 1.7 times too large in nearly all cases"),
        (300, "300 data sets notice a width 1.3 times too large in nearly all cases, and in 80 %"),
    ],
)
def test_the_power_of_local_c2st_is_that_of_as_many_data_sets(used, words):
    found = say.power({"data sets": {"used": used}})
    assert words in found
    assert ("With 300" in found) == (used < 300)


def with_p(**p):
    """A diagnosis whose ranks are fine, with these p-values of joint tests."""
    found = summary()
    return found | {"p": found["p"] | p}


def test_a_joint_test_that_fails_by_little_may_be_chance():
    found = with_p(TARP=0.03)
    assert "failed by little, as one of them does in 5 to 15 % of cases" in say.caveat(found)
    (step,) = after_diagnosis(found)
    assert step.startswith("Little was found. Use it for")


def test_a_joint_test_that_fails_clearly_is_not_called_chance():
    """Once it said "as happens in 5 % of cases" of p ≤ 0.001, and then that nothing wrong was found."""
    found = with_p(coverage=0.001, **{"highest density": 0.02})
    said = say.caveat(found)
    assert "central intervals and ellipsoid; highest-density regions and ellipsoid failed (p ≤0.001)" in said
    assert "chance does not explain" in said
    (step,) = after_diagnosis(found)
    assert "four times as many data sets" in step
    assert "Nothing wrong" not in step
