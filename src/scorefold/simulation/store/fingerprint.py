"""Which simulator it was: a hash of its code and of the constants it uses.

Of a function: its source (`source_tree.py`: comments, layout, docstrings and annotations do not count), its defaults, what it
closes over, and the globals it names. Functions and classes of its own top-level package are followed, those of other packages
count by name, numbers, texts, arrays and containers of these by value, modules and other objects by name or type. Simulators
that do something else for reasons out of this sight (a data file, a compiled library) are not told apart.

Where the source of a function is not to be had, its byte code stands for it, which another version of Python may compile
otherwise. The fingerprint says so.
"""

import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from scorefold.simulation.inputs import Inputs
from scorefold.simulation.store.source_tree import source_tree

NO_MATTER = {
    "__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__", "__static_attributes__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__conditional_annotations__", "__replace__",
}  # fmt: skip
"""Of a class: what Python adds, some versions more than others."""
GENERATED = {
    "__init__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__setattr__", "__delattr__",
}  # fmt: skip
"""What follows from the fields of a dataclass."""


class _Seen(set[int]):
    """What has been looked at, and whether some of it by its byte code."""

    by_byte_code = False


def describe_inputs(inputs: Inputs) -> dict[str, Any]:
    """The names of known inputs, and the SHA-256 of their table, or of what can be seen of their sampler."""
    if inputs.sampler is not None:
        return {"names": list(inputs.names), "sha256": fingerprint(inputs.sampler)["sha256"]}
    table = np.ascontiguousarray(inputs.table, "<f8")
    return {"names": list(inputs.names), "sha256": hashlib.sha256(f"{table.shape}".encode() + table.tobytes()).hexdigest()}


def fingerprint(simulator: Callable[..., Any]) -> dict[str, str]:
    """The simulator's name, the SHA-256 of what can be seen of it, and what that is of: its source or its byte code."""
    seen = _Seen()
    digest = hashlib.sha256()
    for part in _parts(_plain(simulator), _home(_plain(simulator)), seen):
        digest.update(len(part).to_bytes(8, "little") + part)
    of = f"byte code of Python {sys.version_info.major}.{sys.version_info.minor}" if seen.by_byte_code else "source"
    return {"name": name(simulator), "sha256": digest.hexdigest(), "of": of}


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


def _parts(value: Any, home: str, seen: _Seen) -> Iterator[bytes]:
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
        yield from sorted(hashlib.sha256(b"".join(_parts(item, home, _Seen()))).digest() for item in value)
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


def _code(value: Any, home: str, seen: _Seen) -> Iterator[bytes]:
    """The code of what can be called, and of objects."""
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
            if key not in NO_MATTER and not _generated(value, key):
                yield key.encode()
                yield from _parts(getattr(vars(value)[key], "__func__", vars(value)[key]), home, seen)
    elif hasattr(value, "__qualname__"):
        yield f"{getattr(value, '__module__', '')}.{value.__qualname__}".encode()
    elif _home(type(value)) == home or callable(value):
        yield from _parts(type(value), home, seen)
        yield from _parts(getattr(value, "__dict__", None), home, seen)


def _function(function: types.FunctionType, home: str, seen: _Seen) -> Iterator[bytes]:
    yield function.__qualname__.encode()
    tree = source_tree(function.__code__)
    seen.by_byte_code |= tree is None
    yield from _bytecode(function.__code__) if tree is None else tree
    yield from _parts(function.__defaults__, home, seen)
    yield from _parts(function.__kwdefaults__, home, seen)
    for variable, cell in sorted(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True), key=_first):
        yield variable.encode()
        try:
            yield from _parts(cell.cell_contents, home, seen)
        except ValueError:  # a cell that is still empty
            yield b"empty"
    for word in sorted(set(_words(function.__code__))):
        if word in function.__globals__:
            yield word.encode()
            yield from _parts(function.__globals__[word], home, seen)


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _generated(kind: type, key: str) -> bool:
    """Whether a method was written by `dataclass`."""
    code = getattr(_plain(vars(kind)[key]), "__code__", None)
    return "__dataclass_fields__" in vars(kind) and key in GENERATED and code is not None and code.co_filename == "<string>"


def _bytecode(code: types.CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(
        (code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars)
    ).encode()
    for index, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield from _bytecode(constant)
        elif not (index == 0 and isinstance(constant, str)):  # the docstring
            yield from _parts(constant, "", _Seen())


def _words(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _words(constant)
