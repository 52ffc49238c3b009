"""Settings: frozen dataclasses whose fields are numbers, words, tuples or settings themselves.

`check` holds every field against its annotation when the object is made, so that a wrong type is refused where it was written
and not in the middle of a compiled program; what a number may be is then the class's own affair. `describe` and `restore` take
settings to strict JSON and back:

    NPSE(width=32, rule=Gauss(pilots=200))  ↔  {"is": "NPSE", "width": 32, "rule": {"is": "Gauss", "pilots": 200}, …}

A function cannot be written down; its place says so, and restoring asks for it.
"""

import math
import os
import secrets
import types
import warnings
from collections.abc import Callable, KeysView, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from scorefold.errors import ScorefoldError, ScorefoldWarning, UnknownSetting, closest

T = TypeVar("T")

IS = "is"
FUNCTION = "function"


def check(settings: Any, **least: int) -> None:
    """Check settings when they are made: every field against its annotation, and numbers against a lower bound.

    Args:
        settings: The frozen dataclass, from its `__post_init__`.
        **least: For fields by name, the least that is allowed; a field that is None is not looked at.

    Raises:
        ScorefoldError: A field is of another type, not finite or too small; the message names it.

    Example:
        >>> from dataclasses import dataclass
        >>> from scorefold import settings
        >>> @dataclass(frozen=True)
        ... class Steps:
        ...     count: int = 5
        ...     def __post_init__(self):
        ...         settings.check(self, count=1)
        >>> Steps(count=0)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected count of Steps to be at least 1; got 0
    """
    kind: Any = type(settings)
    for name, hint in _hints(kind).items():
        value = getattr(settings, name)
        if not fits(value, hint):
            raise ScorefoldError(f"expected {name} of {kind.__name__} to be {_words(hint)}; got {value!r:.80}")
        if name in least and value is not None and value < least[name]:
            raise ScorefoldError(f"expected {name} of {kind.__name__} to be at least {least[name]}; got {value!r:.80}")


def count(name: str, value: Any, least: int) -> int:
    """The value as an int, once it is a whole number of at least `least`, as 10_000 and 1e4 are; else a ScorefoldError that
    calls it by `name`.

    >>> count("budget", 1e4, 1)
    10000
    """
    value = whole(value)
    if not fits(value, int) or value < least:
        raise ScorefoldError(f"expected {name} to be a whole number ≥ {least}; got {value!r:.80}")
    return int(value)


def whole(value: Any) -> Any:
    """A float that is a whole number, such as 1e4, as an int; anything else as it is."""
    if not isinstance(value, float | np.floating) or not abs(float(value)) <= 2.0**53:
        return value
    return int(value) if float(value).is_integer() else value


def seed(value: Any) -> int:
    """A seed that somebody gave, checked.

    Args:
        value: A whole number from 0 on; None takes a fresh one, and says which, so that a run can be repeated.

    Returns:
        The seed.

    Raises:
        ScorefoldError: It is no such number.
    """
    if value is None:
        fresh = secrets.randbits(32)
        warnings.warn(f"seed=None: the fresh random seed is {fresh}. Write seed={fresh} to repeat this.", ScorefoldWarning, 3)
        return fresh
    if not fits(value, int) or value < 0:
        raise ScorefoldError(f"expected seed to be a whole number ≥ 0; got {value!r:.80}")
    return int(value)


def spelled(kind: type[T]) -> type[T]:
    """Decorate a dataclass of settings: a misspelt name is a ScorefoldError (and a TypeError) that knows the right one, and a
    whole number may be written as a float, such as 1e4.

    >>> from dataclasses import dataclass
    >>> @spelled
    ... @dataclass(frozen=True)
    ... class Steps:
    ...     count: int = 5
    >>> Steps(count=1e4)
    Steps(count=10000)
    >>> Steps(cuont=5)
    Traceback (most recent call last):
    scorefold.errors.UnknownSetting: Steps has no setting 'cuont'. Did you mean 'count'? Known: count.
    """
    made: Any = kind
    plain = made.__init__

    @wraps(plain)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        hints = _hints(made)
        for name in given:
            if name not in hints:
                raise UnknownSetting(f"{made.__name__} has no setting {name!r:.60}. {closest(name, list(hints))}")
        first = [whole(value) if _counts(hint) else value for value, hint in zip(args, hints.values(), strict=False)]
        named = {name: whole(value) if _counts(hints[name]) else value for name, value in given.items()}
        plain(self, *first, *args[len(first) :], **named)

    made.__init__ = checked
    return kind


def _counts(hint: Any) -> bool:
    """Whether whole numbers only are meant."""
    return hint is int or (int in get_args(hint) and float not in get_args(hint))


def folder(value: Any) -> Path:
    """The value as a Path, once it is a string or a path that can name a folder; else a ScorefoldError."""
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise ScorefoldError(f"expected the path of a folder; got {value!r:.80}")
    return Path(value)


