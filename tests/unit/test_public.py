"""The public surface: every name is there, whatever was imported before it, and means what the README says."""

import inspect
import re
import subprocess
import sys
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


def public_functions() -> list[tuple[str, object]]:
    """Verbs, classes, and the methods that users call on what they hold."""
    found: list[tuple[str, object]] = [(name, getattr(sf, name)) for name in VERBS]
    found += [(f"plots.{name}", getattr(sf.plots, name)) for name in dir(sf.plots) if name != "save"]
    methods = {sf.Posterior: ("sample", "sample_many", "using", "refine", "save"), sf.Draws: ("summary", "predict", "to_arviz")}
    return found + [(f"{kind.__name__}.{name}", getattr(kind, name)) for kind, names in methods.items() for name in names]


@pytest.mark.parametrize(("name", "thing"), public_functions(), ids=[name for name, _ in public_functions()])
def test_help_shows_every_argument_and_says_what_it_is(name: str, thing: object) -> None:
    assert callable(thing)
    parameters = inspect.signature(thing).parameters
    assert not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters.values())
    if name in ("Draws", "Posterior", "Store"):  # made by others: their attributes are what matters
        return
    text = thing.__doc__ or ""
    undescribed = [one for one in parameters if one != "self" and f"{one}:" not in text]
    assert not undescribed, f"help({name}) does not say what {undescribed} are"


def taught() -> list[tuple[str, object]]:
    """Whatever the reference shows that is called: public names, those of rooms, and methods that users call."""
    rooms = [(f"{room}.{name}", getattr(getattr(sf, room), name)) for room in ROOMS for name in dir(getattr(sf, room))]
    classes = (sf.Posterior, sf.Draws, sf.Prior, sf.Store)
    told = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "docs" / "api").glob("*.rst"))
    methods = [
        (f"{kind.__name__}.{name}", getattr(kind, name))
        for kind in classes
        for name in re.findall(rf":: scorefold\.{kind.__name__}\n   :members: (.*)", told)[0].split(", ")
    ]
    found = [*((name, getattr(sf, name)) for name in VERBS), *rooms, *methods]
    errors = tuple(one for _, one in rooms if inspect.isclass(one) and issubclass(one, BaseException))
    return [(name, one) for name, one in found if inspect.isroutine(one) or (inspect.isclass(one) and one not in errors)]


SHOWN_WITH_THEIR_CLASS = {
    "Draws.keys", "Prior.dim", "errors.Kept",
    *(f"Store.{name}" for name in ("exists", "accept", "counts", "statuses", "runtimes", "simulations")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "thing"), taught(), ids=[name for name, _ in taught()])
def test_help_teaches(name: str, thing: object) -> None:
    text = inspect.getdoc(thing) or ""
    assert len(text.split()) >= 8
    if name not in SHOWN_WITH_THEIR_CLASS:
        assert "Example:" in text or re.search(r"`docs/\w+\.md` (has|says)|The example of", text), (
            f"help({name}) shows no example"
        )
    if inspect.isroutine(thing):
        arguments = [one for one in inspect.signature(thing).parameters if one != "self"]
        returns = inspect.signature(thing).return_annotation not in (None, "None")
        assert not arguments or "Args:" in text
        assert not (arguments and returns) or "Returns:" in text


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = sf.simulat
