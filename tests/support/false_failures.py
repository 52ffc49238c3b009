"""How often the tests fail by chance: every statistical test says so, and the statements can be added up.

`@pytest.mark.false_failure(1e-6)` is a bound on the chance that the test fails although nothing is wrong, over fresh seeds and
for each of its parametrised items. The seeds are fixed, so on one machine a test fails always or never; the rate says how
likely it is that a harmless change of the random numbers breaks it. A rate of 0 says that only rounding can differ.
"""

import ast
import inspect
import textwrap

import pytest

STATED = pytest.StashKey()

RANDOM = {"default_rng", "random", "sample", "sample_many", "simulate", "observe", "reference", "rng", "smc_abc", "run"}
STATISTICS = {"mean", "std", "var", "cov", "corrcoef", "median", "quantile", "pvalue", "kstest", "c2st", "mmd", "mmd2"}
STATISTICS |= {"misses", "mean_shift", "sd_ratio", "chisquare", "ks_2samp", "bincount", "off", "assert_near"}


def stated(items):
    """(test, rate or None, whether it compares statistics of random numbers) of every item."""
    looks = {}
    found = []
    for item in items:
        function = getattr(item, "function", None)
        if function not in looks:
            looks[function] = function is not None and statistical(function)
        mark = item.get_closest_marker("false_failure")
        found.append((item.nodeid, None if mark is None else mark.args[0], looks[function]))
    return found


def statistical(function):
    """Whether a test's own source takes a statistic of something random and compares it with a number."""
    function = inspect.unwrap(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(names & RANDOM) and bool(names & STATISTICS)
