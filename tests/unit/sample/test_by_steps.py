"""Loops of both kinds, and programs that several threads need at once."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.sample.by_steps import IMPOSSIBLE, at_once, numbers, program, step_by_step
from scorefold.sample.summits import climbed, climbers
from scorefold.sample.tempered import tempered


def hill(u):
    return jax.vmap(jax.value_and_grad(lambda u: -50 * jnp.sum((u - 0.3) ** 2)))(jnp.asarray(u))


@pytest.mark.parametrize("loop", [at_once, step_by_step])
def test_a_loop_ends_when_a_state_says_so(loop):
    double = program(lambda state: (2 * state[0], 2 * state[0] < 100))
    assert int(loop(lambda state: state[1], double, (jnp.asarray(3), jnp.asarray(True)))[0]) == 192
    assert int(loop(lambda state: state[1], double, (jnp.asarray(3), jnp.asarray(False)))[0]) == 3


# Every point climbs the one hill, whatever the key.
@pytest.mark.false_failure(0)
@pytest.mark.parametrize("loop", [at_once, step_by_step])
def test_climbers_arrive_by_either_loop(loop):
    np.testing.assert_allclose(climbed(hill, climbers(2, jax.random.key(0)), 30, loop).u, 0.3 * 100 / 101, atol=2e-3)


# Means of 256 draws with an sd of 0.1: the bound is 6 standard errors of a difference.
@pytest.mark.full
@pytest.mark.false_failure(1e-8)
def test_a_cloud_moves_alike_by_either_loop():
    clouds = [tempered(hill, 2, 256, jax.random.key(0), loop=loop) for loop in (at_once, step_by_step)]
    np.testing.assert_allclose(clouds[0].u.mean(axis=0), clouds[1].u.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(clouds[0].log_evidence, clouds[1].log_evidence, atol=0.5)


def test_threads_wait_for_one_that_compiles():
    traced, ready = [], threading.Barrier(4)

    @program
    def doubled(x):
        traced.append(1)
        return 2 * x

    def call():
        ready.wait()
        assert float(doubled(jnp.ones(()))) == 2

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1


def test_a_program_is_a_part_of_another():
    inner = program(lambda x, power: x**power, static_argnums=1)
    assert float(jax.jit(lambda x: inner(x, 3) + 1)(2.0)) == 9
    assert float(inner(2.0, 3)) == 8


def test_what_is_no_number_is_impossible():
    value, slope = numbers(jnp.array([1.0, -jnp.inf, jnp.nan, 4.0]), jnp.array([[1.0], [2.0], [3.0], [jnp.inf]]))
    np.testing.assert_array_equal(value, np.float32([1.0, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE]))
    np.testing.assert_array_equal(slope, [[1.0], [0.0], [0.0], [0.0]])
