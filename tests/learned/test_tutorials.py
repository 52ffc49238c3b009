"""The code of the tutorials and the gallery runs from end to end, on small budgets, with short training and few rows of data.

`make docs` executes these pages as they stand, and shows what comes out. Here only that nothing fails is looked at, so that a
change that breaks a page is seen without building the site.
"""

import re
import warnings
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

import scorefold as sf
from scorefold.methods import choice

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "{code-cell}" in path.read_text())
CELL = re.compile(r"```\{code-cell\}[^\n]*\n(?:\n*:tags:[^\n]*\n)?(.*?)```", flags=re.DOTALL)
MOST = {"budget": 600, "draws": 100, "sims": 100, "steps": 50}
"""What a page may spend here on each call."""
ROWS = 600
"""Of a long table."""
TINY = {"layers": 2, "width": 8, "depth": 1, "training": sf.Training(members=2, learning_rates=(1e-3,), steps=50)}
"""The default method's networks: a sum over hundreds of observations that a few cannot stand for is slow with large ones."""


def smaller(code: str) -> str:
    """The code with every number that stands after one of these names cut down."""

    def cut(found: re.Match) -> str:
        name, number = found[1], int(found[2].replace("_", ""))
        return f"{name}={min(number, MOST[name])}"

    return re.sub(rf"\b({'|'.join(MOST)})=(\d[\d_]*)", cut, code)


def thinned(read):
    """The same reader of tables, that leaves some rows out of long ones."""

    def few(*how, **named):
        table = read(*how, **named)
        return table.iloc[:: max(1, len(table) // ROWS)]

    return few


def test_numbers_are_cut_down():
    assert smaller("sf.simulate(prior, f, budget=10_000, seed=10_000)") == "sf.simulate(prior, f, budget=600, seed=10_000)"
    assert smaller("sims=sims, draws=50") == "sims=sims, draws=50"


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_cell_runs(page, monkeypatch):
    monkeypatch.chdir(page.parent)
    monkeypatch.setattr(sf, "cache", lambda: None)  # tests keep no compiled programs
    monkeypatch.setattr(pd, "read_csv", thinned(pd.read_csv))
    monkeypatch.setattr(choice, "NLE", partial(sf.NLE, **TINY))
    cells = CELL.findall(page.read_text())
    assert cells
    names = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in cells:
            exec(compile(smaller(cell), page.name, "exec"), names)
    plt.close("all")
