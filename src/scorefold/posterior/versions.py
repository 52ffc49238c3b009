"""The format of a folder with a posterior, and how configurations of older versions are brought up to it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from scorefold.disk import folder as model
from scorefold.errors import ModelError
from scorefold.settings import IS

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""One object of a configuration, those within it changed already, to what it is in the next version."""


def _everywhere(change: Change, config: Any) -> Any:
    """A configuration with every object in it changed, from the innermost on."""
    if isinstance(config, list):
        return [_everywhere(change, one) for one in config]
    if not isinstance(config, dict):
        return config
    return change({key: _everywhere(change, value) for key, value in config.items()})


def _without_inputs(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 3, when nothing had known inputs, in version 4."""
    if isinstance(found.get("seen"), dict):
        found["seen"] |= {"input_names": [], "inputs": None}
    if found.get("kind") == "summed" and isinstance(found.get("posterior"), dict):
        found["posterior"]["inputs"] = 0
    return found


def _from_version_4(found: dict[str, Any]) -> dict[str, Any]:
    """Of version 4 in version 5: rounds of refinement kept neither draws nor modes, likelihoods took every number for
    continuous, only scores knew of missing numbers, and noise was Gaussian.
    """
    if {"proposal", "engine", "gate", "fit"} <= set(found):
        found |= {"before": None, "after": None, "modes": [], "vanished": 0, "placed": False}
    if {"prior", "method", "history", "shape", "inputs", "reach"} <= set(found):
        found["whole"] = 0
    if found.get(IS) in ("NLE", "NRE", "NPE"):
        found |= {"missing": False} | ({"tails": False} if found[IS] == "NLE" else {})
    return found


def _without_straightening(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 5, when likelihoods and ratios knew parameters as u alone, in version 6."""
    return found | {"straighten": False} if found.get(IS) in ("NLE", "NRE") else found


def _without_changing_noise(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 6, when the noise around a likelihood's line was the same everywhere, in version 7."""
    return found | {"changing": False} if found.get(IS) == "NLE" else found


def _without_corrected_likelihoods(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 7, when only scores could be corrected, in version 8."""
    summed = {"prior", "method", "history", "shape", "inputs", "whole", "reach"} <= set(found)
    return found | {"local": None, "corrected_for": 0} if summed else found


def _without_lines_for_modes(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 8, when a likelihood had one line at most, in version 9."""
    summed = {"prior", "method", "history", "shape", "inputs", "whole", "reach", "corrected_for"} <= set(found)
    return found | {"modes": 0} if summed else found


def _from_version_9(found: dict[str, Any]) -> dict[str, Any]:
    """Of version 9 in version 10: correlations were of the noise as it is and not in units of its sds, and a refinement by a
    straight line knew nothing of the network beside it.
    """
    if found.get(IS) == "NLE" and found.get("changing"):
        raise ModelError(
            "expected noise that changes with the parameters in the form of this version; the model has that of formats 7 to "
            "9, which were never released. Fit it once more, or load it with the version that saved it."
        )
    return found | {"beside": None} if {"local", "summaries", "rounds", "agreed", "compared"} <= set(found) else found


def _without_edges(found: dict[str, Any]) -> dict[str, Any]:
    """A model of version 10, when no parameter moved an edge beyond which numbers cannot be, in version 11."""
    return found | {"edges": False} if found.get(IS) == "NLE" else found


CHANGES: dict[int, Change] = {
    3: _without_inputs,
    4: _from_version_4,
    5: _without_straightening,
    6: _without_changing_noise,
    7: _without_corrected_likelihoods,
    8: _without_lines_for_modes,
    9: _from_version_9,
    10: _without_edges,
}
FORMAT = model.Format("scorefold model", 11, {version: partial(_everywhere, change) for version, change in CHANGES.items()})
"""Of a folder with a posterior. A new version gets a change that takes configurations of the one before to it; there is none
for versions 1 and 2, of which no release wrote any."""
