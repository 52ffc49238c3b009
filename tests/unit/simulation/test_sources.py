"""How work is cut, when a run is given up, and how the shape of an observation is found."""

import numpy as np
import pytest

from scorefold.errors import SimulatorError
from scorefold.simulation.failures import Guard
from scorefold.simulation.outcome import FAILURES_KEPT, NOT_FINITE, OK, RAISED, SHAPE, TIMEOUT, Block, Outcome, block
from scorefold.simulation.sources import isolated
from scorefold.simulation.sources import source as here
from scorefold.simulation.sources.isolated import Isolated, LocalPool, Pace
from scorefold.simulation.sources.source import InProcess, probed_shape
from scorefold.simulation.workers import Workers

# Tasks


def cut(gaps, seconds, workers):
    """Spans of the gaps where every simulation takes so many seconds, and what was known is learned at once."""
    pace = Pace(gaps, lambda: workers)
    spans = []
    for start, stop in pace.spans():
        spans.append((start, stop))
        pace.learn([seconds] * (stop - start))
    return spans


@pytest.mark.parametrize("seconds", [0.0, 1e-3, 0.1, 2.0, 40.0])
@pytest.mark.parametrize("workers", [1, 7])
def test_tasks_cover_the_gaps_and_last_one_to_thirty_seconds(seconds, workers):
    gaps = [(3, 16_384), (16_384, 30_000), (40_000, 40_001)]
    spans = cut(gaps, seconds, workers)
    assert [i for start, stop in spans for i in range(start, stop)] == [i for a, b in gaps for i in range(a, b)]
    ends = {stop for _, stop in gaps}
    for start, stop in spans[1:]:
        assert (stop - start) * (seconds + 1e-4) <= 30 or stop - start == 1
        assert (stop - start) * (seconds + 1e-4) >= 0.8 or stop in ends or stop - start == isolated.ROWS_IN_TASK


def test_the_first_task_is_one_simulation_as_nothing_is_known():
    assert cut([(0, 100)], 0.01, 2)[0] == (0, 1)


def test_towards_the_end_every_worker_gets_a_share():
    spans = cut([(0, 200)], 0.1, 10)
    assert len(spans) >= 18


