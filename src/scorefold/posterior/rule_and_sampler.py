"""Which rule goes with which sampler, and the reason where it does not.

Langevin samplers follow any composed score. Samplers that reverse a diffusion need the score of a diffused density: one set's,
or a rule that composes one. Algorithm 2 is derived for the tempered rule, and acceptance in the Metropolis sampler needs a
density to compare. With one set (k = 1) every rule is the single score.
"""

from typing import Any

from scorefold.compose import RULES, Damped, Diffused, Gauss, Jac, Rule, Tempered
from scorefold.errors import ScorefoldError, closest
from scorefold.sample import DPM, SAMPLERS, Metropolis, Sampler, SelfTuned, Transitions
from scorefold.score.network import Shape

FOR_ONE_SET, FOR_SEVERAL = DPM(), SelfTuned()
"""The samplers that are taken where none is asked for."""
DAMPED_FROM = 1_000
"""From so many sets on the default rule is damped: with exact scores as right as the sum, and its time hardly grows with n."""


def get_rule(rule: Any) -> Rule:
    """A composition rule by its name.

    Args:
        rule: One of `RULES`, or a configured rule, which comes back as it is.

    Returns:
        The rule.

    Raises:
        ScorefoldError: There is none of this name; the message has the closest.
    """
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str) or rule not in RULES:
        raise ScorefoldError(f"unknown rule {rule!r}. {closest(str(rule), list(RULES))}")
    return RULES[rule]


def get_sampler(sampler: Any) -> Sampler:
    """A sampler by its name.

    Args:
        sampler: One of `SAMPLERS`, or a configured sampler, which comes back as it is.

    Returns:
        The sampler.

    Raises:
        ScorefoldError: There is none of this name; the message has the closest.
    """
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str) and sampler in SAMPLERS:
        return SAMPLERS[sampler]
    hint = closest(sampler, list(SAMPLERS)) if isinstance(sampler, str) else f"Known: {', '.join(SAMPLERS)}."
    raise ScorefoldError(f"expected a sampler of one or more steps, by name or as an object; got {sampler!r}. {hint}")


def check(rule: Any, sampler: Any, T: int) -> None:
    """A rule and a sampler of T levels at most, or None for either; else a ScorefoldError."""
    if rule is not None:
        get_rule(rule)
    if sampler is not None and (get_sampler(sampler).levels or 2) > T:
        raise ScorefoldError(f"expected a sampler of at most T = {T} levels; got {sampler}. Give it fewer: levels={T}.")


def pair(rule: Any, sampler: Any, sets: int, shape: Shape) -> tuple[Rule, Sampler]:
    """The rule and the sampler for so many sets, with defaults in place of None.

    Args:
        rule: By name or configured; None for the default.
        sampler: Likewise.
        sets: How many sets are composed.
        shape: The network's, since some pairs need a score that is a gradient.

    Returns:
        Both, configured.

    Raises:
        ScorefoldError: They do not go together, or not with this network.
    """
    usual = FOR_ONE_SET if sets == 1 else FOR_SEVERAL
    chosen_sampler = usual if sampler is None else get_sampler(sampler)
    many = sets >= DAMPED_FROM and isinstance(chosen_sampler, SelfTuned)
    chosen_rule = (Damped() if many else Diffused()) if rule is None else get_rule(rule)
    if isinstance(chosen_sampler, Metropolis) and not shape.conservative:
        raise ScorefoldError(
            "the metropolis sampler compares densities, and this network gives a score that is not the gradient of one. "
            "Train with sf.NPSE(conservative=True), or use another sampler."
        )
    if isinstance(chosen_rule, Gauss) and chosen_rule.pilots == 0 and not shape.base:
        raise ScorefoldError("the gauss rule takes its covariances from the Gaussian base, which is off. Use 'gauss-pilots'.")
    if sets == 1:  # every rule is the single score
        return Diffused(), chosen_sampler
    reason = _mismatch(chosen_rule, chosen_sampler) or _unlearned(chosen_rule, shape)
    if reason:
        raise ScorefoldError(f"{_name(chosen_rule)} does not go with {_name(chosen_sampler)} for {sets} sets: {reason}")
    return chosen_rule, chosen_sampler


def _mismatch(rule: Rule, sampler: Sampler) -> str | None:
    """Why this pair cannot be right for several sets, or None."""
    if sampler.reverses and not rule.reversible:
        return (
            "the sampler reverses a diffusion, and the sum of several sets' scores is not the score of a diffused density. "
            "Use the self-tuned sampler, or the rules gauss or jac."
        )
    if isinstance(sampler, Transitions) and not isinstance(rule, Tempered):
        return "Algorithm 2 is derived for the tempered rule."
    if isinstance(sampler, Metropolis) and isinstance(rule, Gauss | Jac):
        return "a score weighted by matrices is not the gradient of a density. Use the diffused rule."
    if isinstance(sampler, Metropolis) and isinstance(rule, Damped):
        return "a mini-batch gives no density to compare. Use the diffused rule."
    return None


def _unlearned(rule: Rule, shape: Shape) -> str | None:
    if shape.learns_prior and isinstance(rule, Tempered | Gauss | Jac):
        return "the rule is written for a prior that is N(0, I), and this one is known through draws. Use the diffused rule."
    return None


def _name(thing: Rule | Sampler) -> str:
    known = {**RULES, **SAMPLERS}
    return next((f"{word!r}" for word, value in known.items() if value == thing), f"{thing}")
