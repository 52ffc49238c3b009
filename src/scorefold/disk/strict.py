"""JSON without its loose ends: one object, no key twice, no NaN or infinity, no number that overflows, no lone surrogates.

`text` writes what `parse` reads. `keys`, `whole`, `number` and `one_of` say what is wrong where something else came.
"""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from scorefold.errors import ModelError

LONGEST_NUMBER = 40
"""Digits; what we write has at most 25, and reading a number takes the square of its length."""


def text(value: Mapping[str, Any]) -> bytes:
    """The object as JSON in UTF-8 with sorted keys, so that equal values have equal bytes.

    NaN and infinity are refused, as JSON has no word for them.
    """
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


def parse(content: bytes, what: str) -> dict[str, Any]:
    """The JSON object that `content` holds; anything that is not strict JSON (a key twice, NaN, a list, too deep a nest) is a
    ModelError, which calls it by `what`.
    """
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refused,
            parse_float=_finite,
            parse_int=_short,
        )
    except RecursionError:
        raise ModelError(f"expected {what} to be JSON; it is nested too deeply") from None
    except ModelError as error:
        raise ModelError(f"expected {what} to be strict JSON; {error}") from None
    except ValueError as error:
        raise ModelError(f"expected {what} to be JSON in UTF-8; {error!s:.200}") from None
    if not isinstance(value, dict):
        raise ModelError(f"expected {what} to hold an object; got {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ModelError(f"the key {twice!r:.60} is there twice")
    return value


def _refused(word: str) -> Any:
    raise ModelError(f"{word} is not a number")


def _finite(digits: str) -> float:
    value = float(digits) if len(digits) <= LONGEST_NUMBER else math.inf
    if not math.isfinite(value):
        raise ModelError(f"{digits:.40} is too long or too large a number")
    return value


def _short(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ModelError(f"{digits:.40}… is too long a number")
    return int(digits)


def keys(value: Any, wanted: Collection[str], where: str) -> dict[str, Any]:
    """An object of a file that must have just these keys.

    Args:
        value: What was read.
        wanted: The keys.
        where: What to call it in messages.

    Returns:
        The value.

    Raises:
        ModelError: It is no object, or has other keys; the message names those unknown and missing.
    """
    if not isinstance(value, dict):
        raise ModelError(f"expected {where} to be an object; got {value!r:.60}")
    if set(value) != set(wanted):
        unknown = ", ".join(sorted(f"{key!r:.40}" for key in set(value) - set(wanted))[:5]) or "none"
        missing = ", ".join(sorted(set(wanted) - set(value))[:5]) or "none"
        raise ModelError(f"expected {where} to have other keys: unknown {unknown}; missing {missing}")
    return value


def whole(value: Any, where: str, least: int, most: int) -> int:
    """The value, once it is a whole number from `least` to `most`; else a ModelError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ModelError(f"expected {where} to be a whole number from {least} to {most}; got {value!r:.60}")
    return value


def number(value: Any, where: str) -> float:
    """The value as a float, once it is a finite number; else a ModelError that says where it stood."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ModelError(f"expected {where} to be a number; got {value!r:.60}")
    return float(value)


def flag(value: Any, where: str) -> bool:
    """The value, once it is true or false; else a ModelError that says where it stood."""
    if not isinstance(value, bool):
        raise ModelError(f"expected {where} to be true or false; got {value!r:.60}")
    return value


def listed(value: Any, where: str, most: int) -> list[Any]:
    """The value, once it is a list of at most `most` entries; else a ModelError that says where it stood."""
    if not isinstance(value, list) or len(value) > most:
        raise ModelError(f"expected {where} to be a list of at most {most}; got {value!r:.60}")
    return value


def word(value: Any, where: str, longest: int = 200) -> str:
    """The value, once it is a string of at most `longest` characters; else a ModelError that says where it stood."""
    if not isinstance(value, str) or len(value) > longest:
        raise ModelError(f"expected {where} to be a word of at most {longest} characters; got {value!r:.60}")
    return value


def one_of(value: Any, known: Collection[str], where: str) -> str:
    """The value, once it is one of the known words; else a ModelError that lists them."""
    if not isinstance(value, str) or value not in known:
        raise ModelError(f"expected {where} to be one of {', '.join(known)}; got {value!r:.60}")
    return value