@pytest.mark.parametrize(
    ("executor", "workers", "size"),
    [
        (LocalPool(3), None, 3),
        (LocalPool(3), 5, 5),
        (type("Mpi", (), {"num_workers": 64})(), None, 64),
        (type("Dask", (), {"_client": type("C", (), {"nthreads": lambda self: {"a": 2, "b": 2}})()})(), None, 4),
        (type("Dask", (), {"_client": type("C", (), {"nthreads": lambda self: {}})()})(), None, 1),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_how_many_workers_there_are(executor, workers, size):
    assert Isolated(b"", 0, executor, Workers(workers)).size() == size


# Giving up


def seen(failed, total, start=0):
    status = np.where(np.arange(total) < failed, RAISED, OK).astype(np.uint8)
    failures = tuple((start + row, RAISED, "…") for row in range(failed))[:FAILURES_KEPT]
    return Block(start, np.zeros((total, 1), np.float32), status, np.zeros(total, np.float32), failures)


def codes(**counts):
    """Statuses, so many of each."""
    known = {"ok": OK, "raised": RAISED, "timed_out": TIMEOUT}
    return np.repeat([known[name] for name in counts], list(counts.values()))


@pytest.mark.parametrize(
    ("max_failures", "failed", "total", "stops"),
    [
        (0.5, 19, 19, False),
        (0.5, 20, 20, True),
        (0.5, 30, 40, False),
        (0.5, 65, 100, False),
        (0.5, 66, 100, True),
        (0.0, 1, 3, True),
        (0.0, 0, 1000, False),
        (0.1, 20, 100, True),
        (0.1, 15, 100, False),
        (1.0, 1000, 1000, False),
    ],
)
def test_when_a_run_is_given_up(max_failures, failed, total, stops):
    guard = Guard(max_failures, str)
    if stops:
        with pytest.raises(SimulatorError, match=f"got {failed} of {total}: {failed} raised"):
            guard.see(seen(failed, total))
    else:
        guard.see(seen(failed, total))
    assert (guard.done, guard.failed) == (total, failed)


def test_a_bearable_simulator_is_not_given_up_by_chance():
    """At 0.4 of 0.5 a stop needs 5 standard deviations at 100 simulations and more later: once in 10⁶ runs."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        guard = Guard(0.5, str)
        for _ in range(50):
            guard.see(seen(int(rng.binomial(20, 0.4)), 20))
        guard.finish(codes(raised=guard.failed, ok=guard.done - guard.failed))


def test_at_the_end_the_fraction_counts():
    guard = Guard(0.5, str)
    guard.see(seen(6, 10))
    with pytest.raises(SimulatorError, match=r"got 6 of 10: 6 raised.*\n.*simulation 0, θ = 0, raised: …"):
        guard.finish(codes(raised=6, ok=4))


def test_at_the_end_failures_of_earlier_runs_count_too():
    guard = Guard(0.5, str)
    guard.finish(codes(ok=5, raised=5))
    guard = Guard(0.5, str)
    earlier = r"got 6 of 10: 5 raised, 1 timed out.*\n.*simulation 4, θ = 4, timed out: in an earlier run"
    with pytest.raises(SimulatorError, match=earlier):
        guard.finish(codes(ok=4, timed_out=1, raised=5))


def test_the_first_failure_is_the_one_with_the_lowest_number():
    guard = Guard(1.0, lambda index: f"<{index}>")
    for start in (40, 20, 60):
        guard.see(seen(1, 10, start))
    assert "simulation 20, θ = <20>, raised: …" in str(guard.error())


def test_what_was_wrong_is_kept_of_the_first_hundred():
    guard = Guard(1.0, str)
    for start in (300, 0, 150):
        guard.see(seen(60, 150, start))
    assert sorted(guard.texts) == [*range(60), *range(150, 190)]


def test_one_sentence_says_how_many_failed_how_and_shows_the_first():
    guard = Guard(1.0, lambda index: f"<{index}>")
    guard.see(block(4, [Outcome(RAISED, None, 0.0, "Traceback …\n  f()\nValueError: no.\n"), *outcomes((2,), None)], (2,)))
    assert guard.sentence("and were left out") == (
        "2 of 3 simulations failed (2 raised) and were left out. The first was simulation 4, θ = <4>, raised: ValueError: no."
    )


# Shapes


def outcomes(*shapes):
    return [Outcome(RAISED, None, 0.0, "no") if s is None else Outcome(OK, np.ones(s, np.float32), 0.0) for s in shapes]


def probe(*shapes):
    guard = Guard(1.0, str)
    all_of_them = outcomes(*shapes)
    found = probed_shape(
        lambda start, theta: reversed([*enumerate(all_of_them)][start : start + len(theta)]),
        lambda a, b: np.zeros((b - a, 1)),
        24,
        guard,
    )
    return (*found, guard)


def test_the_shape_is_the_one_most_have():
    shape, first, guard = probe((7,), (3,), (3,), None, (3,), (3,), (3,), (3,), *[(9,)] * 16)
    assert shape == (3,)
    assert len(first) == 8
    assert guard.failed == 2
    assert guard.counts["wrong shape"] == 1


def test_of_equally_many_the_first():
    assert probe((2,), (1,), (1,), (2,), *[None] * 20)[0] == (2,)


def test_where_all_fail_the_next_are_asked():
    shape, first, guard = probe(*[None] * 8, (), *[None] * 15)
    assert shape == ()
    assert len(first) == 16
    assert guard.failed == 15
    shape, first, guard = probe(*[None] * 22, (), None)
    assert (shape, len(first)) == ((), 24)
    with pytest.raises(SimulatorError, match="24 of 24: 24 raised"):
        probe(*[None] * 24)


def test_a_block_has_zeros_where_a_simulation_failed():
    made = block(5, [*outcomes((2,), None, (3,)), Outcome(NOT_FINITE, None, 0.5, "NaN")], (2,))
    np.testing.assert_array_equal(made.x, [[1, 1], [0, 0], [0, 0], [0, 0]])
    assert made.status.tolist() == [OK, RAISED, SHAPE, NOT_FINITE]
    assert [(index, status) for index, status, _ in made.failures] == [(6, RAISED), (7, SHAPE), (8, NOT_FINITE)]
    assert [text for _, _, text in made.failures][::2] == ["no", "NaN"]


def test_in_process_blocks_are_a_seconds_worth(monkeypatch):
    monkeypatch.setattr(here, "BLOCK_SECONDS", -1.0)
    source = InProcess(lambda theta, rng: theta, 0)
    rows = np.arange(10.0)[:, None]
    blocks = list(source.blocks([(2, 4), (7, 10)], lambda a, b: rows[a:b], (1,)))
    assert [(one.start, one.x[:, 0].tolist()) for one in blocks] == [(2, [2]), (3, [3]), (7, [7]), (8, [8]), (9, [9])]
