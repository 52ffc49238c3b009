"""The public surface: every name is there, whatever was imported before it, and means what the README says."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import scorefold as sf

ROOMS = ("embeddings", "errors", "plots", "rules", "samplers")
VERBS = sorted(set(sf.__all__) - set(ROOMS))
SIGNATURES = {
    "Prior": ["distribution", "names"],
    "simulate": [
        "prior", "simulator", "budget", "set_size", "seed", "store", "workers", "progress", "x_names", "inputs", "input_names",
        "missing",
    ],
    "Workers": ["count", "timeout", "memory", "executor", "max_failures"],
    "evidence": ["posterior", "x_obs", "draws", "prior", "inputs", "seed"],
    "fit": ["sims", "method", "seed", "progress", "checkpoint", "checkpoint_seconds", "best_so_far"],
}  # fmt: skip


@pytest.mark.parametrize("name", sf.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(sf, name).__doc__


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_documented_ones(name: str) -> None:
    assert list(inspect.signature(getattr(sf, name)).parameters) == SIGNATURES[name]


def test_sample_takes_what_the_readme_says() -> None:
    parameters = inspect.signature(sf.Posterior.sample).parameters
    assert list(parameters)[1:4] == ["x_obs", "draws", "seed"]
    assert parameters["draws"].default == 1_000


@pytest.mark.parametrize(
    "first",
    [
        "scorefold.tasks",
        *(
            pytest.param(f"scorefold.{name}", marks=pytest.mark.full)
            for name in ("posterior.posterior", "methods.fit", "app.plots")
        ),
    ],
)
def test_verbs_are_verbs_whatever_was_imported_before(first: str) -> None:
    code = f"import {first}, scorefold as sf; assert all(callable(getattr(sf, name)) for name in {VERBS})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_package_is_quick_because_it_imports_nothing() -> None:
    code = "import sys, scorefold; assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dir_shows_what_there_is_and_nothing_else() -> None:
    assert set(dir(sf)) == {*sf.__all__, "__version__"}
    for room in ROOMS:
        shown = dir(getattr(sf, room))
        assert shown == sorted(shown)
        assert all(getattr(getattr(sf, room), name) is not None for name in shown)
        assert not {"np", "Any", "annotations"} & set(shown)
    assert set(dir(sf.plots)) >= {"pairs", "predictive", "save"}


def test_plots_are_there_without_an_import_of_their_own() -> None:
    code = "import scorefold as sf; sf.plots.pairs; sf.errors.ScorefoldError; sf.rules.Gauss"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.rst"))


def found(path: str) -> object:
    """What the reference calls `scorefold.…`: a public name, one of a room, or one of a module."""
    home, _, name = path.rpartition(".")
    room = home.removeprefix("scorefold").removeprefix(".")
    if not room:
        return getattr(sf, name)
    return getattr(getattr(sf, room) if room in ROOMS else import_module(home), name)


def taught() -> list[tuple[str, object]]:
    """Whatever the reference shows: public names, those of rooms, what comes back, and the methods that users call."""
    shown = []
    for kind, path, members in re.findall(r"^\.\. auto(\w+):: (\S+)$(?:\n   :members:(.*))?", REFERENCE, flags=re.MULTILINE):
        thing, name = found(path), path.removeprefix("scorefold.")
        shown.append((name, thing))
        if kind == "class":
            shown += [(f"{name}.{one}", getattr(thing, one, None)) for one in members.replace(",", " ").split()]
    return [(name, thing) for name, thing in shown if inspect.isclass(thing) or inspect.isroutine(thing)]


TAUGHT = taught()
PARTS = {
    "Draws.keys", *(f"Store.{name}" for name in ("exists", "accept", "counts", "statuses", "runtimes", "simulations")),
    *(f"diagnostics.diagnosis.Diagnosis.{name}" for name in ("table", "figures", "write", "summary")),
    *(f"diagnostics.comparison.Comparison.{name}" for name in ("table", "write", "summary")),
    "posterior.trust.Trust.summary", "posterior.check.Check.summary",
}  # fmt: skip
"""The example of their class shows them, or how to come by one."""
DISK = {f"errors.{name}" for name in ("StorageError", "DiskFull", "ReadOnly", "NoPermission", "FolderVanished")}
WITHOUT_EXAMPLE = DISK | {f"errors.{name}" for name in ("Diverged", "UntrustworthyDraws", "UnlikeSimulations")}
NEVER_RAISE = {"tasks.task.Task", *(f"Store.{name}" for name in ("exists", "counts", "statuses", "runtimes"))}
MADE_BY_OTHERS = ("Draws", "Posterior", "Store", "diagnostics.", "posterior.", "samplers.Info", "errors.")
"""Classes that nobody calls: their attributes are what matters."""


def test_the_reference_shows_enough() -> None:
    names = {name for name, _ in TAUGHT}
    assert names >= {"Posterior.refine", "NLE", "rules.Damped", "plots.rounds", "tasks.own.by_nuts", "errors.Kept"}
    assert names >= PARTS | WITHOUT_EXAMPLE | NEVER_RAISE


@pytest.mark.parametrize(("name", "thing"), TAUGHT, ids=[name for name, _ in TAUGHT])
def test_help_teaches(name: str, thing: object) -> None:
    text = inspect.getdoc(thing) or ""
    assert len(text.split()) >= 8
    if name not in PARTS | WITHOUT_EXAMPLE:
        assert "Example:" in text or re.search(r"`docs/\w+\.md` (has|says)|[Tt]he example of", text), (
            f"help({name}) shows no example"
        )
    if inspect.isclass(thing) and name.startswith(MADE_BY_OTHERS):
        return
    assert callable(thing)
    signature = inspect.signature(thing)
    assert not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in signature.parameters.values())
    arguments = [one for one in signature.parameters if one != "self"]
    undescribed = [one for one in arguments if f"{one}:" not in text]
    assert not undescribed, f"help({name}) does not say what {undescribed} are"
    if inspect.isroutine(thing) and signature.return_annotation not in (None, "None") and name != "Draws.keys":
        assert "Returns:" in text, f"help({name}) does not say what comes back"
    if arguments and name not in NEVER_RAISE:
        assert "Raises:" in text, f"help({name}) does not say what is raised"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = sf.simulat
