"""The pieces of a composed posterior: partitions, clouds of draws, and what their healths say together."""

import numpy as np
import pytest

from scorefold.posterior.composed import LARGEST_CLOUD, SMALLEST_CLOUD, cloud_size, merge, partition
from scorefold.sample import Info


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