def numbers(name: str, value: Any) -> np.ndarray:
    """The value as an array of float64; text, complex numbers, dates and masked values are refused with a ScorefoldError that
    calls it by `name`.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ScorefoldError(f"expected {name} without masked values, which are missing ones; got {np.ma.count_masked(value)}")
    try:
        array = np.asarray(value)  # None alone would be NaN, as it is in a column
        if value is not None and array.dtype.kind in "biufO" and not (array.dtype.kind == "O" and any(map(_wordy, array.flat))):
            return np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise ScorefoldError(f"expected {name} to be numbers; got {type(value).__name__}: {' '.join(repr(value).split()):.80}")


def names(what: str, value: Any, count: int | None = None) -> tuple[str, ...]:
    """The value as a tuple of different names, each a string with something in it, `count` of them; else a ScorefoldError that
    calls them `what`.
    """
    ordered = isinstance(value, list | tuple | KeysView) or (isinstance(value, np.ndarray) and value.ndim == 1)
    good = ordered and all(isinstance(name, str) and name.strip() for name in value)
    if not good or len(set(value)) != len(value) or (count is not None and len(value) != count):
        wanted = "" if count is None else f"{count} "
        raise ScorefoldError(
            f"expected {wanted}different names, each a string with something in it; got {value!r:.200}. Name every {what} once."
        )
    return tuple(map(str, value))


def _wordy(value: Any) -> bool:
    return isinstance(value, str | bytes) or np.iscomplexobj(value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; numbers have to be finite, and True does not count as a number."""
    if hint is Any:
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is float:
        return fits(value, int) or (isinstance(value, float | np.floating) and math.isfinite(value))
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        inside, *rest = get_args(hint)
        assert rest == [...]
        return isinstance(value, tuple) and all(fits(one, inside) for one in value)
    if get_origin(hint) is Callable:
        return callable(value)
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    known = {int: "a whole number", float: "a finite number", bool: "True or False", str: "a word", types.NoneType: "None"}
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a tuple, of which each is {_words(get_args(hint)[0])}"
    if get_origin(hint) is Callable:
        return "a function"
    return known.get(hint, getattr(hint, "__name__", str(hint)))


def describe(value: Any) -> Any:
    """The value as strict JSON holds it: numbers and words as they are, settings as an object with their class, functions by
    name only.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, tuple):
        return [describe(one) for one in value]
    if is_dataclass(value) and type(value).__module__.startswith("scorefold."):
        return {IS: type(value).__name__, **{field.name: describe(getattr(value, field.name)) for field in fields(value)}}
    if callable(value):
        return {IS: FUNCTION, "name": str(getattr(value, "__qualname__", type(value).__name__))[:200]}
    raise ScorefoldError(f"expected settings of scorefold's own classes, which can be written down; got {value!r:.80}")


def restore(description: Any, known: Mapping[str, type], functions: Mapping[str, Any], name: str = "settings") -> Any:
    """Make the value that gave a description, trusting nothing in it.

    Args:
        description: What `describe` returned, perhaps from a file.
        known: The classes that may be made, by name.
        functions: By the name of their field, the functions that a description cannot hold.
        name: What to call the value in error messages.

    Returns:
        The settings, equal to those that were described.

    Raises:
        ScorefoldError: A class or a setting is unknown or missing, a value is of the wrong type, or a function was not given.

    Example:
        >>> import scorefold as sf
        >>> from scorefold import settings
        >>> settings.describe(sf.rules.Gauss(pilots=200))
        {'is': 'Gauss', 'pilots': 200}
        >>> settings.restore({"is": "Gauss", "pilots": 200}, {"Gauss": sf.rules.Gauss}, {})
        Gauss(pilots=200)
    """
    if isinstance(description, list):
        return tuple(restore(one, known, functions, name) for one in description)
    if not isinstance(description, dict):
        return description
    kind = description.get(IS)
    if kind == FUNCTION:
        return _given(description, functions, name)
    if not isinstance(kind, str) or kind not in known:
        raise ScorefoldError(f"expected {name} to be one of {', '.join(known)}; got {kind!r:.60}")
    hints = _hints(known[kind])
    if set(description) != {IS, *hints}:
        differ = ", ".join(sorted(f"{key!r:.40}" for key in set(description) ^ {IS, *hints})[:5])
        raise ScorefoldError(f"expected {kind} with the settings {', '.join(hints)}; missing or unknown: {differ}")
    values = {key: restore(description[key], known, functions, key) for key in hints}
    for key, hint in hints.items():  # before the class looks at them, and whether or not it does
        if not fits(values[key], hint):
            raise ScorefoldError(f"expected {key} of {kind} to be {_words(hint)}; got {values[key]!r:.80}")
    return known[kind](**values)


def _given(description: Mapping[str, Any], functions: Mapping[str, Any], name: str) -> Any:
    if functions.get(name) is None:
        raise ScorefoldError(
            f"expected the function that was given as {name} in training ({description.get('name')!r:.80}): a file cannot hold "
            f"it. Write sf.load(folder, {name}=the_function)."
        )
    return functions[name]
