"""u ~ N(0, I), x = u + noise in two dimensions: a problem whose Gaussian base is the whole truth."""

import jax.numpy as jnp
import numpy as np

from scorefold.noise import levels
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.network import Shape
from scorefold.score.standardize import Standardize
from scorefold.train.training_set import Cases

MEMBERS = 2
GRID = levels("log-snr", 50)
DIM = 2
NOISE = np.array([0.5, 1.0])  # variances
R = NOISE / (1 + NOISE)
UNIT = Standardize(jnp.zeros(DIM), jnp.ones(DIM))
SHAPE = Shape(DIM, DIM, 1, width=8, depth=1)
COUNT = 2000


def as_cases(u, x):
    """Sets of one observation each."""
    u, x = jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32)
    return Cases(u, x[:, None], jnp.ones(len(u), jnp.int32))


def linear_gaussian(count, seed):
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((count, DIM))
    return u, u + rng.standard_normal((count, DIM)) * np.sqrt(NOISE)


def exact_base(offset=(0.0, 0.0), wider=1.0):
    """p(u | x), and wrong by an offset of the mean and a factor of the covariance where asked."""
    arrays = (np.diag(1 / (1 + NOISE)), np.array(offset), np.eye(DIM), wider * R)
    return GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))
