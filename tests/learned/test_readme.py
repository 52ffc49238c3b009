"""The Python in README and docs runs as it stands, on smaller budgets and with smaller networks.

The blocks of a page run one after the other in one namespace. What a page takes for granted, such as a posterior, is made here.
A block after `<!-- not run by the tests: reason -->` is only compiled.
"""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.posterior import rule_and_sampler as pairing

pytestmark = pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- not run by the tests: [^\n]*-->\n)?```python\n(.*?)```", flags=re.DOTALL)
TINY = "sf.NPSE(width=8, depth=1, training=sf.Training(steps=60, members=2))"
X_OBS = np.random.default_rng(1).normal(0.5, size=(30, 2))

# What is made smaller on each page, and how many of its blocks do not run.
SMALLER = {
    "README.md": (
        {
            "budget=10_000": "budget=300",
            "fit(sims, seed=0": f"fit(sims, {TINY}, seed=0",
            "progress=True": "progress=False",
        },
        0,
    ),
    "docs/index.md": (
        {"budget=10_000": "budget=300", "fit(sims, seed=0": f"fit(sims, {TINY}, seed=0", "progress=True": "progress=False"},
        0,
    ),
    "docs/coming_from/bayesflow.md": ({"budget=10_000": "budget=300", 'method="f-npse"': f"method={TINY}"}, 1),
    "docs/coming_from/sbi.md": ({"budget=10_000": "budget=300", 'method="f-npse"': f"method={TINY}"}, 1),
    "docs/diagnostics.md": ({"sims=300": "sims=20"}, 0),
    "docs/densities.md": (
        {
            '"nle"': "sf.NLE(layers=2, width=8, depth=1, training=sf.Training(steps=60, members=2))",
            '"f-npse"': TINY,
            "budget=10_000": "budget=300",
        },
        0,
    ),
    "docs/howto/clusters.md": ({}, 1),
    "docs/howto/failing.md": ({"budget=2_000": "budget=500"}, 0),
    "docs/howto/how_many.md": ({}, 0),
    "docs/howto/images.md": (
        {
            "budget=4_000": "budget=200",
            'sf.NPSE(embedding="convolution")': f'{TINY[:-1]}, correction=False, embedding="convolution")',
            "draws=500": "draws=100",
        },
        0,
    ),
    "docs/howto/prior_by_draws.md": ({}, 0),
    "docs/howto/right.md": ({"sims=1_000": "sims=100"}, 0),
    "docs/howto/slow.md": ({"width=32, training=sf.Training(steps=2_000, members=3)": TINY[8:-1]}, 0),
    "docs/howto/which_method.md": ({'("f-npse", "nle")': f"({TINY}, {TINY})", "sims=100)": "sims=20)"}, 0),
    "docs/own_task.md": ({"budget=10_000": "budget=300", 'method="f-npse"': f"method={TINY}"}, 0),
    "docs/refining.md": (
        {
            "budget=4_000": "budget=400",
            "budget=6_000, rounds=6": "budget=400, rounds=2",
            "budget=6_000, store": "budget=200, rounds=1, store",
            '"f-npse"': TINY,
            "Workers(8,": "Workers(1,",
        },
        0,
    ),
    "docs/simulating.md": ({"budget=10_000": "budget=400", "Workers(4,": "Workers(1,"}, 3),
    "docs/trust.md": ({"sims=3_000": "sims=100"}, 0),
    "docs/training.md": ({'"pf-npse"': TINY}, 0),
}


def simulator(theta, rng):
    return theta + rng.normal(size=2)


@pytest.fixture(scope="module")
def given():
    """What a page takes for granted."""
    prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
    sims = sf.simulate(prior, simulator, budget=400, seed=0)
    posterior = sf.fit(sims, eval(TINY), seed=0)
    return {
        "sf": sf,
        "prior": prior,
        "simulator": simulator,
        "sims": sims,
        "posterior": posterior,
        "x_obs": X_OBS,
        "theta": np.array([0.5, 0.5]),
        "exact": np.random.default_rng(0).normal(X_OBS.mean(axis=0), 30**-0.5, size=(500, 2)),
    }


def run(page, names):
    """Run the blocks of a page, made smaller."""
    changes, not_run = SMALLER[page]
    blocks = BLOCK.findall((ROOT / page).read_text())
    for words in changes:
        assert any(words in code for _, code in blocks), f"{page} does not say {words!r} any more"
    assert sum(bool(mark) for mark, _ in blocks) == not_run
    for mark, code in blocks:
        for words, smaller in changes.items():
            code = code.replace(words, smaller)
        program = compile(code, page, "exec")
        if not mark:
            exec(program, names)
    return names


def test_no_page_is_left_out():
    pages = [README, *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    assert {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text()} == set(SMALLER)


QUESTIONS = [page for page in SMALLER if "/howto/" in page or "/coming_from/" in page or page == "docs/index.md"]


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.full) for page in QUESTIONS])
def test_questions_and_those_who_come_from_elsewhere(page, tmp_path, monkeypatch, given, request):
    if page == "docs/howto/images.md":
        request.getfixturevalue("quick_to_run")  # convolutions are slow without optimisations
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.errors.ScorefoldWarning)
        run(page, dict(given))


@pytest.mark.full
def test_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draws = run("README.md", {})["draws"]
    assert "draws given 20 observations" in capsys.readouterr().out
    assert draws.theta.shape == (1_000, 2)
    assert draws.names == ("shape", "scale")
    assert (draws.theta[:, 1] > 0.2).all()
    assert (draws.theta[:, 1] < 2.2).all()


@pytest.mark.full
def test_diagnostics(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    names = run("docs/diagnostics.md", dict(given))
    assert names["found"].n == 30
    assert (tmp_path / "diagnosis" / "report.html").exists()
    assert (tmp_path / "pairs.png").exists()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of tiny networks, and ArviZ's own
def test_densities(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run("docs/densities.md", {})
    assert names["draws"].theta.shape == (1_000, 2)
    assert (names["held"]["cv"] == 0.5).all()
    assert np.isnan(names["x_holes"]).any()
    assert "log_likelihood" in names["inference"].groups()


@pytest.mark.full
def test_trust(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    names = run("docs/trust.md", dict(given))
    assert names["draws"].trust.known
    assert names["mended"].local is not None


@pytest.mark.full
def test_own_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run("docs/own_task.md", {})
    assert names["exact"].shape == (1_000, 2)


@pytest.mark.full
def test_refining(tmp_path, monkeypatch, given, short_likelihood):
    monkeypatch.chdir(tmp_path)
    names = run("docs/refining.md", dict(given))
    assert names["draws"].theta.shape == (1_000, 2)
    assert (tmp_path / "rounds" / "round-1").exists()


def test_simulating(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run("docs/simulating.md", {"__name__": "__main__"})
    assert names["sims"].x.shape[2:] == (20,)


def test_training(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    posterior = run("docs/training.md", dict(given))["posterior"]
    assert isinstance(posterior, sf.Posterior)
    assert (tmp_path / "model" / "config.json").exists()


def test_the_papers_configuration_is_accepted():
    (code,) = re.findall(r"`(sf\.NPSE\(base=False.*?\))` is the paper's", README.read_text(), flags=re.DOTALL)
    method = eval(" ".join(code.split()))
    assert isinstance(method, sf.NPSE)
    assert pairing.get_sampler(method.sampler) == sf.samplers.Langevin()
    assert pairing.get_rule(method.rule) == sf.rules.Tempered()
