"""Runs of training one by one: those that are done cost nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.train.steps import Idle, Setup, run_by_run


@pytest.mark.parametrize("shared", [True, False])
def test_runs_that_are_done_are_left_out(shared):
    called = []

    def scaled(rows, fixed):
        called.append(np.asarray(rows).tolist())
        return rows * fixed, jnp.ones(1)

    fixed = 2.0 if shared else np.array([2.0, 3.0, 4.0])
    idle = Idle(np.array([True, False, True]), (np.full(3, -1.0), np.zeros(3)))
    rows, told = run_by_run(scaled, np.array([1.0, 2.0, 3.0]), fixed, Setup(None, 0.0, None, shared), idle)
    np.testing.assert_array_equal(rows, [2.0, -1.0, 6.0 if shared else 12.0])
    np.testing.assert_array_equal(told, [1, 0, 1])
    assert called == [[1.0], [3.0]]
