"""The pieces of a composed posterior: partitions, clouds of draws, and what their healths say together."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from untrained import CASES, random_posterior

from scorefold.noise import levels
from scorefold.posterior import composed
from scorefold.posterior.clouds import LARGEST_CLOUD, SMALLEST_CLOUD, cloud_size, merge
from scorefold.posterior.draws import Options
from scorefold.posterior.partitions import FEWEST_PARTITIONS, MOST_PARTITIONS, other_partitions, over_partitions, partition
from scorefold.sample import Info
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.gaussian_base import fit_gaussian_base
from scorefold.score.standardize import Standardize
from scorefold.tasks.gaussian import standard_normal_prior
from scorefold.train.rows import bucket

NORMAL_PRIOR = standard_normal_prior(2)


def test_one_bad_cloud_is_enough():
    flat = np.ones(3)
    good = Info(flat, flat, flat, flat, flat, np.array(False), np.array(True))
    bad = Info(flat, flat, 3 * flat, flat, flat, np.array(True), np.array(False))
    for second, expected in (
        (good, (False, True)),
        (bad, (True, False)),
        (good._replace(converged=np.array(False)), (False,) * 2),
    ):
        merged = merge([good, second])
        assert (merged.diverged, merged.converged) == expected
    assert np.array_equal(merge([good, bad]).q, [2, 2, 2])


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 100])
@pytest.mark.parametrize("m", [1, 2, 3, 50])
def test_partition(n, m):
    x = np.arange(1.0, 2 * n + 1).reshape(n, 2)
    sets, sizes = partition(x, m, m + 1, np.random.default_rng(0))
    assert sets.shape == (-(-n // m), m + 1, 2)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1
    inside = np.arange(m + 1) < sizes[:, None]
    assert np.array_equal(np.sort(sets[inside], axis=0), x), "every observation once"
    assert (sets[~inside] == 0).all()


def test_partition_is_random():
    x = np.arange(100.0)[:, None]
    one, again, other = (partition(x, 10, 10, np.random.default_rng(seed))[0] for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one.ravel(), x.ravel())


def test_cloud_size():
    assert [cloud_size(d, 2) for d in (1, 128, 129, 1_000, 1_024, 10**6)] == [128, 128, 256, 1_024, 1_024, 1_024]
    assert cloud_size(1, 50) >= 500, "enough for a covariance"
    assert (SMALLEST_CLOUD, LARGEST_CLOUD) == (128, 1024)


# Partitions that steps take turns with


@pytest.mark.parametrize("n", [4, 7, 30])
def test_other_partitions_hold_every_observation_once(n):
    x = np.arange(1.0, n + 1)[:, None]
    sets, sizes = partition(x, 3, 4, np.random.default_rng(0))
    count, padding = len(sizes), bucket(len(sizes)) - len(sizes)
    padded = np.pad(sets, ((0, padding), (0, 0), (0, 0))).reshape(-1)
    places = other_partitions(np.concatenate([sizes, np.full(padding, sizes[-1])]), count, 4)
    assert places.shape == (MOST_PARTITIONS, len(sizes) + padding, 4)
    inside = np.arange(4) < sizes[:, None]
    for one in places:
        assert np.array_equal(np.sort(padded[one[:count][inside]]), x[:, 0])
    assert len({one.tobytes() for one in places}) > MOST_PARTITIONS / 2


def test_there_are_fewer_partitions_of_very_many_sets_and_none_of_one_set_or_single_observations():
    assert other_partitions(np.array([5]), 1, 5) is None
    assert other_partitions(np.ones(8, int), 7, 5) is None
    assert len(other_partitions(np.full(4_096, 2), 4_000, 2)) == FEWEST_PARTITIONS


def wrong_scores():
    """A posterior with a right base and a network of random numbers on top, which scores every set a little wrong."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal((2_000, 2))
    x = u[:, None] + rng.standard_normal((2_000, 3, 2))
    posterior = random_posterior(replace(CASES["pf-npse"][0], correction=False), NORMAL_PRIOR, (2,), 3)
    network = jax.tree.map(lambda v: jnp.asarray(rng.standard_normal(v.shape), v.dtype), posterior.ensemble.network)
    network = eqx.tree_at(lambda n: n.out, network, jax.tree.map(lambda v: 0.6 * v, network.out))
    base = fit_gaussian_base(x, np.full(2_000, 3), u)
    unit = Standardize(jnp.zeros(2), jnp.ones(2))
    return replace(posterior, ensemble=ScoreEnsemble(network, unit, base, None)), x[0].mean(axis=0)


