"""The shape vocabulary.

Axis names: `draws` posterior draws, `obs` observations, `sets` sets of observations, `set` observations
within one set, `dim` parameters, `x` the features of one observation, `cases` training cases, `levels`
noise levels.
"""

from collections.abc import Callable

from jaxtyping import Array, Float, Int, PRNGKeyArray

Scalar = Float[Array, ""]
Theta = Float[Array, "dim"]
Cloud = Float[Array, "draws dim"]
Observation = Float[Array, "x"]
Key = PRNGKeyArray
Count = int | Int[Array, ""]  # may be traced

__all__ = ["Array", "Callable", "Cloud", "Count", "Float", "Int", "Key", "Observation", "Scalar", "Theta"]
