"""The format of a folder with a posterior, and how configurations of older versions are brought up to it."""

from typing import Any

from scorefold.disk import folder as model
from scorefold.settings import IS


def _without_inputs(config: Any) -> Any:
    """A configuration of version 3, when nothing had known inputs, in version 4."""
    if isinstance(config, list):
        return [_without_inputs(one) for one in config]
    if not isinstance(config, dict):
        return config
    found = {key: _without_inputs(value) for key, value in config.items()}
    if isinstance(found.get("seen"), dict):
        found["seen"] |= {"input_names": [], "inputs": None}
    if found.get("kind") == "summed" and isinstance(found.get("posterior"), dict):
        found["posterior"]["inputs"] = 0
    return found


def _without_draws_of_rounds(config: Any) -> Any:
    """A configuration of version 4, when rounds of refinement kept neither draws nor modes, in version 5."""
    if isinstance(config, list):
        return [_without_draws_of_rounds(one) for one in config]
    if not isinstance(config, dict):
        return config
    found = {key: _without_draws_of_rounds(value) for key, value in config.items()}
    if {"proposal", "engine", "gate", "fit"} <= set(found):
        found |= {"before": None, "after": None, "modes": [], "vanished": 0, "placed": False}
    return found


def _without_counts(config: Any) -> Any:
    """A configuration of version 4, when likelihoods took every number for continuous, in version 5."""
    if isinstance(config, list):
        return [_without_counts(one) for one in config]
    if not isinstance(config, dict):
        return config
    found = {key: _without_counts(value) for key, value in config.items()}
    return found | {"whole": 0} if {"prior", "method", "history", "shape", "inputs", "reach"} <= set(found) else found


def _without_tails(config: Any) -> Any:
    """A configuration of version 4, when only scores knew of missing numbers and noise was Gaussian, in version 5."""
    if isinstance(config, list):
        return [_without_tails(one) for one in config]
    if not isinstance(config, dict):
        return config
    found = {key: _without_tails(value) for key, value in config.items()}
    if found.get(IS) in ("NLE", "NRE", "NPE"):
        found |= {"missing": False} | ({"tails": False} if found[IS] == "NLE" else {})
    return found


def _from_version_4(config: Any) -> Any:
    return _without_tails(_without_counts(_without_draws_of_rounds(config)))


def _without_straightening(config: Any) -> Any:
    """A configuration of version 5, when likelihoods and ratios knew parameters as u alone, in version 6."""
    if isinstance(config, list):
        return [_without_straightening(one) for one in config]
    if not isinstance(config, dict):
        return config
    found = {key: _without_straightening(value) for key, value in config.items()}
    return found | {"straighten": False} if found.get(IS) in ("NLE", "NRE") else found


FORMAT = model.Format("scorefold model", 6, {3: _without_inputs, 4: _from_version_4, 5: _without_straightening})
"""Of a folder with a posterior. A new version gets an entry that takes configurations of the one before to it; there is none
for versions 1 and 2, of which no release wrote any."""
