"""When a p-value is bad news, and how it is written."""

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
