"""What a store is about: written once as description.json, and compared with what is to be simulated.

Schema, prior, simulator, seed, set size, the shape of an observation, and how many simulations go into a shard, which follows
from the shapes. The version of scorefold that wrote it is there to be read. The budget is not part of it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.disk.trouble import storage_error
from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.prior import codec as prior_files
from scorefold.shown import listed, one_line
from scorefold.simulation.calls import LARGEST_BUDGET
from scorefold.simulation.columns import joined_names, outcome_names

SCHEMA = 1
SHARD_BYTES = 16 << 20
MOST_ROWS = 16_384
ROWS_EVER = 1 << 20
"""A store that says more is not to be believed."""
FIELDS: dict[str, type] = {
    "schema": int,
    "scorefold": str,
    "prior": dict,
    "simulator": dict,
    "seed": int,
    "set_size": int,
    "shape": list,
    "rows": int,
}
X_NAMES = "x_names"
"""Names of outcomes are there if they were given. They are labels: the same simulations may be continued without them."""
OWN = ("tmp", "lock")
"""What a store may hold before it has a description."""
INPUTS = "inputs"
"""Names and SHA-256 of known inputs are there if there are some."""
HOLES = "missing"
"""Is there, and true, if numbers of an observation may be missing."""
IDENTITY = tuple(key for key in FIELDS if key != "scorefold")
"""What must agree to continue."""


def describe(
    prior: Prior, simulator: Mapping[str, str], seed: int, set_size: int, shape: tuple[int, ...], version: str
) -> dict[str, Any]:
    """What a store is about."""
    row = 8 * prior.dim + 4 * int(np.prod(shape)) + 9
    rows = 1 << max(4, min(MOST_ROWS, SHARD_BYTES // row).bit_length() - 1)
    return {
        "schema": SCHEMA,
        "scorefold": version,
        "prior": prior_files.describe(prior),
        "simulator": dict(simulator),
        "seed": int(seed),
        "set_size": int(set_size),
        "shape": list(shape),
        "rows": rows,
    }


def text(about: Mapping[str, Any]) -> str:
    """As it is written."""
    return json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n"


def read(path: Path) -> dict[str, Any]:
    """The description of the store at this path, every field of the right kind."""
    try:
        about = json.loads((path / "description.json").read_text())
    except FileNotFoundError:
        raise ScorefoldError(f"expected a store at {path}; found no description.json there") from None
    except OSError as error:
        raise storage_error(error, f"read {path / 'description.json'}") from error
    except (ValueError, RecursionError) as error:
        raise ScorefoldError(f"expected a readable {path / 'description.json'}; got {type(error).__name__}: {error}") from error
    wrong = [key for key, kind in FIELDS.items() if not isinstance(about, dict) or type(about.get(key)) is not kind]
    wrong = wrong or sorted(set(about) - {*FIELDS, X_NAMES, INPUTS, HOLES}) or (["schema"] if about["schema"] != SCHEMA else [])
    wrong = wrong or ([HOLES] if about.get(HOLES, True) is not True else [])
    if wrong:
        raise ScorefoldError(
            f"expected a description of schema {SCHEMA} in {path}; {', '.join(wrong)} cannot be read. It was changed, or "
            "written by another version of scorefold."
        )
    whole = [about["seed"] + 1, about["set_size"], about["rows"], *(1 + n if type(n) is int else 0 for n in about["shape"])]
    if min(whole) < 1 or about["rows"] > ROWS_EVER or about["set_size"] > LARGEST_BUDGET:
        raise ScorefoldError(f"expected counts and shapes in {path / 'description.json'}; it was changed")
    names_of(about)
    return about


def names_of(about: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the numbers of an observation, inputs last, and those of the inputs, as a description has them."""
    found = about.get(INPUTS, {"names": [], "sha256": ""})
    if not isinstance(found, dict) or set(found) != {"names", "sha256"} or not isinstance(found["names"], list):
        raise ScorefoldError("expected names and sha256 of the inputs in a store's description.json; it was changed")
    own = settings.names("input", found["names"])
    shape = tuple(about["shape"])
    if own and (len(shape) != 1 or shape[0] <= len(own)):
        raise ScorefoldError(f"expected outcomes beside {len(own)} inputs in a store's observations; got shape {shape}")
    return joined_names(outcome_names(about.get(X_NAMES)), own, shape), own


