"""A posterior on disk: its fields as strict JSON and named arrays, and back.

A posterior is a frozen dataclass, and the annotations of its fields say what it is made of. They alone decide the form:

    int, bool, str, None         as they are; whole numbers are counts, 0 or more
    float                        a number; null where it is not finite, and NaN when it comes back
    tuple, dict                  a list; an object, or a list of pairs where the keys are numbers
    NamedTuple, dataclass        an object with the same keys; where there are several to choose from, with its name as "is"
    Float[np.ndarray, "a b"]     its dotted path ("history.train"), by which it is found among the arrays; an axis has one
                                 length wherever it is named, "dim" that of the prior, "x" that of an observation
    Prior                        as `prior/codec.py` describes it, with its vectors and matrices as arrays
    Any                          settings, as `settings.py` describes them
    another posterior            the same once more, its arrays with its path in front

What cannot be told from annotations is how large the networks are. A class names those of its fields in `networks`, and its
`blank` gives them as trees of shapes and types, from the settings and sizes in the JSON; their arrays go by their path too.

`parts` writes. `plan` reads, and trusts nothing: it goes through the JSON first, and says which arrays there must be; only when
the file holds exactly these are they read, and put together. A class whose numbers must obey more than its annotations say
(a variance above 0) has a method `fault` that says what is wrong with them, or nothing.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import jax
import jaxtyping
import numpy as np

from scorefold import settings
from scorefold.disk import strict
from scorefold.disk.tensors import Arrays, Header, Spec
from scorefold.disk.trees import arrays_of, filled, specs_of
from scorefold.errors import ModelError, ScorefoldError
from scorefold.prior import Prior, codec
from scorefold.types import MAY_BE_NAN

LARGEST_COUNT = 10**38
LONGEST_LIST = 10_000
LONGEST_SHAPE = 8
"""Axes of an observation."""
FLOAT64 = np.dtype("<f8")

Make = Callable[[Arrays], Any]
"""Arrays in, the value out; what it uses it takes out of them."""


class About(NamedTuple):
    """What the sizes of a posterior's networks follow from."""

    method: Any
    dim: int
    has_density: bool
    """Whether the prior is N(0, I) in its space."""
    shape: tuple[int, ...]
    """Of one observation."""
    counts: Mapping[str, int]
    """The posterior's fields that are whole numbers."""
    numbers: int
    """In the file, of all arrays together."""

    def size(self, name: str) -> int:
        """One of the counts that cannot be 0, nor larger than the file."""
        return strict.whole(self.counts[name], name, 1, self.numbers)

    def fits(self, fewest: int, what: str) -> None:
        """Refuse what cannot be in the file before it is built."""
        if fewest > self.numbers:
            raise ModelError(f"expected the weights of {what}; the file is too small for them")


class Source(NamedTuple):
    """What a posterior is read from, besides the JSON."""

    header: Header
    restore: Callable[[type, Any], Any]
    """(class of the posterior, description) to its settings."""


class _Reading(NamedTuple):
    """How far a plan has come."""

    source: Source
    expected: dict[str, Spec]
    """The arrays that there must be, as far as they are known."""
    owner: type
    """The class of the posterior that is being read."""
    axes: dict[str, int]
    """Lengths by name, in this posterior."""


# Writing


def parts(posterior: Any) -> tuple[dict[str, Any], Arrays]:
    """What a posterior is made of, for a file.

    Args:
        posterior: A frozen dataclass whose annotations say what its fields are (see the top of this file).

    Returns:
        Its fields as strict JSON, and its arrays by their dotted paths.

    Raises:
        ScorefoldError: It is no dataclass with a `kind`, or something in it cannot be written down.
    """
    if not is_dataclass(posterior) or not getattr(posterior, "kind", ""):
        raise ScorefoldError(f"a posterior of {type(posterior).__name__} cannot be saved: it is no dataclass with a kind")
    arrays: Arrays = {}
    return _write_fields(_without_fault(posterior, "the posterior"), "", arrays), arrays


def _write_fields(value: Any, path: str, arrays: Arrays) -> dict[str, Any]:
    """The fields of a NamedTuple, a dataclass or a posterior, whose networks are no part of the JSON."""
    networks = getattr(value, "networks", ())
    description = {
        name: _write(getattr(value, name), hint, path + name, arrays)
        for name, hint in _hints_of(value).items()
        if name not in networks
    }
    if networks:
        trees = (getattr(value, name) for name in networks)
        for name, tree, like in zip(networks, trees, value.blank(_about(value)), strict=True):
            if specs_of(tree) != specs_of(like):
                raise ScorefoldError(f"expected {name} as {value.method!r:.200} trains it; got another, which cannot be saved")
            arrays.update(arrays_of(tree, f"{path}{name}."))
    return description


