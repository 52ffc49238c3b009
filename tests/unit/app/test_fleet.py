"""Many trainings at once: what has its turn when, programs that wait, and draws that are measured later."""

import json
import signal

import numpy as np
import pytest

import fleet
from peers import job as peer
from scorefold import tasks
from scorefold.app.bench import bench_cells
from scorefold.app.bench.bench_plan import cells, grouped
from scorefold.app.bench.exchange import write_job
from scorefold.app.bench.record import RECORDS, described, read

ONLY = "task=gaussian,training=0,n=1,n=8,n=100"
PEERS = cells("peers", f"{ONLY},method=bayesflow,sampler=jac")
OURS = cells("many-observations", f"{ONLY},method=nle,setting=default")


def right(trained, job, cell):
    task = tasks.get("gaussian")
    return task.prior.to_normal(task.reference(job.observed[cell["observed"]], job.draws, 1))


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The peers' job, its cells with stages; the processes it would stop are noted."""
    fleet.write(tmp_path, tmp_path / "out", f"{ONLY},method=bayesflow,sampler=jac", 60.0)
    monkeypatch.setattr(peer.os, "kill", lambda pid, sent: stops.append(sent))
    stops = []
    return peer.read(fleet.place(tmp_path, PEERS[0].group), "cpu"), stops


def test_few_observations_of_the_first_training_come_first():
    for preset in ("peers", "many-observations"):
        order = sorted(cells(preset), key=fleet.turn)
        groups = len({cell.group for cell in order if cell.training == 0 and cell.setting != "refined"})
        first = [cell for cell in order if fleet.turn(cell)[0] == 0]
        assert {(cell.training, cell.n) for cell in first} == {(0, 1), (0, 8), (0, 30)}
        assert len({cell.group for cell in first}) == groups


def test_every_cell_has_one_stage():
    for own in grouped(cells("peers") + cells("many-observations")).values():
        assert sorted(cell.key for some in fleet.stages(own) for cell in some) == sorted(cell.key for cell in own)


def test_a_peer_waits_before_each_later_stage(job):
    given, stops = job
    seen = []

    def draw(trained, job, cell):
        seen.append((cell["stage"], cell["n"], len(stops)))
        return right(trained, job, cell)

    peer.run(given, lambda job: None, draw, ("numpy",), lambda method: {})
    assert [stage for stage, _, _ in seen] == [0, 0, 2, 3, 3, 3, 3, 4, 4]
    assert [stopped for _, _, stopped in seen] == [0, 0, 1, 2, 2, 2, 2, 3, 3]
    assert stops == [signal.SIGSTOP] * 3


def test_a_peer_that_was_not_trained_does_not_wait(job):
    given, stops = job

    def fails(job):
        raise ValueError("no")

    peer.run(given, fails, right, ("numpy",), lambda method: {})
    assert stops == []
    assert len(list(given.folder.glob("*.json"))) == 1 + len(PEERS)


def test_jobs_with_the_same_simulations_share_them(tmp_path):
    fleet.write(tmp_path, tmp_path / "out", ONLY, 60.0)
    arrays = list(tmp_path.glob("jobs/*/job.npz"))
    assert len(arrays) == 4
    assert len({path.stat().st_ino for path in arrays}) == 1
    alone = json.loads((write_job(PEERS, tmp_path / "alone", 60.0) / "job.json").read_text())
    found = json.loads((fleet.place(tmp_path, PEERS[0].group) / "job.json").read_text())
    assert {cell["key"] for cell in alone["cells"]} <= {cell["key"] for cell in found["cells"]}
    assert {name: found[name] for name in ("task", "method", "seed", "draws", "limit")} == {
        name: alone[name] for name in ("task", "method", "seed", "draws", "limit")
    }


def test_draws_are_measured_later_and_say_where_they_come_from(job, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_cells, "c2st_many", lambda x, y: [0.5] * len(x))
    given, _ = job
    peer.run(given, lambda job: None, right, ("numpy",), lambda method: {})
    lost, failed = PEERS[:2]
    for cell, why in ((lost, "RuntimeError: CUDA error"), (failed, "ValueError: no")):
        path = given.folder / f"{cell.key}.json"
        path.write_text(json.dumps({"status": "failed", "why": why, "seconds": {"train": 1.0}}))
    (tmp_path / "ours").mkdir()
    for cell in OURS:
        theta, record = bench_cells.reference_of(cell), described(cell) | {"device": "chip, busy", "seconds": {"draw": 1.0}}
        np.savez(tmp_path / "ours" / f"{cell.key}.npz", theta=theta)
        (tmp_path / "ours" / f"{cell.key}.json").write_text(json.dumps(record))
    fleet.score(tmp_path, tmp_path / "out", ONLY, ", busy", follow=False)
    records = {record["key"]: record for record in read(tmp_path / "out" / RECORDS)}
    assert set(records) == {cell.key for cell in (*PEERS, *OURS)} - {lost.key}
    assert records[failed.key]["failed"] == "failed: ValueError: no"
    assert all(record["device"].endswith(", busy") for record in records.values())
    assert all(records[cell.key]["measures"]["c2st"] == 0.5 for cell in (*PEERS[2:], *OURS))
