"""Every test that docs/promises.md names is there, and runs where the page says that it does."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
PROMISES = 23


def function(path, name):
    """The test's node in its file, with the mark of the file."""
    tree = ast.parse((ROOT / path).read_text())
    node = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    marks = [one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"]
    if node is not None:
        node.decorator_list += marks
    return node


def marked_full(node):
    """(always, in some rows): whether `make test` leaves it out."""
    marks = [ast.unparse(one) for one in node.decorator_list]
    return "pytest.mark.full" in marks, any("shortly(" in mark or "mark.full" in mark for mark in marks)


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_is_named_is_there(path, name):
    assert (ROOT / path).exists()
    assert function(path, name) is not None


def test_every_promise_stands_there_once():
    assert sorted(int(row[0]) for row in ROWS) == list(range(1, PROMISES + 1))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_short_and_long_forms_run_where_the_page_says(row):
    _, promise, short, long, _ = row
    assert promise.strip()
    for path, name in NAMED.findall(short):
        assert not marked_full(function(path, name))[0], f"{name} runs with make test-full only"
    for path, name in NAMED.findall(long):
        assert any(marked_full(function(path, name))), f"{name} runs with make test"
    if not NAMED.findall(short + long):
        assert "no test" in short + long


def test_a_row_of_which_make_test_tries_a_part_says_so():
    for _, _, short, long, _ in ROWS:
        for path, name in NAMED.findall(short):
            if marked_full(function(path, name))[1]:
                assert long.strip(), f"{name} has a long form, which the page does not name"