def _about(posterior: Any) -> About:
    counts = {name: getattr(posterior, name) for name, hint in _hints_of(posterior).items() if hint is int}
    prior = posterior.prior
    return About(posterior.method, prior.dim, prior.has_density, posterior.shape, counts, LARGEST_COUNT)


def _write(value: Any, hint: Any, path: str, arrays: Arrays) -> Any:
    options = _options(hint)
    if value is None and types.NoneType in options:
        return None
    options = tuple(option for option in options if option is not types.NoneType)
    if len(options) > 1:
        return {settings.IS: type(value).__name__, **_write_fields(value, f"{path}.", arrays)}
    (own,) = options
    if own is Any:
        return settings.describe(value)
    if own is Prior:
        description, given = codec.parts(value)
        arrays.update({f"{path}.{name}": array for name, array in given.items()})
        return description
    if _is_array(own):
        arrays[path] = np.asarray(value)
        return path
    if own is float:
        return float(value) if np.isfinite(value) else None
    if own in (int, bool, str):
        return own(value)
    inside = get_args(own)
    if get_origin(own) is tuple:
        return [_write(one, _at(inside, i), f"{path}.{i}", arrays) for i, one in enumerate(value)]
    if get_origin(own) is dict:
        pairs = [[inside[0](key), _write(one, inside[1], f"{path}.{key!r:.40}", arrays)] for key, one in value.items()]
        return dict(pairs) if inside[0] is str else pairs
    return _write_fields(value, f"{path}.", arrays)


# Reading


def plan(kind: type, description: Any, source: Source) -> tuple[dict[str, Spec], Make]:
    """Which arrays belong to the description of a posterior of this class, and how it is made of them."""
    expected: dict[str, Spec] = {}
    return expected, _posterior(kind, description, "", source, expected)


def _posterior(kind: Any, description: Any, path: str, source: Source, expected: dict[str, Spec]) -> Make:
    hints = _hints(kind)
    plain = {name: hint for name, hint in hints.items() if name not in kind.networks}
    given = strict.keys(description, plain, path.removesuffix(".") or "the posterior")
    dim, has_density = codec.size(given["prior"])
    axes = [strict.whole(n, "an axis", 1, 2**31) for n in strict.listed(given["shape"], "the shape", LONGEST_SHAPE)]
    if math.prod(axes) > source.header.numbers:  # the scale of every number of an observation is kept
        raise ModelError(f"expected the weights for observations {tuple(axes)}; the file is too small for them")
    reading = _Reading(source, expected, kind, {"dim": dim, "x": math.prod(axes)})
    makes = {name: _read(given[name], hint, path + name, reading) for name, hint in plain.items()}
    if kind.networks:
        counts = {name: given[name] for name, hint in plain.items() if hint is int}
        method = makes["method"]({})
        about = About(method, dim, has_density, tuple(axes), counts, source.header.numbers)
        for name, like in zip(kind.networks, kind.blank(about), strict=True):
            makes[name] = _network(like, f"{path}{name}.", expected)
    return _put_together(kind, makes, path.removesuffix(".") or "the posterior")


def _network(like: Any, path: str, expected: dict[str, Spec]) -> Make:
    expected.update(specs_of(like, path))

    def make(arrays: Arrays) -> Any:
        tree = filled(like, arrays, path)
        for part in jax.tree.leaves(tree, is_leaf=lambda part: hasattr(part, "fault")):
            _without_fault(part, path.removesuffix("."))
        return tree

    return make


def _put_together(kind: Any, makes: Mapping[str, Make], where: str) -> Make:
    return lambda arrays: _without_fault(kind(**{name: make(arrays) for name, make in makes.items()}), where)


def _without_fault(value: Any, where: str) -> Any:
    fault = value.fault() if hasattr(value, "fault") else ""
    if fault:
        raise ModelError(f"expected {where} with numbers that belong together; {fault}")
    return value


def _read(value: Any, hint: Any, path: str, reading: _Reading) -> Make:
    options = _options(hint)
    if value is None and types.NoneType in options:
        return lambda arrays: None
    options = tuple(option for option in options if option is not types.NoneType)
    if not options:
        raise ModelError(f"expected {path} to be null; got {value!r:.60}")
    if len(options) > 1:
        known = {option.__name__: option for option in options}
        if not isinstance(value, dict):
            raise ModelError(f"expected {path} to be an object; got {value!r:.60}")
        name = strict.one_of(value.get(settings.IS), known, path)
        return _parts_of(known[name], {key: one for key, one in value.items() if key != settings.IS}, path, reading)
    (own,) = options
    if own is Any:
        restored = reading.source.restore(reading.owner, value)
        return lambda arrays: restored
    if own is Prior:
        return _prior(value, f"{path}.", reading)
    if _is_array(own):
        strict.one_of(value, (path,), path)
        reading.expected[path] = _spec(own, path, reading, finite=not _may_be_nan(hint))
        return lambda arrays: arrays.pop(path)
    if get_origin(own) is tuple:
        return _tuple(value, get_args(own), path, reading)
    if get_origin(own) is dict:
        return _dict(value, get_args(own), path, reading)
    if own in PLAIN:
        plain = PLAIN[own](value, path)
        return lambda arrays: plain
    return _parts_of(own, value, path, reading)


