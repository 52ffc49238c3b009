"""Data sets for given parameters: the same whoever runs the simulator, and NaN where it failed."""

import jax
import jax.numpy as jnp
import numpy as np
import plain_simulators
import pytest

from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.simulation.batched import Batched
from scorefold.simulation.calls import repeat
from scorefold.simulation.outcome import stream
from scorefold.simulation.replicate import replicate
from scorefold.simulation.sources.source import InProcess
from scorefold.simulation.workers import Workers

THETA = np.random.default_rng(0).normal(size=(40, 2))
CALLS = repeat(THETA, 5, 3)


def echo(theta, rng):
    return np.append(theta, rng.normal())


@Batched
def batched_echo(theta, keys):
    return jnp.column_stack([theta, jax.vmap(jax.random.normal)(keys)])


def fails_at(*indices):
    """A simulator whose calls of these numbers, in this process, raise."""
    calls = iter(range(10**6))

    def simulator(theta, rng):
        if next(calls) in indices:
            raise ZeroDivisionError("no susceptibles left")
        return np.append(theta, rng.normal())

    return simulator


@pytest.mark.parametrize("simulator", [echo, batched_echo])
def test_every_row_has_its_observations(simulator):
    x = replicate(CALLS, simulator)
    assert x.shape == (40, 5, 3)
    np.testing.assert_allclose(x[..., :2], np.repeat(THETA[:, None], 5, axis=1), rtol=1e-6)
    assert len(np.unique(x[..., 2])) == 200


def test_a_stream_belongs_to_its_place():
    x = replicate(CALLS, echo)
    for row, j in ((0, 0), (7, 4), (39, 1)):
        assert x[row, j, 2] == np.float32(stream(3, 5 * row + j).normal())


def test_workers_give_the_same():
    alone, together = (replicate(CALLS, plain_simulators.echo, workers=workers) for workers in (None, 2))
    np.testing.assert_array_equal(alone, together)


def test_failures_are_nan_and_counted_once():
    message = (
        r"^2 of 200 simulations failed \(2 raised\) and are NaN\. The first was simulation 21, θ = \[.*\], raised: ZeroDiv"
    )
    with pytest.warns(ScorefoldWarning, match=message) as caught:
        x = replicate(CALLS, fails_at(21, 199))
    assert len(caught) == 1
    bad = np.isnan(x).all(axis=2)
    assert np.argwhere(bad).tolist() == [[4, 1], [39, 4]]
    np.testing.assert_array_equal(x[~bad], replicate(CALLS, echo)[~bad])


def test_too_many_failures_are_refused():
    often = range(0, 200, 5)
    with pytest.raises(SimulatorError, match=r"(?s)fraction 0\.1 \(max_failures\).*got 40 of 200.*simulation 0, θ = \["):
        replicate(CALLS, fails_at(*often))
    with pytest.warns(ScorefoldWarning, match="40 of 200"):
        replicate(CALLS, fails_at(*often), workers=Workers(max_failures=0.2))


def test_an_interrupt_says_how_far_it_was():
    def stopped(theta, rng):
        if np.array_equal(theta, THETA[20]):
            raise KeyboardInterrupt
        return theta

    with pytest.raises(Interrupted, match="after 100 of 200 simulations; the first 20 data sets of 5") as caught:
        replicate(CALLS, stopped)
    np.testing.assert_array_equal(caught.value.x, replicate(CALLS, lambda theta, rng: theta)[:20])


def test_only_data_sets_before_the_first_that_is_missing_are_kept(monkeypatch):
    """The others would be those that were quick."""
    blocks = InProcess.blocks

    def out_of_order(self, gaps, theta, shape):
        yield from blocks(self, [(100, 200)], theta, shape)
        yield from blocks(self, [(8, 34)], theta, shape)
        raise KeyboardInterrupt

    monkeypatch.setattr(InProcess, "blocks", out_of_order)
    with pytest.raises(Interrupted, match="after 134 of 200 simulations; the first 6 data sets of 5") as caught:
        replicate(CALLS, echo)
    assert len(caught.value.x) == 6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"simulator": 3}, r"expected a simulator\(theta, rng\) -> x that can be called; got int"),
        ({"n": 0}, "expected n to be a whole number ≥ 1"),
        ({"seed": -1}, "expected seed to be a whole number ≥ 0"),
        ({"workers": -1}, "workers to be a whole number ≥ 0"),
        ({"workers": 2, "simulator": batched_echo}, "got them with a batched simulator"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused(wrong, message):
    given = {"simulator": echo, "workers": None, "n": 2, "seed": 0, **wrong}
    with pytest.raises(ScorefoldError, match=message):
        replicate(repeat(THETA, given["n"], given["seed"]), given["simulator"], given["workers"])
