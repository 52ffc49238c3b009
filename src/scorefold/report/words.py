"""Words that several pages and tables use."""

from collections.abc import Mapping
from typing import Any

TASK_LABELS = {
    "gaussian": "Gaussian", "mixture": "Gaussian mixture", "sir": "SIR", "lotka_volterra": "Lotka–Volterra",
    "bimodal": "Bimodal", "weinberg": "Weinberg", "correlated": "Correlated", "slcp": "SLCP", "two_moons": "Two moons",
    "mixture_uniform": "Gaussian mixture, flat prior", "bernoulli_glm": "Bernoulli GLM", "drift_diffusion": "Drift diffusion",
}  # fmt: skip


SETTLED = "settled"


def health(converged: bool, diverged: bool) -> str:
    """How the sampler's run went, by its own checks; it says nothing about the networks."""
    return SETTLED if converged else "diverged" if diverged else "not settled"


def trust_rows(told: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """For a table: each parameter with the shift and the error of the width that its draws' trust expects.

    >>> trust_rows({"verdict": "good", "why": "", "shift": {"a": 0.1}, "width": {"a": 1.04}})
    [('a', '0.10', '1.04')]
    """
    return [(name, f"{shift:.2f}", f"{told['width'][name]:.2f}") for name, shift in told.get("shift", {}).items()]
