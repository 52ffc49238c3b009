"""Who runs a simulator: the settings, and which source they mean."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scorefold.errors import ScorefoldError
from scorefold.simulation.batched import Batched
from scorefold.simulation.run import check_simulator, source_of
from scorefold.simulation.sources.compiled import Compiled
from scorefold.simulation.sources.isolated import Isolated
from scorefold.simulation.sources.source import InProcess
from scorefold.simulation.workers import Workers, as_workers


def plain(theta, rng):
    return theta


@Batched
def batched(theta, keys):
    return theta


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"executor": 3}, r"expected a concurrent\.futures\.Executor.* got int"),
        ({"count": -1}, "workers to be a whole number ≥ 0.* got -1"),
        ({"count": 1.5}, r"workers to be a whole number .* got 1\.5"),
        ({"count": "two"}, "workers to be a whole number .* got 'two'"),
        ({"count": True}, "workers to be a whole number .* got True"),
        ({"timeout": 0}, "timeout to be a positive number of seconds; got 0"),
        ({"timeout": np.inf}, "timeout to be a positive number of seconds; got inf"),
        ({"timeout": True}, "timeout to be a positive number of seconds; got True"),
        ({"memory": -5}, "memory to be a positive number of bytes; got -5"),
        ({"max_failures": 1.5}, r"max_failures to be a fraction from 0 to 1; got 1\.5"),
        ({"max_failures": np.nan}, "max_failures to be a fraction from 0 to 1; got nan"),
        ({"count": 0, "timeout": 1.0}, "only for simulators that run in worker processes; got them with workers=0"),
        ({"count": 0, "memory": 1}, "only for simulators that run in worker processes; got them with workers=0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_settings_are_refused_when_they_are_made(wrong, message):
    with pytest.raises(ScorefoldError, match=message):
        Workers(**wrong)


def test_an_executor_is_not_this_process():
    with ThreadPoolExecutor(1) as executor, pytest.raises(ScorefoldError, match="an executor or workers=0"):
        Workers(0, executor=executor)


@pytest.mark.parametrize("workers", [Workers(2), Workers(timeout=1.0), Workers(memory=10**9)])
def test_batched_simulators_have_no_workers(workers):
    with pytest.raises(ScorefoldError, match="got them with a batched simulator"):
        check_simulator(batched, workers)
    check_simulator(plain, workers)


@pytest.mark.parametrize("workers", [Workers(), Workers(0), Workers(max_failures=0.5)])
def test_batched_simulators_run_here(workers):
    check_simulator(batched, workers)
    with source_of(batched, 0, workers, stored=True) as source:
        assert isinstance(source, Compiled)


@pytest.mark.parametrize(
    ("workers", "stored", "kind"),
    [
        (None, False, InProcess),
        (None, True, Isolated),
        (0, False, InProcess),
        (0, True, InProcess),
        (2, False, Isolated),
        (Workers(max_failures=0.5), False, InProcess),
        (Workers(timeout=1.0), False, Isolated),
        (Workers(memory=2e9), False, Isolated),
    ],
)
def test_which_source_runs_a_plain_simulator(workers, stored, kind):
    with source_of(plain, 0, as_workers(workers), stored) as source:
        assert isinstance(source, kind)


def test_memory_may_be_more_than_a_system_counts():
    assert Workers(memory=1e30).most_bytes == 2**63 - 1
    assert Workers(memory=2e9).most_bytes == 2 * 10**9
    assert Workers().most_bytes is None