def _float(value: Any, where: str) -> float:
    return math.nan if value is None else strict.number(value, where)


def _count(value: Any, where: str) -> int:
    return strict.whole(value, where, 0, LARGEST_COUNT)


PLAIN: dict[type, Callable[[Any, str], Any]] = {float: _float, int: _count, bool: strict.flag, str: strict.word}


def _parts_of(kind: Any, value: Any, path: str, reading: _Reading) -> Make:
    """A NamedTuple or a dataclass; or a posterior, which is a world of its own."""
    if hasattr(kind, "networks"):
        return _posterior(kind, value, f"{path}.", reading.source, reading.expected)
    hints = _hints(kind)
    given = strict.keys(value, hints, path)
    makes = {name: _read(given[name], hint, f"{path}.{name}", reading) for name, hint in hints.items()}
    return _put_together(kind, makes, path)


def _tuple(value: Any, inside: tuple[Any, ...], path: str, reading: _Reading) -> Make:
    given = strict.listed(value, path, LONGEST_LIST)
    if inside[-1] is not ... and len(given) != len(inside):
        raise ModelError(f"expected {path} to be a list of {len(inside)}; got {len(given)}")
    makes = [_read(one, _at(inside, i), f"{path}.{i}", reading) for i, one in enumerate(given)]
    return lambda arrays: tuple(make(arrays) for make in makes)


def _dict(value: Any, inside: tuple[Any, ...], path: str, reading: _Reading) -> Make:
    key, own = inside
    if key is str:
        if not isinstance(value, dict):
            raise ModelError(f"expected {path} to be an object; got {value!r:.60}")
        pairs = [list(pair) for pair in value.items()]
    else:
        pairs = [strict.listed(pair, f"a pair of {path}", 2) for pair in strict.listed(value, path, LONGEST_LIST)]
    if len(pairs) > LONGEST_LIST or any(len(pair) != 2 for pair in pairs):
        raise ModelError(f"expected {path} to be at most {LONGEST_LIST:,} pairs of a key and a value; got {value!r:.60}")
    if any(one is None for one, _ in pairs):
        raise ModelError(f"expected keys in {path} that are numbers; got null")
    keys = [PLAIN[key](one, f"a key of {path}") for one, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ModelError(f"expected each key of {path} once")
    makes = [_read(one, own, f"{path}.{name!r:.40}", reading) for name, (_, one) in zip(keys, pairs, strict=True)]
    return lambda arrays: {name: make(arrays) for name, make in zip(keys, makes, strict=True)}


def _prior(value: Any, path: str, reading: _Reading) -> Make:
    header = reading.source.header.arrays
    shapes = {path + name: shape for name, shape in codec.shapes(value).items()}
    if path + codec.DRAWS_ARRAY not in header:  # they may have been left out
        shapes.pop(path + codec.DRAWS_ARRAY, None)
    reading.expected.update({name: Spec(shape, FLOAT64) for name, shape in shapes.items()})
    return lambda arrays: codec.from_parts(value, {name.removeprefix(path): arrays.pop(name) for name in shapes})


def _spec(hint: Any, path: str, reading: _Reading, finite: bool) -> Spec:
    """As the header has it, once rank, type and the axes' lengths are as annotated."""
    found = reading.source.header.arrays.get(path)
    if found is None:
        raise ModelError(f"expected the array {path}; the file does not hold it")
    names = hint.dim_str.split()
    if len(found.shape) != len(names) or found.dtype.name not in hint.dtypes:
        raise ModelError(f"expected {path} to have the axes {names}; got {found.dtype.name} of shape {found.shape}")
    for name, length in zip(names, found.shape, strict=True):
        if reading.axes.setdefault(name, length) != length:
            raise ModelError(f"expected {path} to have {reading.axes[name]} as {name}; got {length}")
    return found._replace(finite=finite)


# Annotations


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The annotations of the fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in (getattr(kind, "_fields", None) or [field.name for field in fields(kind)])}


def _hints_of(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    return _hints(kind)


def _options(hint: Any) -> tuple[Any, ...]:
    """What a value may be: the members of a union."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(bare) if get_origin(bare) in (Union, types.UnionType) else (bare,)


def _may_be_nan(hint: Any) -> bool:
    return MAY_BE_NAN in getattr(hint, "__metadata__", ())


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def _at(inside: tuple[Any, ...], index: int) -> Any:
    """The annotation of a tuple's member."""
    return inside[0] if inside[-1] is ... else inside[index]
