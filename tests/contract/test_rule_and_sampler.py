"""Which rule goes with which sampler: every pair has its verdict here."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold import tasks
from scorefold.compose import RULES, Damped, Diffused, Gauss, Jac, Tempered
from scorefold.errors import ScorefoldError
from scorefold.noise import Level
from scorefold.posterior.rule_and_sampler import get_rule, get_sampler, pair
from scorefold.sample import DDIM, DPM, SAMPLERS, Ancestral, Langevin, Metropolis, ProbabilityFlow, SelfTuned, Transitions
from scorefold.score.network import Shape
from scorefold.tasks.exact import exact_sets

PLAIN = Shape(dim=2, x=2, largest_set=1)
CONSERVATIVE = PLAIN._replace(conservative=True)

REVERSES = "the sampler reverses a diffusion, and the sum of several sets' scores is not the score of a diffused density"
TEMPERED = "Algorithm 2 is derived for the tempered rule"
MATRICES = "a score weighted by matrices is not the gradient of a density"
BATCH = "a mini-batch gives no density to compare"

# For several sets and a conservative network with a base: None where the pair is right, otherwise why it is not.
VERDICTS = {
    #               self-tuned langevin transitions ancestral ddim      dpm       flow      metropolis
    "diffused":     (None,     None,    TEMPERED,   REVERSES, REVERSES, REVERSES, REVERSES, None),
    "tempered":     (None,     None,    None,       REVERSES, REVERSES, REVERSES, REVERSES, None),
    "gauss":        (None,     None,    TEMPERED,   None,     None,     None,     None,     MATRICES),
    "gauss-pilots": (None,     None,    TEMPERED,   None,     None,     None,     None,     MATRICES),
    "jac":          (None,     None,    TEMPERED,   None,     None,     None,     None,     MATRICES),
    "damped":       (None,     None,    TEMPERED,   REVERSES, REVERSES, REVERSES, REVERSES, BATCH),
}  # fmt: skip
COLUMNS = ("self-tuned", "langevin", "transitions", "ancestral", "ddim", "dpm", "probability-flow", "metropolis")
PAIRS = list(itertools.product(RULES, SAMPLERS))


def test_every_pair_has_a_verdict():
    assert set(VERDICTS) == set(RULES)
    assert set(COLUMNS) == set(SAMPLERS)
    assert {len(row) for row in VERDICTS.values()} == {len(COLUMNS)}


@pytest.mark.parametrize("sets", [2, 1000])
@pytest.mark.parametrize(("rule", "sampler"), PAIRS)
def test_several_sets(rule, sampler, sets):
    reason = VERDICTS[rule][COLUMNS.index(sampler)]
    if reason is None:
        assert pair(rule, sampler, sets, CONSERVATIVE) == (RULES[rule], SAMPLERS[sampler])
    else:
        with pytest.raises(ScorefoldError) as refusal:
            pair(rule, sampler, sets, CONSERVATIVE)
        assert str(refusal.value).startswith(f"'{rule}' does not go with '{sampler}' for {sets} sets: {reason}.")


@pytest.mark.parametrize(("rule", "sampler"), PAIRS)
def test_everything_goes_with_one_set(rule, sampler):
    chosen_rule, chosen_sampler = pair(rule, sampler, 1, CONSERVATIVE)
    assert chosen_sampler == SAMPLERS[sampler]
    assert chosen_rule == Diffused(), "with one set every rule is the single score, and this one needs nothing for it"


@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("rule", RULES)
def test_metropolis_needs_a_conservative_network(rule, sets):
    with pytest.raises(ScorefoldError, match=r"not the gradient of one. Train with sf.NPSE\(conservative=True\)"):
        pair(rule, "metropolis", sets, PLAIN)


@pytest.mark.parametrize(("rule", "sampler"), [(r, s) for r, s in PAIRS if s != "metropolis"])
def test_no_other_sampler_does(rule, sampler):
    def verdict(shape):
        try:
            return pair(rule, sampler, 2, shape)
        except ScorefoldError as error:
            return str(error)

    assert verdict(PLAIN) == verdict(CONSERVATIVE)


# Defaults, words and objects


def test_defaults():
    assert pair(None, None, 1, PLAIN) == (Diffused(), DPM())
    assert pair(None, None, 2, PLAIN) == (Diffused(), SelfTuned())
    assert pair("gauss", None, 2, PLAIN) == (Gauss(), SelfTuned())
    assert pair(None, "langevin", 2, PLAIN) == (Diffused(), Langevin())


@pytest.mark.parametrize(
    ("sets", "sampler", "rule"), [(999, None, Diffused()), (1000, None, Damped()), (1000, "metropolis", Diffused())]
)
def test_from_a_thousand_sets_on_the_default_is_damped(sets, sampler, rule):
    assert pair(None, sampler, sets, CONSERVATIVE)[0] == rule


@pytest.mark.parametrize("rule", [Diffused(), Tempered(), Gauss(), Gauss(pilots=50), Jac(), Damped(batch=10)])
def test_rules_may_be_objects(rule):
    assert pair(rule, None, 2, PLAIN)[0] is rule


@pytest.mark.parametrize(
    "sampler",
    [SelfTuned(h=0.5), Langevin(steps=9), Transitions(), Ancestral(levels=50), DDIM(), ProbabilityFlow(), Metropolis(levels=9)],
)
def test_samplers_may_be_objects(sampler):
    assert pair(None, sampler, 1, CONSERVATIVE)[1] is sampler


def test_objects_without_a_word_are_named_in_full():
    with pytest.raises(ScorefoldError, match=r"^Damped\(batch=10, anchors=8\) does not go with DDIM\(levels=7\) for 3 sets"):
        pair(Damped(batch=10), DDIM(levels=7), 3, PLAIN)


@pytest.mark.parametrize(
    ("word", "meant"), [("gaus", "gauss"), ("Diffused", "diffused"), ("tempred", "tempered"), ("jacobian", "jac")]
)
def test_an_unknown_rule_gets_a_suggestion(word, meant):
    with pytest.raises(ScorefoldError, match=rf"^unknown rule '{word}'. Did you mean '{meant}'\? Known: diffused, "):
        get_rule(word)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("dim", "ddim"), ("self_tuned", "self-tuned"), ("mcmc-metropolis", "metropolis"), ("probabilityflow", "probability-flow")],
)
def test_an_unknown_sampler_gets_a_suggestion(word, meant):
    with pytest.raises(ScorefoldError, match=rf"got '{word}'. Did you mean '{meant}'\? Known: self-tuned, "):
        get_sampler(word)


@pytest.mark.parametrize("other", ["", "?", 3, 1.5, ["gauss"], Gauss, ProbabilityFlow(), "probability-flow"])
def test_what_is_no_rule_is_refused(other):
    with pytest.raises(ScorefoldError, match=r"^unknown rule .*Known: diffused, tempered, gauss, gauss-pilots, jac, damped\."):
        pair(other, None, 2, PLAIN)


@pytest.mark.parametrize("other", ["", "?", 3, ["probability-flow"], ProbabilityFlow, Gauss(), "gauss"])
def test_what_is_no_sampler_is_refused(other):
    with pytest.raises(ScorefoldError, match=r"^expected a sampler of one or more steps.*Known: self-tuned, langevin, "):
        pair(None, other, 2, CONSERVATIVE)


# Networks without a base, and priors known from draws


@pytest.mark.parametrize("sets", [1, 2])
def test_gauss_needs_a_base_or_pilots(sets):
    without = PLAIN._replace(base=False)
    for rule in RULES:
        if rule == "gauss":
            with pytest.raises(ScorefoldError, match=r"from the Gaussian base, which is off. Use 'gauss-pilots'"):
                pair(rule, "self-tuned", sets, without)
        else:
            assert pair(rule, "self-tuned", sets, without) == (RULES[rule] if sets > 1 else Diffused(), SelfTuned())


@pytest.mark.parametrize("rule", RULES)
def test_a_learned_prior_goes_with_rules_that_use_it(rule):
    learned = PLAIN._replace(learns_prior=True)
    assert pair(rule, "self-tuned", 1, learned) == (Diffused(), SelfTuned()), "with one set the prior has no part"
    if rule in ("diffused", "damped"):
        assert pair(rule, "self-tuned", 2, learned) == (RULES[rule], SelfTuned())
    else:
        with pytest.raises(
            ScorefoldError, match=r"for 2 sets: .* a prior that is N\(0, I\), and this one is known through draws"
        ):
            pair(rule, "self-tuned", 2, learned)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "gauss"])
def test_what_goes_with_one_set_can_be_composed(rule):
    # As the posterior does it for a network without a base: one set, no precision.
    chosen, _ = pair(rule, None, 1, PLAIN._replace(base=False))
    task = tasks.get("bimodal")
    sets, u = exact_sets(task, task.observe(1, 0)[1]), jnp.zeros((4, 2))
    level = Level(*(jnp.asarray(v, jnp.float32) for v in (1.0, 0.5, 0.5, 0.5, 0.5, 0.5)))
    score = chosen.score(sets)
    np.testing.assert_allclose(score(u, level, jax.random.key(0)), sets.total(u, level), atol=1e-5)