def refuse_other(path: Path) -> None:
    """An error if there is something else where a store should be."""
    try:
        there = os.listdir(path) if path.exists() else []
    except OSError as error:
        raise storage_error(error, f"find a store or an empty folder at {path}") from error
    if "description.json" not in there and any(name not in OWN and not name.startswith("prior-") for name in there):
        raise ScorefoldError(f"expected a store or an empty folder at {path}; got a folder with other files. Name another one.")


def prior_difference(there: Any, here: Any) -> list[str]:
    """Where two descriptions of priors differ, parameter by parameter where both are of independent parameters; only that."""
    if there == here:
        return []
    old, new = _marginals_by_name(there), _marginals_by_name(here)
    if old is None or new is None:
        keys = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
        return [
            _line(f"prior: {key}", *(json.dumps(one.get(key), ensure_ascii=False) for one in (there, here))) for key in keys
        ]
    lines = [
        _line(f"prior of {one_line(name)}", old.get(name, "no such parameter"), new.get(name, "no such parameter"))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    return lines or [_line("order of the parameters", listed(list(old)), listed(list(new)))]


def _marginals_by_name(prior: Any) -> dict[str, str] | None:
    """Each parameter's distribution as one would call it, or None where they are not independent."""
    try:
        laws = [_call(one["distribution"], one["parameters"]) for one in prior["marginals"]]
        return dict(zip(prior["names"], laws, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _call(distribution: str, parameters: Mapping[str, Any]) -> str:
    return f"{distribution}({', '.join(f'{key}={value}' for key, value in parameters.items())})"


def _inputs_difference(there: Any, here: Any) -> list[str]:
    """How known inputs differ."""
    if there == here:
        return []
    shown = (
        "none" if one is None else f"{listed(one['names'])} (code or table {one['sha256'][:12]}…)" for one in (there, here)
    )
    return [_line("inputs", *shown)]


def _line(what: str, there: str, here: str) -> str:
    return f"  {what}\n    in the store: {there:.500}\n    now:          {here:.500}"


def _simulator_words(one: Mapping[str, Any]) -> str:
    return f"{one.get('name')} ({one.get('of', 'code')} {str(one.get('sha256'))[:12]}…)"


def refuse_difference(path: Path, about: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """An error that shows how a store differs from what is to be simulated, if it does."""
    lines = []
    names, now = about.get(X_NAMES, []), expected.get(X_NAMES, [])
    if names and now and names != now:
        lines.append(_line("x_names", listed(names), listed(now)))
    lines += _inputs_difference(about.get(INPUTS), expected.get(INPUTS))
    if (HOLES in about) != (HOLES in expected):
        lines.append(_line("missing=", *(str(HOLES in one) for one in (about, expected))))
    for key in IDENTITY:
        there, here = about[key], expected.get(key, about[key])
        if key == "simulator":
            same = same_simulator(about, expected)
            there, here = (_simulator_words(one) for one in (there, here))
        elif key == "prior":
            lines += prior_difference(there, here)
            continue
        else:
            same = there == here
            there, here = (json.dumps(one, ensure_ascii=False) for one in (there, here))
        if not same:
            lines.append(_line(key, there, here))
    if lines:
        first = f"expected to continue the store {path} with what it was begun with; got something else:"
        last = ["Use another folder, or the prior, simulator and seed of before."]
        if not same_simulator(about, expected):
            last.append(
                f"If both simulators compute the same, sf.Store.open({str(path)!r}).accept(simulator), or `scorefold store "
                "accept`, lets this one continue."
            )
        raise ScorefoldError("\n".join([first, *lines, *last]))


def same_simulator(about: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether two descriptions are about one simulator, as far as can be seen."""
    there, here = about["simulator"], expected.get("simulator", about["simulator"])
    return bool(there.get("sha256") == here.get("sha256"))
