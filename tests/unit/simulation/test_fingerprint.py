"""Which changes make another simulator of it, and which do not."""

import functools
import hashlib
import importlib
import linecache
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.simulation.batched import Batched
from scorefold.simulation.store import fingerprint as module
from scorefold.simulation.store.fingerprint import fingerprint
from scorefold.simulation.store.source_tree import source_tree


def made(source, **names):
    """The function f of a module with this source."""
    module = {"__name__": "user_module", "np": np, **names}
    exec(textwrap.dedent(source), module)
    return module["f"]


def sha(simulator):
    return fingerprint(simulator)["sha256"]


PLAIN = "def f(theta, rng):\n    return theta + rng.normal()"
SAME = {
    "again": PLAIN,
    "comment": "# a comment\ndef f(theta, rng):\n    # another\n\n    return theta + rng.normal()",
    "brackets": "def f(theta, rng):\n    return (theta + rng.normal())",
    "unused neighbour": "N = 3\n" + PLAIN,
}
OTHER = {
    "code": "def f(theta, rng):\n    return theta - rng.normal()",
    "constant": "def f(theta, rng):\n    return theta + 2 * rng.normal()",
    "default": "def f(theta, rng, n=1):\n    return theta + rng.normal()",
    "method": "def f(theta, rng):\n    return theta + rng.uniform()",
}


@pytest.mark.parametrize("key", SAME)
def test_layout_does_not_count(key):
    assert sha(made(SAME[key])) == sha(made(PLAIN))


@pytest.mark.parametrize("key", OTHER)
def test_code_counts(key):
    assert sha(made(OTHER[key])) != sha(made(PLAIN))


def test_docstrings_do_not_count():
    body = '    """{}"""\n    return theta * 3.5'
    one, two = (made("def f(theta, rng):\n" + body.format(text)) for text in ("One.", "Two."))
    assert sha(one) == sha(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 2),
        (1.0, 1),
        ("a", "b"),
        ([1, [2]], [1, [3]]),
        ({"a": 1}, {"a": 2}),
        ({"a", "b"}, {"a", "c"}),
        (np.zeros(3), np.ones(3)),
        (np.zeros(3), np.zeros((3, 1))),
        (jnp.zeros(3), jnp.ones(3)),
        (np.float64(1), np.float64(2)),
        (None, False),
    ],
)
def test_values_that_are_used_count(one, two):
    def closing(value):
        def f(theta, rng):
            return value

        return f

    source = "def f(theta, rng):\n    return VALUE"
    for make in (closing, lambda value: made(source, VALUE=value), lambda value: functools.partial(closing(0), x=value)):
        assert sha(make(one)) == sha(make(one))
        assert sha(make(one)) != sha(make(two))


def test_what_a_function_calls_counts():
    source = "def g(x):\n    return x {} 1\ndef f(theta, rng):\n    return [g(x) for x in theta]"
    assert sha(made(source.format("+"))) == sha(made(source.format("+")))
    assert sha(made(source.format("+"))) != sha(made(source.format("-")))


def test_functions_that_call_each_other_come_to_an_end():
    f = made("def g(x):\n    return f(x, 0)\ndef f(theta, rng):\n    return g(theta) if rng else theta")
    assert len(sha(f)) == 64


def test_objects_and_methods_count_by_class_and_content():
    start = "class S:\n    def __init__(self, n):\n        self.n = n\n"
    source = start + "    def __call__(self, theta, rng):\n        return {}\nf = S({})"
    assert sha(made(source.format("self.n", 1))) == sha(made(source.format("self.n", 1)))
    assert sha(made(source.format("self.n", 1))) != sha(made(source.format("self.n", 2)))
    assert sha(made(source.format("self.n", 1))) != sha(made(source.format("-self.n", 1)))
    method = source.replace("f = S({})", "f = S({}).__call__")
    assert sha(made(method.format("self.n", 1))) != sha(made(method.format("self.n", 2)))


def test_batching_and_compiling_do_not_count():
    f = made(PLAIN)
    assert sha(Batched(jax.jit(f))) == sha(f)
    assert fingerprint(Batched(f))["name"] == "f"


def test_what_cannot_be_looked_into_is_no_obstacle():
    assert len(sha(made("def f(theta, rng):\n    return VALUE", VALUE=jax.random.key(0)))) == 64
    assert len(sha(made("def f(theta, rng):\n    return VALUE", VALUE=np.array([object()])))) == 64
    assert len(sha(made("def f(theta, rng):\n    return VALUE", VALUE=object()))) == 64


