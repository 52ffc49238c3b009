"""The space where the prior is N(0, I): how far it reaches, and its diffused score there.

With u_0 ~ N(0, I), u_t = √γ u_0 + √(1-γ) ε has variance γ + (1-γ) = 1: diffusion leaves N(0, I) as it is, and
∇ log p_t(u) = -u at every level.
"""

from typing import Any

import numpy as np

from scorefold.types import Float

Values = Float[np.ndarray, "*batch dim"]

U_MAX = 37.5
"""No u goes farther: Φ(-37.5) = 5e-308 is about the smallest tail that is not subnormal."""


def diffused_score(u: Any, gamma: Any) -> Any:
    """The score at u of the prior diffused to level γ, in the N(0, I) space: it is -u, whatever γ."""
    return -u
