"""What is shared by all rooms: seeds and cores."""

import threading
import time

import jax
import jax.numpy as jnp
import pytest

from scorefold import types
from scorefold.types import on_cores, single_precision


def test_threads_compute_as_precisely_as_their_caller():
    jax.config.update("jax_enable_x64", True)
    try:
        assert {str(v.dtype) for v in on_cores(jnp.asarray, [1.0, 2.0])} == {"float64"}
        with single_precision():
            assert {str(v.dtype) for v in on_cores(jnp.asarray, [1.0, 2.0])} == {"float32"}
    finally:
        jax.config.update("jax_enable_x64", False)


def test_each_core_has_a_part_at_a_time_and_results_are_in_order(monkeypatch):
    monkeypatch.setattr(types, "cores", lambda: 3)
    together = threading.Barrier(3, timeout=60)

    def wait(part):
        together.wait()
        return part, threading.current_thread().name

    found = on_cores(wait, range(6))
    assert [part for part, _ in found] == list(range(6))
    assert len({name for _, name in found}) == 3


def test_after_an_error_no_part_is_begun(monkeypatch):
    monkeypatch.setattr(types, "cores", lambda: 1)
    begun = []

    def fails(part):
        begun.append(part)
        if part == 1:
            raise KeyboardInterrupt
        time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        on_cores(fails, range(50))
    assert len(begun) < 5
