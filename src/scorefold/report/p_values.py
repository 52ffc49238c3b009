"""When a p-value is bad news, and how it is written."""

from collections.abc import Mapping

FALSE_ALARMS = 0.05
"""How often a test may fail although nothing is wrong: a p-value below this is bad news."""


def passes(p: float) -> bool:
    """Whether a test has found nothing."""
    return bool(p >= FALSE_ALARMS)


def written(p: float) -> str:
    """With three digits, or as "≤0.001": the smallest that 1,000 exchanges can show.

    >>> written(0.0421), written(0.00099)
    ('0.042', '≤0.001')
    """
    return f"{p:.3f}" if p >= 0.0015 else "≤0.001"


def beyond_chance(p: Mapping[str, float]) -> bool:
    """Whether of several tests on the same data sets one has found more than the luckless of so many would (Bonferroni).

    >>> beyond_chance({"coverage": 0.03, "TARP": 0.4}), beyond_chance({"coverage": 0.001, "TARP": 0.4})
    (False, True)
    """
    return not passes(min(p.values()) * len(p))
