"""Runs written down as TOML: what they mean, and what every mistake is told."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from scorefold.app import config
from scorefold.errors import ScorefoldError
from scorefold.prior import Prior

WHOLE = """
[prior]
beta = { distribution = "lognorm", s = 0.5, scale = 0.4 }
gamma = { distribution = "Uniform", low = 0, high = 2.0 }

[simulator]
function = "a_model_of_mine:simulate"

[simulate]
budget = 1_000
set_size = 3
seed = 7
store = "out"
workers = 2
timeout = 60
memory = 1_000_000
max_failures = 0.2
"""


def write(tmp_path, text=WHOLE, old="", new=""):
    assert old in text
    path = tmp_path / "run.toml"
    path.write_text(text.replace(old, new) if old else text)
    return path


def test_a_whole_file(tmp_path):
    read = config.read(write(tmp_path))
    assert read.prior() == Prior({"beta": stats.lognorm(0.5, scale=0.4), "gamma": stats.uniform(0, 2)})
    assert read.store == tmp_path / "out"
    assert read.simulate == {
        "budget": 1000,
        "set_size": 3,
        "seed": 7,
        "store": "out",
        "workers": 2,
        "timeout": 60,
        "memory": 1_000_000,
        "max_failures": 0.2,
    }


def test_the_store_is_named_after_the_file(tmp_path):
    assert config.read(write(tmp_path, WHOLE, 'store = "out"\n')).store == tmp_path / "run-simulations"


def test_numbers_may_be_missing(tmp_path):
    read = config.read(write(tmp_path, WHOLE, "workers = 2", "missing = true"))
    assert read.arguments()["missing"] is True
    with pytest.raises(ScorefoldError, match="expected missing to be true or false; got 1"):
        config.read(write(tmp_path, WHOLE, "workers = 2", "missing = 1"))
    with pytest.raises(ScorefoldError, match="expected workers to be a whole number; got True"):
        config.read(write(tmp_path, WHOLE, "workers = 2", "workers = true"))


def test_the_example_in_the_docstring_is_a_file(tmp_path):
    example = config.__doc__.split(".\n\n", 1)[1].split("\n\nA multivariate")[0]
    read = config.read(write(tmp_path, "\n".join(line[4:] for line in example.splitlines())))
    assert read.prior().names == ("beta", "gamma")
    assert set(read.simulate) == set(config.SIMULATE)


def test_the_simulator_is_found_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("/nowhere")  # so that sys.path is put back
    (tmp_path / "a_model_of_mine.py").write_text("def simulate(theta, rng):\n    return theta\n\nnumber = 3\n")
    assert config.read(write(tmp_path)).simulator()(3, None) == 3
    for name in ("simulat", "number"):
        with pytest.raises(ScorefoldError, match=f"expected a function '{name}' in module 'a_model_of_mine'.* Known: simulate"):
            config.read(write(tmp_path, WHOLE, "mine:simulate", f"mine:{name}")).simulator()
    with pytest.raises(ScorefoldError, match=r"expected a module 'no_such_model' .*ModuleNotFoundError"):
        config.read(write(tmp_path, WHOLE, "a_model_of_mine", "no_such_model")).simulator()


PRIORS = [
    ('[prior]\na = { distribution = "norm" }', Prior({"a": stats.norm()})),
    ('[prior]\na = { distribution = "Gamma", concentration = 2, rate = 3 }', Prior({"a": dist.Gamma(2.0, 3.0)})),
    ('[prior]\na = { distribution = "TruncatedNormal", loc = 1, scale = 2, low = 0 }', None),
    (
        '[prior]\ndistribution = "multivariate_normal"\nnames = ["a", "b"]\nmean = [0, 1]\ncov = [[2.0, 0.5], [0.5, 1.0]]',
        Prior(stats.multivariate_normal([0, 1], [[2.0, 0.5], [0.5, 1.0]]), names=["a", "b"]),
    ),
]


@pytest.mark.parametrize(("text", "prior"), PRIORS)
def test_priors(tmp_path, text, prior):
    read = config.read(write(tmp_path, text + WHOLE[WHOLE.index("\n[simulator]") :])).prior()
    assert prior is None or read == prior


def test_a_prior_from_draws(tmp_path):
    draws = np.exp(np.random.default_rng(0).normal(size=(200, 1)))
    np.save(tmp_path / "draws.npy", draws)
    table = '[prior]\ndistribution = "draws"\nnames = ["a"]\nfile = "draws.npy"\nbounds = { a = [0.0, inf] }'
    read = config.read(write(tmp_path, table + WHOLE[WHOLE.index("\n[simulator]") :])).prior()
    assert read == Prior.from_draws(draws, names=["a"], bounds={"a": (0, np.inf)})
    (tmp_path / "draws.npy").unlink()
    with pytest.raises(ScorefoldError, match=r"expected file to be a \.npy file"):
        config.read(tmp_path / "run.toml").prior()


def test_a_budget_may_be_written_as_1e3(tmp_path):
    budget = config.read(write(tmp_path, WHOLE, "budget = 1_000", "budget = 1e3")).arguments()["budget"]
    assert (budget, type(budget)) == (1_000, int)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[simulate]", "[simulat]", r"'simulat' is not a known table\. Did you mean 'simul"),
        ("budget = 1_000\n", "", r"\[simulate\].*expected a budget"),
        ("budget = 1_000", "budget = 1.5e-1", r"expected budget to be a whole number; got 0\.15"),
        ("budget = 1_000", "budget = true", "expected budget to be a whole number; got True"),
        ("timeout = 60", 'timeout = "60"', "expected timeout to be a number; got '60'"),
        ("seed = 7", "sed = 7", r"'sed' is not a known key\. Did you mean 'seed'"),
        ("seed = 7", "seed = ", "expected TOML in"),
        ("a_model_of_mine:simulate", "a_model_of_mine", 'expected function = "module:function"; got'),
        ("a_model_of_mine:simulate", ":simulate", 'expected function = "module:function"; got'),
        ("function =", "functions =", r"\[simulator\].*'functions' is not a known key"),
        (
            '[simulator]\nfunction = "a_model_of_mine:simulate"\n',
            "",
            r'expected a table \[simulator\], with function = "module:fu.*; there',
        ),
    ],
)
def test_mistakes_in_the_form(tmp_path, old, new, message):
    with pytest.raises(ScorefoldError, match=message):
        config.read(write(tmp_path, WHOLE, old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{ distribution = "lognorm", s = 0.5, scale = 0.4 }', "3", r"beta in \[prior\]: expected a table such as"),
        ('"lognorm"', '"lognrm"', "Did you mean 'lognorm'"),
        ('"Uniform"', '"Unifrm"', "Did you mean 'Uniform'"),
        ("s = 0.5", "sigma = 0.5", "'sigma' is not a known parameter.*Known: s, loc, scale"),
        ("s = 0.5, ", "", "expected the parameters s, loc, scale of lognorm; s is missing"),
        ("low = 0, ", "", "expected the parameters low, high of Uniform; low is missing"),
        ("s = 0.5", 's = "0.5"', "expected s to be a number; got '0.5'"),
        ("s = 0.5", "s = -0.5", "proper distribution"),
        ("[prior]", '[prior]\ndistribution = "nothing"', "expected a distribution for each parameter"),
        ("[prior]", '[prior]\ndistribution = "multivariate_normal"', "'beta' is not a known key"),
    ],
)
def test_mistakes_in_the_prior(tmp_path, old, new, message):
    with pytest.raises(ScorefoldError, match=message):
        config.read(write(tmp_path, WHOLE, old, new)).prior()


def test_no_file(tmp_path):
    with pytest.raises(ScorefoldError, match=r"expected a TOML file at .*No such file"):
        config.read(tmp_path / "nothing.toml")