def test_builtin_functions_have_a_fingerprint():
    assert sha(np.add) != sha(np.subtract)
    assert sha(max) != sha(min)


def test_the_same_in_every_process():
    code = (
        "from scorefold.simulation.store.fingerprint import fingerprint\n"
        "WORDS, TABLE = {'a', 'b', 'c', 'd'}, {'x': 1.5, 'y': (2, None)}\n"
        "def g(x):\n    return x in {'p', 'q', 'r'}\n"
        "def f(theta, rng):\n    return [w for w in WORDS if g(w)], TABLE\n"
        "print(fingerprint(f)['sha256'])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
        ).stdout
        for seed in "123"
    }
    assert len(printed) == 1
    assert len(printed.pop()) == 65


# By source, so that another version of Python, which compiles it otherwise, takes it for the same

MODULE = '''
from dataclasses import dataclass
import functools

N = 3

def helper(x):
    return [i + N for i in x]

def f(theta, rng):
    """What it does."""
    return helper(theta)

one, two = (lambda theta, rng: theta + 1), (lambda theta, rng: theta + 2)
nested = lambda theta, rng: (lambda u: u + N)(theta)

@dataclass(frozen=True)
class Model:
    n: int = 3

    def __call__(self, theta, rng):
        return theta * self.n

model = Model()
bound = model.__call__
part = functools.partial(f, rng=None)
'''
SIMULATORS = ("f", "one", "two", "nested", "model", "bound", "part")


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """A function that imports the module with this source, anew each time."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(source):
        (tmp_path / "own_model.py").write_text(textwrap.dedent(source))
        for old in tmp_path.glob("__pycache__/*"):
            old.unlink()
        sys.modules.pop("own_model", None)
        linecache.clearcache()
        importlib.invalidate_caches()
        return importlib.import_module("own_model")

    return load


@pytest.mark.parametrize("name", SIMULATORS)
def test_byte_code_does_not_count_where_there_is_source(imported, monkeypatch, name):
    simulator = getattr(imported(MODULE), name)
    found = fingerprint(simulator)
    assert found["of"] == "source"
    monkeypatch.setattr(module, "_bytecode", lambda code: [b"of another version of Python"])
    assert fingerprint(simulator) == found


def test_simulators_of_one_module_are_told_apart(imported):
    found = imported(MODULE)
    assert len({sha(getattr(found, name)) for name in SIMULATORS}) == len(SIMULATORS)


CHANGES = {
    "layout": ("return helper(theta)", "return (\n        helper(theta)  # with a remark\n    )", True),
    "docstring": ("What it does.", "What else it does.", True),
    "annotations": ("def f(theta, rng):", "def f(theta: list, rng: object) -> list:", True),
    "further down": ("N = 3\n", "N = 3\nUNUSED = 4\n\n", True),
    "code": ("return helper(theta)", "return helper(theta) + [1]", False),
    "constant": ("N = 3", "N = 4", False),
    "helper": ("i + N for", "i - N for", False),
}


@pytest.mark.parametrize("key", CHANGES)
def test_what_counts_in_a_source(imported, key):
    old, new, same = CHANGES[key]
    before = sha(imported(MODULE).f)
    assert old in MODULE
    assert (sha(imported(MODULE.replace(old, new)).f) == before) == same


def test_a_file_edited_after_its_import_is_not_believed(imported, tmp_path):
    f = imported(MODULE).f
    (tmp_path / "own_model.py").write_text(MODULE.replace("return helper(theta)", "return helper(theta) + [1]"))
    linecache.clearcache()
    assert fingerprint(f)["of"].startswith("byte code of Python 3.")


TREES = ["d2ea69ffc542", "19f9642a3ede", "793a882ffe1e", "8a034551e9e3", "92c885ff287e"]
"""As Python 3.11, 3.12 and 3.13 gave them; every one that the tests run with must give the same."""


def test_the_tree_of_a_source_is_the_same_in_every_python(imported):
    found = imported(MODULE)
    functions = (found.f, found.one, found.two, found.nested, found.Model.__call__)
    assert [hashlib.sha256(b"|".join(source_tree(one.__code__))).hexdigest()[:12] for one in functions] == TREES
