"""What an environment must have, said at import; what a missing extra is called; one version, one list of lower bounds."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import scorefold
from scorefold.app import supported
from scorefold.app.bench import drive
from scorefold.errors import ScorefoldError
from scorefold.simulation.store import export

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_this_environment_is_supported():
    supported.check()
    assert supported.refused((3, 11, 0), "0.10.0") == ""
    assert supported.refused((3, 15, 1), "1.0") == ""


@pytest.mark.parametrize(
    ("python", "jax", "words"),
    [
        ((3, 10, 13), "0.10.2", r"expected Python 3\.11 or later; got 3\.10\.13"),
        ((3, 11, 0), "0.9.9", r"expected JAX 0\.10 or later; got 0\.9\.9: python -m pip install --upgrade 'jax>=0\.10'"),
        ((3, 11, 0), None, r"it is not installed: python -m pip install"),
    ],
)
def test_what_cannot_work_is_said(python, jax, words):
    assert re.search(words, supported.refused(python, jax))


@pytest.mark.parametrize("file", ["__init__.py", "app/__init__.py", "app/supported.py"])
def test_what_runs_before_it_is_said_is_syntax_of_older_pythons(file):
    ast.parse((Path(scorefold.__file__).parent / file).read_text(), feature_version=(3, 8))


def test_annotations_are_not_evaluated_before_it_is_said():
    """Python 3.8 and 3.9 know no `tuple[int, ...]` and no `str | None`."""
    assert {type(hint) for hint in supported.refused.__annotations__.values()} == {str}


def test_it_is_said_when_the_package_is_imported():
    code = (
        "from importlib import metadata\n"
        "metadata.version = lambda name: '0.4.30'\n"
        "try: import scorefold\n"
        "except ImportError as error: assert 'expected JAX 0.10 or later; got 0.4.30' in str(error), error\n"
        "else: raise AssertionError('imported')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_bounds_are_those_of_the_package():
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, supported.OLDEST_PYTHON))
    assert "jax>=" + ".".join(map(str, supported.OLDEST_JAX)) in PROJECT["dependencies"]


def test_every_lower_bound_is_the_version_that_is_tested():
    """`make test-oldest` installs what constraints-oldest.txt says."""
    tested = dict(line.split("==") for line in (ROOT / "constraints-oldest.txt").read_text().split())
    for line in PROJECT["dependencies"]:
        name, bound = line.split(">=")
        assert tested[name].startswith(bound), f"{line} in pyproject.toml, {tested[name]} in constraints-oldest.txt"


def test_the_conda_recipe_asks_for_the_same():
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    asked = {line.replace(" ", "").replace("matplotlib-base", "matplotlib") for line in recipe["requirements"]["run"]}
    assert {line for line in asked if not line.startswith("python>=")} == set(PROJECT["dependencies"])
    assert scorefold.__version__.startswith(recipe["context"]["version"])


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-oldest.txt"])
def test_constraints_are_names_and_versions_and_nothing_else(name):
    for line in (ROOT / name).read_text().splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line


def test_the_citation_names_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["license"] == PROJECT["license"]
    assert cited["references"][0]["year"] == 2023


def test_the_version_is_written_once():
    assert "version" in PROJECT["dynamic"]
    assert f'version: "{scorefold.__version__}"' not in (ROOT / "CITATION.cff").read_text()
    holders = [path for path in (ROOT / "src").rglob("*.py") if f'"{scorefold.__version__}"' in path.read_text()]
    assert [path.name for path in holders] == ["__init__.py"]


def test_a_missing_extra_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ScorefoldError, match=r"pip install 'scorefold\[cluster\]'"):
        list(drive._dask({}, "tcp://nowhere:1"))
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ScorefoldError, match=r"pip install 'scorefold\[export\]'"):
        export._needs("zarr")


def test_every_extra_that_is_named_exists():
    named = set()
    for path in [*(ROOT / "src").rglob("*.py"), *ROOT.rglob("docs/**/*.md"), ROOT / "README.md"]:
        named |= set(re.findall(r"pip install '?scorefold\[(\w+)\]", path.read_text()))
    assert {"cluster", "export", "gpu"} <= named <= set(PROJECT["optional-dependencies"])


def test_types_are_shipped():
    assert (Path(scorefold.__file__).parent / "py.typed").exists()
