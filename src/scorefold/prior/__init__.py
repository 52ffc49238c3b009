"""The prior, as a map between the parameters θ and the space where it is N(0, I) or, known from draws only, whitened."""

from scorefold.prior.normal_space import diffused_score
from scorefold.prior.prior import Prior

__all__ = ["Prior", "diffused_score"]
