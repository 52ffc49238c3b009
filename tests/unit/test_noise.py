"""Every schedule against what the samplers and the training rely on."""

import jax
import numpy as np
import pytest

from scorefold.errors import ScorefoldError
from scorefold.noise import LOG_SNR_MIN, RESOLVED, SCHEDULES, levels

EPS = np.finfo(np.float32).eps
NAMES = list(SCHEDULES)
LENGTHS = [20, 100, 400, 1000]
COUNTS = [2, 3, 7, 19, 20]


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_gamma_falls_strictly_from_about_one_to_about_zero(name, T):
    gamma = np.asarray(levels(name, T).gamma)
    assert (np.diff(gamma) < 0).all()
    assert 0.99 < gamma[0] < 1
    assert 0 < gamma[-1] < 2e-4


@pytest.mark.parametrize("count", [None, *COUNTS])
@pytest.mark.parametrize("name", NAMES)
def test_alphas_multiply_to_gamma(name, count):
    grid = levels(name, 20, count)
    np.testing.assert_allclose(np.cumprod(np.asarray(grid.alpha, np.float64)), grid.gamma, rtol=25 * EPS)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", NAMES)
def test_sub_sampling_keeps_the_count_the_ends_and_the_values(name, count):
    whole, part = levels(name, 20), levels(name, 20, count)
    t = np.asarray(part.t)
    assert len(t) == count
    assert (t[0], t[-1]) == (1, 20)
    assert np.ptp(np.diff(t)) <= 1, "evenly spaced"
    rows = t.astype(int) - 1
    for field in ("t", "gamma", "remaining"):
        np.testing.assert_array_equal(getattr(part, field), np.asarray(getattr(whole, field))[rows])


@pytest.mark.parametrize("name", NAMES)
def test_the_schedule_is_a_function_of_t_over_T(name):
    """So that neither the ends nor the middle depend on how finely it is cut."""
    coarse, fine = levels(name, 200), levels(name, 400)
    np.testing.assert_allclose(coarse.gamma, fine.gamma[1::2], atol=0.015)
    assert abs(np.log(coarse.gamma[-1] / fine.gamma[-1])) < 0.25
    assert abs(np.log((1 - coarse.gamma[0]) / (1 - fine.gamma[0]))) < 1, "one step of the coarse is two of the fine"


@pytest.mark.parametrize("T", [2, *LENGTHS])
def test_log_snr_is_linear_with_the_same_ends_for_every_T(T):
    for least in (0.01, 0.0002):
        grid = levels("log-snr", T, least=least)
        gamma, noise = np.asarray(grid.gamma, np.float64), np.asarray(grid.noise, np.float64)
        np.testing.assert_allclose(np.log(gamma / noise), np.linspace(np.log(1 / least**2 - 1), LOG_SNR_MIN, T), atol=1e-5)
        assert np.sqrt(noise[0]) == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_noise_is_exact_where_gamma_is_nearly_one(name):
    """Both 1-γ and 1-α would be lost if they were computed from γ and α in single precision."""
    grid = levels(name, 400, least=RESOLVED)
    noise, added = np.asarray(grid.noise, np.float64), np.asarray(grid.added, np.float64)
    np.testing.assert_allclose(1 - noise, grid.gamma, atol=EPS)
    np.testing.assert_allclose(1 - added, grid.alpha, atol=EPS)
    below = np.concatenate([[0.0], noise[:-1]])
    np.testing.assert_allclose(1 - (1 - below) * (1 - added), noise, rtol=1e-5)
    assert (np.diff(noise) > 0).all()
    assert (added > 0).all()


@pytest.mark.parametrize("least", [0.0, RESOLVED / 2, 1.0, np.nan])
def test_noise_that_single_precision_cannot_resolve_is_refused(least):
    with pytest.raises(ScorefoldError, match="single precision"):
        levels(least=least)


@pytest.mark.parametrize("name", NAMES)
def test_fields(name):
    grid = levels(name, 20)
    np.testing.assert_array_equal(grid.t, np.arange(1, 21))
    np.testing.assert_allclose(grid.remaining, 1 - np.arange(1, 21) / 20, atol=EPS)
    assert all(v.dtype == np.float32 and v.shape == (20,) for v in jax.tree.leaves(grid))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("log-snt",),
            r"unknown schedule 'log-snt'\. Did you mean 'log-snr'\? Known: linear-beta, cosine, log-snr",
        ),
        (("linear",), "Did you mean 'linear-beta'"),
        (("zzz",), r"unknown schedule 'zzz'\. Known:"),
        (("log-snr", 1), r"expected T ≥ 2 .* got T = 1"),
        (("log-snr", 20, 1), r"2 ≤ count ≤ T; got T = 20, count = 1"),
        (("log-snr", 20, 21), r"got T = 20, count = 21"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ScorefoldError, match=message):
        levels(*arguments)
