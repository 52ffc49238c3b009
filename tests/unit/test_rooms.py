"""Which room imports which, how long a file may be, and what `scorefold --help` must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scorefold

ROOT = Path(scorefold.__file__).parent
PACKAGE = ROOT.name
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]
LONGEST = 500

BASICS = {"types", "errors", "settings", "shown"}
BELOW = BASICS | {"noise", "progress", "disk", "prior", "simulation", "train", "compose", "sample", "score", "density"}

# What each room may import, besides itself. A new room needs a line here.
MAY_IMPORT = {
    "types": set(),
    "errors": set(),
    "settings": {"errors"},
    "progress": set(),
    "shown": set(),
    "noise": {"types", "errors"},
    "disk": {"errors"},
    "prior": BASICS,
    "simulation": BASICS | {"prior", "disk", "progress"},
    "train": BASICS | {"simulation", "disk", "progress"},
    "compose": BASICS | {"noise"},
    "sample": BASICS | {"noise"},
    "score": BASICS | {"noise", "train", "compose"},
    "density": BASICS | {"noise", "prior", "train", "score"},
    "posterior": BELOW,
    "methods": BELOW | {"posterior"},
    "report": {"types", "errors", "shown", "disk"},
    "diagnostics": BASICS | {"progress", "simulation", "score", "posterior", "report"},
    "tasks": BASICS | {"noise", "disk", "compose", "sample", "prior", "simulation"},
    "app": BELOW | {"posterior", "methods", "report", "diagnostics", "tasks", "__init__"},
    "__init__": BELOW | {"posterior", "methods", "diagnostics", "app"},
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(source: str, path: Path) -> set[str]:
    """The rooms that a module imports, wherever in it the import stands."""
    package = [PACKAGE, *path.relative_to(ROOT).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == PACKAGE else [module]
        else:
            continue
        found |= {name.split(".")[1] if "." in name else "__init__" for name in names if name.split(".")[0] == PACKAGE}
    return found


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import numpy, scorefold.noise", {"noise"}),
        ("import scorefold as sf", {"__init__"}),
        ("from scorefold.train.training import Training", {"train"}),
        ("from scorefold import tasks, methods", {"tasks", "methods"}),
        ("def f():\n    from ..sample import info", {"sample"}),
        ("from . import run", {"compose"}),
        ("from .. import prior", {"prior"}),
        ("from scorefolder import x; import jax", set()),
    ],
)
def test_the_reader_of_imports(source, rooms):
    assert imported(source, ROOT / "compose" / "gauss.py") == rooms


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_room_imports_only_what_it_may(path):
    assert room(path) in MAY_IMPORT, f"say in {Path(__file__).name} what the new room {room(path)!r} may import"
    strangers = imported(path.read_text(), path) - MAY_IMPORT[room(path)] - {room(path)}
    assert not strangers, f"{path.relative_to(ROOT)} may not import {', '.join(sorted(strangers))}"


def test_every_room_that_is_named_exists():
    assert set(MAY_IMPORT) == {room(path) for path in FILES}


def test_the_rules_keep_rules_and_samplers_apart():
    assert "sample" not in MAY_IMPORT["compose"]
    assert "compose" not in MAY_IMPORT["sample"]


def test_the_arrows_make_no_circle():
    left = {name: set(others) for name, others in MAY_IMPORT.items() if name != "__init__"}
    while free := [name for name, others in left.items() if not others & set(left) - {name}]:
        for name in free:
            del left[name]
    assert not left


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_files_are_short_and_named_after_what_they_do(path):
    assert len(path.read_text().splitlines()) <= LONGEST
    assert not {"utils", "util", "helpers", "common", "misc"} & {
        part.removesuffix(".py") for part in path.relative_to(ROOT).parts
    }


HELPS = [
    "--help",
    "infer --help",
    "tasks --help",
    "tasks show --help",
    "diagnose --help",
    "compare --help",
    "fit --help",
    "bench run --help",
]


@pytest.mark.parametrize("argument", [*HELPS, "report --help", "demo --help"])
def test_help_does_not_load_jax(argument):
    code = (
        f"import sys; sys.argv = ['scorefold', *{argument.split()!r}]\n"
        "from scorefold.app.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'jax', 'equinox', 'numpy', 'scipy', 'diffrax', 'numpyro', 'matplotlib', 'arviz'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


MOST_LINES, MOST_ARGUMENTS = 60, 7
"""Of a function, its docstring included; a random key is not counted."""
ASKED_BY_NAME = {
    "diagnostics/compare.py": ("compare",),
    "diagnostics/diagnose.py": ("diagnose",),
    "methods/smc_abc.py": ("smc_abc",),
    "posterior/posterior.py": ("sample", "sample_many", "refine"),
    "simulation/simulate.py": ("simulate",),
    "simulation/simulations.py": ("__new__",),
}
"""What users call by keyword: each argument is a question of its own, with a default. Those of commands are options."""


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_functions_are_short_and_ask_for_little(path):
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    assert not [one.name for one in functions if one.end_lineno - one.lineno >= MOST_LINES]
    if path.parent.name == "commands":
        return
    many = []
    for one in functions:
        given = one.args.posonlyargs + one.args.args + one.args.kwonlyargs
        asked = [arg for arg in given if arg.arg not in ("self", "cls", "key")]
        many += [one.name] if len(asked) > MOST_ARGUMENTS else []
    assert sorted(many) == sorted(ASKED_BY_NAME.get(path.relative_to(ROOT).as_posix(), ()))