@pytest.mark.full
def test_a_step_takes_one_of_the_partitions():
    posterior, _ = wrong_scores()
    x = np.random.default_rng(1).standard_normal((1, 20, 2))
    padded, how = posterior.arrange(x, [(0, 0)], Options())
    padded = padded._replace(x=padded.x[0])
    level = jax.tree.map(lambda v: v[0], levels())
    u = jax.random.normal(jax.random.key(0), (5, 2))
    score = over_partitions(how.rule, lambda x: posterior.ensemble.embed(x, padded.sizes, padded.number), padded)
    flat = padded.x.reshape(-1, 2)
    keys = jax.random.split(jax.random.key(1), 400)
    found = np.asarray(jax.jit(jax.vmap(lambda key: score(u, level, key)))(keys))
    by_itself = [
        how.rule.score(posterior.ensemble.embed(flat[one], padded.sizes, padded.number))(u, level, keys[0])
        for one in padded.others
    ]
    distance = np.abs(found[:, None] - np.stack(by_itself)).max(axis=(2, 3))
    assert distance.min(axis=1).max() < 1e-3, "each is that of a partition"
    # 400 picks of 32 leave one out with probability 32 (31/32)^400 < 10⁻⁴, and these keys are fixed.
    assert len(set(distance.argmin(axis=1))) == len(padded.others)


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_the_partition_does_not_show(monkeypatch):
    """Means of draws with ten seeds: with one partition each they scatter, with many no more than the draws explain."""
    posterior, centre = wrong_scores()
    x = centre + np.random.default_rng(2).standard_normal((30, 2))

    def scatter():
        drawn = [posterior.sample(x, 1_000, seed=seed).theta for seed in range(10)]
        return np.std([one.mean(axis=0) for one in drawn], axis=0, ddof=1).max() / np.mean([one.std(axis=0) for one in drawn])

    many = scatter()
    monkeypatch.setattr(composed, "other_partitions", lambda *sizes: None)
    one = scatter()
    assert many < 0.15
    assert many < 0.5 * one


def test_members_take_turns_until_the_lowest_level():
    """Above it a chunk of sets is one member's at each level, and another one's at the next; there it is the mean of all."""
    posterior, _ = wrong_scores()
    ensemble, members = posterior.ensemble, posterior.method.training.members
    x = jnp.asarray(np.random.default_rng(2).standard_normal((16, 3, 2)), jnp.float32)
    u = jax.random.normal(jax.random.key(0), (50, 2))

    def embedded(ensemble):
        return ensemble.embed(x, jnp.full(16, 3), jnp.asarray(16))

    @eqx.filter_jit
    def chunk(sets, at, first):
        level = jax.tree.map(lambda v: v[at], levels())
        return sets.chunk(sets.prepare(u, level), level, first + jnp.arange(4))

    sets = embedded(ensemble)
    networks = [jax.tree.map(lambda v, k=k: v[k : k + 1], ensemble.network) for k in range(members)]
    alone = [embedded(eqx.tree_at(lambda e: e.network, ensemble, network)) for network in networks]

    def whose(at, first):
        found = chunk(sets.taking_turns(), at, first)
        near = [bool(jnp.abs(found - chunk(one, at, first)).max() < 1e-3) for one in alone]
        assert sum(near) == 1
        return near.index(True)

    assert {whose(at, 4) for at in range(50, 50 + members)} == {whose(50, 4 * k) for k in range(members)} == set(range(members))
    np.testing.assert_allclose(chunk(sets.taking_turns(), 0, 4), chunk(sets, 0, 4), rtol=1e-4, atol=1e-3)
