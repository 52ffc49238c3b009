"""Cells to files for other packages, and back: the same simulations and observations, and the same measures."""

import json
import time

import numpy as np
import pytest

from peers import job as peer
from scorefold import tasks
from scorefold.app.bench import bench_cells
from scorefold.app.bench.bench_plan import cells
from scorefold.app.bench.exchange import read_job, write_job
from scorefold.app.bench.record import cell_of
from scorefold.errors import ScorefoldError
from scorefold.simulation.simulate import simulate

ONLY = "task={},method=sbi-npse,training=0,parameters=1000,sampler=gauss,n=1,n=8,n=30"
CELLS = cells("peers", ONLY.format("gaussian"))
TASK = tasks.get("gaussian")


@pytest.fixture
def folder(tmp_path):
    return write_job(CELLS, tmp_path / "job", limit=600.0)


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    """C2ST by a look at the means."""
    monkeypatch.setattr(
        bench_cells,
        "c2st_many",
        lambda x, y: [0.5 + min(0.5, abs(float(a.mean() - b.mean()))) for a, b in zip(x, y, strict=True)],
    )


def play(folder, draw, train=lambda job: None, limit=None):
    """A peer that answers at once."""
    given = peer.read(folder, "cpu")
    if limit is not None:
        given = given._replace(about={**given.about, "limit": limit})
    peer.run(given, train, draw, ("numpy",), lambda method: {"method": method})


def right(trained, job, cell):
    x_obs = job.observed[cell["observed"]]
    return TASK.prior.to_normal(TASK.reference(x_obs, job.draws, 1))


def test_peers_see_what_our_methods_see(folder):
    sims = simulate(TASK.prior, TASK.simulator, 10_000, 1, 0)
    with np.load(folder / "job.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(TASK.prior.from_normal(np.float64(arrays["theta"])), sims.theta, atol=1e-5)
        np.testing.assert_array_equal(arrays["x"], sims.x[:, 0].astype(np.float32))
        np.testing.assert_array_equal(arrays["x_obs_1000_8"], TASK.observe(8, 1_000)[1].astype(np.float32))
    about = json.loads((folder / "job.json").read_text())
    assert [cell["key"] for cell in about["cells"]] == [cell.key for cell in CELLS]


@pytest.mark.false_failure(1e-6)
def test_draws_come_back_as_records(folder):
    play(folder, right)
    records = list(read_job(CELLS, folder))
    assert [cell_of(record) for record in records] == CELLS
    for record in records:
        assert record["measures"]["c2st"] < 0.6
        assert record["measures"]["sliced_wasserstein"] < 0.3
        assert record["peer"]["versions"]["numpy"] == np.__version__
        assert set(record["seconds"]) == {"train", "draw"}
        assert "failed" not in record


def test_a_peer_goes_on_where_it_stopped(folder):
    play(folder, right)
    (folder / f"{CELLS[1].key}.json").unlink()
    seen = []
    play(folder, lambda trained, job, cell: seen.append(cell["n"]) or right(trained, job, cell))
    assert seen == [CELLS[1].n]
    assert len(list(read_job(CELLS, folder))) == 3


def test_what_fails_has_the_word(folder):
    def draw(trained, job, cell):
        if cell["n"] == 8:
            raise RuntimeError("no chain moved")
        return right(trained, job, cell) * (np.nan if cell["n"] == 30 else 1)

    play(folder, draw)
    one, eight, thirty = read_job(CELLS, folder)
    assert "failed" not in one
    assert eight["failed"] == "failed: RuntimeError: no chain moved"
    assert thirty["failed"] == "failed: draws are not finite"
    assert eight["measures"]["c2st"] is None


def test_what_takes_too_long_is_not_finished_and_more_observations_are_not_tried(folder):
    seen = []

    def draw(trained, job, cell):
        seen.append(cell["n"])
        time.sleep(0 if cell["n"] == 1 else 30)
        return right(trained, job, cell)

    play(folder, draw, limit=3.0)
    assert seen == [1, 8]
    words = [record.get("failed") for record in read_job(CELLS, folder)]
    assert words == [None, "not finished: over 3 s", "not finished: n = 8 was not"]


def test_a_training_that_fails_is_told_in_every_cell(folder):
    def train(job):
        raise ValueError("too few")

    play(folder, right, train)
    assert {record["failed"] for record in read_job(CELLS, folder)} == {"failed: training: ValueError: too few"}


def test_cells_without_a_result_have_no_record_unless_it_ended(folder):
    assert list(read_job(CELLS, folder)) == []
    assert {record["failed"].partition(":")[0] for record in read_job(CELLS, folder, "not finished")} == {"not finished"}


@pytest.mark.parametrize("text", ["{", "[]", '{"status": "done"}', '{"status": "well", "seconds": {}}'])
def test_a_result_that_cannot_be_read_is_refused(folder, text):
    (folder / f"{CELLS[0].key}.json").write_text(text)
    with pytest.raises(ScorefoldError, match="expected"):
        list(read_job(CELLS, folder))


@pytest.mark.parametrize(
    "u", [np.zeros((5, 10)), np.zeros((1_000, 3)), np.array([{}], object)], ids=["few", "narrow", "pickle"]
)
def test_draws_of_another_shape_count_as_failed(folder, u):
    play(folder, right)
    np.savez(folder / f"{CELLS[0].key}.npz", u=u)
    assert next(read_job(CELLS, folder))["failed"].startswith("failed: ")


def test_cells_of_two_trainings_are_refused(tmp_path):
    with pytest.raises(ScorefoldError, match="share a training"):
        write_job([CELLS[0], *cells("peers", ONLY.format("sir"))], tmp_path, 1.0)
