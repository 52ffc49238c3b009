"""CI runs lint, `make test` and the benchmark, and a skipped test has failed there."""

import re
from pathlib import Path

import pytest
from no_skips import failed_if_skipped

ROOT = Path(__file__).parents[2]


def recipe(target):
    """What `make target` runs."""
    text = (ROOT / "Makefile").read_text()
    return re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, flags=re.MULTILINE)[1]


def test_ci_runs_lint_tests_and_the_benchmark():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make lint", "make test", "make smoke"]
    assert lines.index("export SCOREFOLD_NO_SKIPS=1") < lines.index("make lint")
    both = {target: recipe(target).split() for target in ("test", "test-rest")}
    assert '-m "not full"' in recipe("test")
    assert "-m full" in recipe("test-rest")
    assert not any({"-k", "--ignore", "--deselect"} & set(words) for words in both.values())


def skipped(**more):
    report = pytest.TestReport("a", ("a", 1, "a"), {}, "skipped", ("a", 1, "no browser"), "call")
    vars(report).update(more)
    return report


def test_a_skipped_test_has_failed_in_ci(monkeypatch):
    monkeypatch.setenv("SCOREFOLD_NO_SKIPS", "1")
    report = failed_if_skipped(skipped())
    assert report.failed
    assert "no browser" in report.longrepr
    assert failed_if_skipped(skipped(wasxfail="known")).skipped


def test_elsewhere_it_is_skipped(monkeypatch):
    monkeypatch.delenv("SCOREFOLD_NO_SKIPS", raising=False)
    assert failed_if_skipped(skipped()).skipped
