"""Base and noise levels where numbers of an observation may be missing.

The base is fitted to single observations, by what there is of each (`score/masked_base.py`). The lowest noise is a tenth of the
narrowest posterior, as `score/narrowest.py` has it, along the parameters' axes and those of the base's covariance.
"""

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import CLEAN, levels
from scorefold.score.denoising import Fixed
from scorefold.score.masked_base import fit_masked_base_to_sets
from scorefold.score.narrowest import least_noise_around
from scorefold.score.standardize import Standardize, standardized
from scorefold.train.training_set import TrainingSet

MOST_LOOKED_AT = 20_000
"""Cases by which the lowest noise is found."""


def fixed_with_holes(schedule: str, T: int, cases: TrainingSet, standardize: Standardize) -> Fixed:
    """What training does not change, from cases with holes and their standardisation."""
    x = standardized(standardize, cases.x)
    base = fit_masked_base_to_sets(x, cases.sizes, cases.u)
    some = np.unique(cases.u[:, 0], return_index=True)[1][:MOST_LOOKED_AT]  # copies of a case share u
    mean = np.asarray(jax.lax.map(lambda case: base.of(*case)[0], (jnp.asarray(x[some]), jnp.asarray(cases.sizes[some]))))
    axes = np.linalg.eigh(np.asarray(base.matrix(1.0, CLEAN, jnp.ones((), jnp.int32))))[1].T
    least = least_noise_around(mean, cases.u[some], np.concatenate([np.eye(cases.u.shape[1]), axes]))
    return Fixed(levels(schedule, T, least=least), standardize, base)
