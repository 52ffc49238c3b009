"""How well likelihoods tell places apart, with likelihoods that are known."""

import numpy as np
import pytest

from scorefold.posterior.contrast import CAP, told

NOISE, SETS, SIZE, PLACES = 0.5, 1_000, 5, 1_500
SD = NOISE / np.sqrt(SIZE)
"""Of the mean of a data set."""


def terms_of(u, x, shift=0.0, stretch=1.0):
    """Σ_j log N(x_j | u + shift, s² / stretch) for every data set and place."""
    off = x[:, :, None] - (u + shift)
    return -stretch * np.square(off).sum(axis=3).sum(axis=1) / (2 * NOISE**2)


@pytest.fixture(scope="module")
def made():
    """Places twice as wide as what a data set tells of them, and data sets of the first."""
    rng = np.random.default_rng(0)
    u = 2 * SD * rng.normal(size=(PLACES, 2))
    return u, u[:SETS, None] + NOISE * rng.normal(size=(SETS, SIZE, 2))


@pytest.mark.false_failure(1e-7)
def test_the_true_likelihood_has_the_least_loss_and_no_error(made):
    u, x = made
    right = told(terms_of(u, x), u)
    assert (np.abs(right.shift) < 6 * right.shift_error).all()
    assert (np.abs(right.log_width) < 6 * right.log_width_error).all()
    for change in ({"shift": np.array([SD, 0])}, {"stretch": 2.0}, {"stretch": 0.5}):
        assert told(terms_of(u, x, **change), u).loss.mean() > right.loss.mean() + 0.05


@pytest.mark.false_failure(1e-7)
def test_what_was_planted_is_found(made):
    u, x = made
    shifted = told(terms_of(u, x, shift=np.array([0.3 * SD, 0.0])), u)
    # Means are too low by that much times what the data set counts for beside the places' own spread.
    free = 1 - 1 / (1 + 1 / 4) / 4
    assert shifted.shift[0] == pytest.approx(-0.3 * 0.8 / np.sqrt(0.8 * free), abs=6 * shifted.shift_error[0])
    assert abs(shifted.shift[1]) < 6 * shifted.shift_error[1]
    narrow = told(terms_of(u, x, stretch=4.0), u)
    assert (narrow.log_width + 6 * narrow.log_width_error < 0).all()


def test_weights_of_modes_that_no_derivative_sees_count():
    """Two places; a likelihood that prefers one of them always is worse than one that cannot tell them apart."""
    u = np.tile([[-1.0], [1.0]], (50, 1))
    cannot_tell = np.zeros((40, 100))
    prefers = cannot_tell + 3 * (u[:, 0] > 0)
    assert told(prefers, u).loss.mean() > told(cannot_tell, u).loss.mean() + 0.5
    assert told(cannot_tell, u).loss == pytest.approx(np.log(100))


def test_impossible_data_sets_cost_no_more_than_the_cap_and_no_numbers_all():
    u = np.linspace(-1, 1, 40)[:, None]
    impossible = np.where(np.eye(30, 40), -1e6, 0.0)
    assert told(impossible, u).loss == pytest.approx(CAP)
    nothing = told(np.full((30, 40), np.nan), u)
    assert np.isinf(nothing.loss).all()
    assert np.isinf(nothing.shift).all()
