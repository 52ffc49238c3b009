"""Which changes make another simulator of it, and which do not."""

import functools
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.simulation.batched import Batched
from scorefold.simulation.store.fingerprint import fingerprint


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
