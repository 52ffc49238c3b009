"""For what a right answer does nearly always, but not always."""

import pytest


def one_of(make, holds, tries=6):
    """The first of a few results for which it holds; if it holds for 19 in 20, none of six does once in 10⁷ runs.

    How often it holds is tested where the rates are. Here the question is what is said when it does.
    """
    for seed in range(tries):
        found = make(seed)
        if holds(found):
            return found
    pytest.fail(f"it held for none of {tries} seeds; the last: {found}")
