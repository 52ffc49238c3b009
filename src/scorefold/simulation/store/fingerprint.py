"""Which simulator it was: a hash of its code and of the constants it uses.

Of a function: its compiled code without line numbers and docstrings (comments and layout do not count), its defaults, what it
closes over, and the globals it names. Functions and classes of its own top-level package are followed, those of other packages
count by name, numbers, texts, arrays and containers of these by value, modules and other objects by name or type. Simulators
that do something else for reasons out of this sight (a data file, a compiled library) are not told apart.
"""

import functools
import hashlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from scorefold.simulation.inputs import Inputs


def describe_inputs(inputs: Inputs) -> dict[str, Any]:
    """The names of known inputs, and the SHA-256 of their table, or of what can be seen of their sampler."""
    if inputs.sampler is not None:
        return {"names": list(inputs.names), "sha256": fingerprint(inputs.sampler)["sha256"]}
    table = np.ascontiguousarray(inputs.table, "<f8")
    return {"names": list(inputs.names), "sha256": hashlib.sha256(f"{table.shape}".encode() + table.tobytes()).hexdigest()}


def fingerprint(simulator: Callable[..., Any]) -> dict[str, str]:
    """The simulator's name, and the SHA-256 of what can be seen of it."""
    seen: set[int] = set()
    digest = hashlib.sha256()
    for part in _parts(_plain(simulator), _home(_plain(simulator)), seen):
        digest.update(len(part).to_bytes(8, "little") + part)
    return {"name": name(simulator), "sha256": digest.hexdigest()}


def name(simulator: Any) -> str:
    """What people would call it."""
    plain = _plain(simulator)
    return str(getattr(plain, "__qualname__", type(plain).__qualname__))


def _plain(value: Any) -> Any:
    """Without wrappers that do not change what is computed: jax.jit, functools.wraps, scorefold.Batched."""
    for _ in range(20):
        if type(value).__name__ == "Batched" and hasattr(value, "function"):
            value = value.function
        elif hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        else:
            break
    return value


def _home(value: Any) -> str:
    """The top-level package, whose functions are followed."""
    while isinstance(value, functools.partial | types.MethodType):
        value = _plain(value.func if isinstance(value, functools.partial) else value.__func__)
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).split(".")[0]


def _parts(value: Any, home: str, seen: set[int]) -> Iterator[bytes]:
    value = _plain(value)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | range | type(...)):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    if (array := _array(value)) is not None:
        yield f"{array.dtype.str} {array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
        return
    if id(value) in seen:
        yield b"again"
        return
    seen.add(id(value))
    yield type(value).__qualname__.encode()
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item, home, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(hashlib.sha256(b"".join(_parts(item, home, set()))).digest() for item in value)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield from _parts(key, home, seen)
            yield from _parts(value[key], home, seen)
    else:
        yield from _code(value, home, seen)


def _array(value: Any) -> np.ndarray | None:
    """The values of a NumPy or JAX array, or of a tensor."""
    if isinstance(value, type) or not hasattr(value, "__array__"):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # such as JAX's keys
        return None
    return None if array.dtype == object else array


def _code(value: Any, home: str, seen: set[int]) -> Iterator[bytes]:
    """Of what can be called, and of objects."""
    if isinstance(value, types.ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, functools.partial):
        for item in (value.func, value.args, value.keywords):
            yield from _parts(item, home, seen)
    elif isinstance(value, types.MethodType):
        yield from _parts(value.__func__, home, seen)
        yield from _parts(value.__self__, home, seen)
    elif isinstance(value, types.FunctionType) and _home(value) == home:
        yield from _function(value, home, seen)
    elif isinstance(value, type) and _home(value) == home:
        yield value.__qualname__.encode()
        for key in sorted(vars(value)):
            if key not in ("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"):
                yield key.encode()
                yield from _parts(getattr(vars(value)[key], "__func__", vars(value)[key]), home, seen)
    elif hasattr(value, "__qualname__"):
        yield f"{getattr(value, '__module__', '')}.{value.__qualname__}".encode()
    elif _home(type(value)) == home or callable(value):
        yield from _parts(type(value), home, seen)
        yield from _parts(getattr(value, "__dict__", None), home, seen)


def _function(function: types.FunctionType, home: str, seen: set[int]) -> Iterator[bytes]:
    yield function.__qualname__.encode()
    yield from _bytecode(function.__code__)
    yield from _parts(function.__defaults__, home, seen)
    yield from _parts(function.__kwdefaults__, home, seen)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield variable.encode()
        try:
            yield from _parts(cell.cell_contents, home, seen)
        except ValueError:  # a cell that is still empty
            yield b"empty"
    for word in sorted(set(_words(function.__code__))):
        if word in function.__globals__:
            yield word.encode()
            yield from _parts(function.__globals__[word], home, seen)


def _bytecode(code: types.CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(
        (code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars)
    ).encode()
    for index, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield from _bytecode(constant)
        elif not (index == 0 and isinstance(constant, str)):  # the docstring
            yield from _parts(constant, "", set())


def _words(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _words(constant)
