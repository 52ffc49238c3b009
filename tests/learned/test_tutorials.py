"""The code of the tutorials and the gallery runs from end to end, on small budgets and with short training.

`make docs` executes these pages as they stand, and shows what comes out. Here only that nothing fails is looked at, so that a
change that breaks a page is seen without building the site.
"""

import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import scorefold as sf

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "{code-cell}" in path.read_text())
CELL = re.compile(r"```\{code-cell\}[^\n]*\n(?:\n*:tags:[^\n]*\n)?(.*?)```", flags=re.DOTALL)
MOST = {"budget": 600, "draws": 100, "sims": 100, "steps": 50}
"""What a page may spend here on each call."""


def smaller(code: str) -> str:
    """The code with every number that stands after one of these names cut down."""

    def cut(found: re.Match) -> str:
        name, number = found[1], int(found[2].replace("_", ""))
        return f"{name}={min(number, MOST[name])}"

    return re.sub(rf"\b({'|'.join(MOST)})=(\d[\d_]*)", cut, code)


def test_numbers_are_cut_down():
    assert smaller("sf.simulate(prior, f, budget=10_000, seed=10_000)") == "sf.simulate(prior, f, budget=600, seed=10_000)"
    assert smaller("sims=sims, draws=50") == "sims=sims, draws=50"


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_cell_runs(page, monkeypatch):
    monkeypatch.chdir(page.parent)
    monkeypatch.setattr(sf, "cache", lambda: None)  # tests keep no compiled programs
    cells = CELL.findall(page.read_text())
    assert cells
    names = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in cells:
            exec(compile(smaller(cell), page.name, "exec"), names)
    plt.close("all")
