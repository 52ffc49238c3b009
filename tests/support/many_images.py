"""Train on images and print the peak of memory in MB, before and after: python many_images.py COUNT SIDE MEMBERS."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from peak_memory import peak_memory
from scipy import stats

import scorefold as sf

count, side, members = (int(one) for one in sys.argv[1:])


@sf.Batched
def simulator(theta, keys):
    """A spot of light on noise."""
    at = jnp.arange(side) / side
    away = (at[:, None] - theta[:, 0, None, None]) ** 2 + (at - theta[:, 1, None, None]) ** 2
    return jnp.exp(-50 * away) + 0.1 * jax.vmap(lambda key: jax.random.normal(key, (side, side)))(keys)


prior = sf.Prior({"up": stats.uniform(0, 1), "right": stats.uniform(0, 1)})
sims = sf.simulate(prior, simulator, count)
print("simulated", sims.x.nbytes >> 20, peak_memory(), flush=True)
posterior = sf.fit(
    sims, sf.NPSE(set_size=1, embedding="convolution", training=sf.Training(members=members, steps=50, learning_rates=(1e-3,)))
)
print("trained", peak_memory(), flush=True)
image = np.asarray(simulator(np.array([[0.3, 0.6]]), jax.random.split(jax.random.key(1), 1)), np.float64)
draws = posterior.sample(image, 100)
print("drawn", peak_memory(), np.round(draws.theta.mean(axis=0), 2).tolist())
