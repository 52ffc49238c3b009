"""What a diagnosis says in words: nothing that contradicts itself."""

from some_summary import summary

from scorefold.report import diagnosis_rows as say


def test_a_verdict_on_average_and_one_at_the_observations_do_not_contradict_each_other():
    good = say.caveat(summary(observed={"local C2ST": 0.01}))
    assert good == "That is on average over the prior; for the observed data set it is NOT right (local C2ST)."
    bad = say.caveat(summary(good=False, observed={}))
    assert bad == "That is on average over the prior; for the observed data set it is right, as far as can be told."
    assert say.caveat(summary(observed={})) == ""
    assert say.caveat(summary(good=False, observed={"local C2ST": 0.01})) == ""
