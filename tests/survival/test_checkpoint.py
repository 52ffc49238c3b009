"""Training that is killed, stopped or goes on ends with the same bits as one that was left alone."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import jax
import numpy as np
import pytest

import scorefold as sf
from scorefold import tasks
from scorefold.disk import folder as model
from scorefold.errors import ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.train import checkpoint as module
from scorefold.train import loop
from scorefold.train.checkpoint import FORMAT, Checkpoint, State

ROUNDS = 30
METHOD = sf.NPSE(
    width=8,
    depth=1,
    base=False,
    correction=False,
    training=sf.Training(members=1, steps=50 * ROUNDS, learning_rates=(1e-3, 1e-2), patience=999),
)


@pytest.fixture(scope="module")
def sims():
    task = tasks.get("gaussian")
    return sf.simulate(task.prior, task.simulator, 200)


@pytest.fixture(scope="module")
def uninterrupted(sims):
    return sf.fit(sims, METHOD, seed=1)


def bits(posterior):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((posterior.ensemble, tuple(posterior.history)))]


class Killed(BaseException):
    pass


def killed_after(monkeypatch, rounds):
    """No signal, no clean-up: the process would just be gone, after so many rounds were kept."""
    calls = iter(range(10**6))
    real = Checkpoint.write

    def write(self, state):
        real(self, state)
        if next(calls) == rounds - 1:
            raise Killed

    monkeypatch.setattr(Checkpoint, "write", write)


def test_goes_on_to_the_same_bits(sims, uninterrupted, tmp_path, monkeypatch):
    for rounds in (1, 5, 2):
        with monkeypatch.context() as patch:
            killed_after(patch, rounds)
            with pytest.raises(Killed):
                sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path, checkpoint_seconds=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", "round-000007", "round-000008"]
    posterior = sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path, checkpoint_seconds=0)
    assert bits(posterior) == bits(uninterrupted)
    assert posterior.history.train.shape == (1, ROUNDS)
    assert posterior.history.kept[0] > 8, "what is kept was learned after the last kill"


BASELINES = {
    "npe": sf.NPE(layers=2, width=4, depth=1, training=sf.Training(members=2, steps=200)),
    "nle": sf.NLE(layers=2, width=4, depth=1, training=sf.Training(members=2, steps=200)),
    "nre": sf.NRE(width=4, depth=1, training=sf.Training(members=2, steps=200)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) for name in ("npe", "nle", "nre")])
def test_baselines_go_on_to_the_same_bits(sims, tmp_path, monkeypatch, name):
    how = {"method": BASELINES[name], "seed": 1}
    alone = sf.fit(sims, **how).save(tmp_path / "alone")
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            sf.fit(sims, **how, checkpoint=tmp_path / "kept", checkpoint_seconds=0)
    resumed = sf.fit(sims, **how, checkpoint=tmp_path / "kept", checkpoint_seconds=0).save(tmp_path / "resumed")
    for file in ("weights.safetensors", "config.json"):
        assert (resumed / file).read_bytes() == (alone / file).read_bytes()


@pytest.mark.full
def test_what_is_done_is_not_done_again(sims, uninterrupted, tmp_path, monkeypatch):
    sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", f"round-{ROUNDS:06d}"]
    monkeypatch.setattr("scorefold.train.loop.advance", None)
    assert bits(sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)) == bits(uninterrupted)


@pytest.mark.full
def test_stopped_by_a_signal(sims, uninterrupted, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number, rounds in ((signal.SIGINT, 3), (signal.SIGTERM, 7)):
        real = module.Watch.after_round

        def after(self, state, total, number=number, rounds=rounds, real=real):
            if state.round == rounds:
                os.kill(os.getpid(), number)
            real(self, state, total)

        with monkeypatch.context() as patch:
            patch.setattr(module.Watch, "after_round", after)
            with pytest.raises(sf.errors.Interrupted, match=rf"after round {rounds} of 30.*To go on") as caught:
                sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)
        assert isinstance(caught.value, KeyboardInterrupt)
        assert str(tmp_path) in str(caught.value)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    best = sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path, best_so_far=True)
    assert best.history.train.shape == (1, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # it has hardly been trained
        with pytest.warns(ScorefoldWarning, match="not finished"):
            assert np.isfinite(best.sample(np.zeros((1, 10)), draws=5).theta).all()
    assert bits(sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)) == bits(uninterrupted)


def interrupted_in_round(monkeypatch, number):
    """Somebody presses Ctrl-C in this round, of all trainings from now."""
    real = loop._one_round

    def one_round(program, state):
        if state.round == number - 1:
            raise KeyboardInterrupt
        return real(program, state)

    monkeypatch.setattr(loop, "_one_round", one_round)


def test_ctrl_c_without_a_checkpoint_keeps_the_best_networks_so_far(sims, tmp_path, monkeypatch):
    interrupted_in_round(monkeypatch, 8)
    with pytest.raises(sf.errors.Interrupted, match=r"after round 7 of at most 30; `posterior\(\)` of this .*best") as stopped:
        sf.fit(sims, METHOD, seed=1)
    best = stopped.value.posterior()
    with pytest.raises(sf.errors.Interrupted):
        sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path, checkpoint_seconds=0)
    assert bits(best) == bits(sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path, best_so_far=True))
    assert not best.made.finished
    with pytest.raises(sf.errors.Interrupted, match="after round 7") as stopped:
        sf.fit_many([sims, sims], METHOD, seeds=[1, 2])
    assert [one.made.seed for one in stopped.value.posterior()] == [1, 2]
    interrupted_in_round(monkeypatch, 1)
    with pytest.raises(sf.errors.Interrupted, match="before its first round was done") as stopped:
        sf.fit(sims, METHOD, seed=1)
    assert stopped.value.posterior is None


def test_a_stop_on_a_full_disk_does_not_say_that_nothing_is_lost(sims, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(model, "write", full)
    monkeypatch.setattr(module.Watch, "stopped", [signal.SIGINT])
    with (
        pytest.warns(ScorefoldWarning, match="no checkpoint could be written"),
        pytest.raises(sf.errors.Interrupted, match="what the checkpoint before does not have is lost"),
    ):
        sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)


def test_a_second_signal_is_not_waited_for():
    with module._signals() as caught:
        os.kill(os.getpid(), signal.SIGINT)
        assert caught == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.full
def test_in_a_thread_there_are_no_signals(sims, uninterrupted, tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(sf.fit(sims, METHOD, seed=1, checkpoint=tmp_path)))
    thread.start()
    thread.join()
    assert bits(results[0]) == bits(uninterrupted)


# Another training is refused


@pytest.fixture(scope="module")
def kept(sims, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    sf.fit(sims, METHOD, seed=1, checkpoint=folder)
    return folder


OTHERS = {
    "seed": ({"seed": 2}, r"differs in seeds: \[1\] then, \[2\] now"),
    "method": ({"method": dataclasses.replace(METHOD, width=16)}, "differs in method: .*then.*now"),
    "steps": ({"method": dataclasses.replace(METHOD, training=sf.Training(members=1))}, "differs in method"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_training_is_refused(sims, kept, what):
    changes, message = OTHERS[what]
    with pytest.raises(ScorefoldError, match=message) as caught:
        sf.fit(**{"sims": sims, "method": METHOD, "seed": 1, **changes}, checkpoint=kept)
    assert "Use another folder" in str(caught.value)


def test_other_simulations_are_refused(sims, kept):
    x = sims.x.copy()
    x[0, 0, 0] = np.nextafter(x[0, 0, 0], 1)
    with pytest.raises(ScorefoldError, match="differs in simulations"):
        sf.fit(sims._replace(x=x), METHOD, seed=1, checkpoint=kept)
    task = tasks.get("gaussian")
    with pytest.raises(ScorefoldError, match=r"differs in simulations.*; shape: "):
        sf.fit(sf.simulate(task.prior, task.simulator, 210), METHOD, seed=1, checkpoint=kept)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"checkpoint": 3}, "the path of a folder"),
        ({"checkpoint": "here", "checkpoint_seconds": -1}, "checkpoint_seconds ≥ 0"),
        ({"checkpoint": "here", "checkpoint_seconds": "often"}, "checkpoint_seconds ≥ 0"),
        ({"checkpoint": "here", "checkpoint_seconds": float("nan")}, "checkpoint_seconds ≥ 0"),
        ({"checkpoint": "here", "best_so_far": 1}, "best_so_far to be True or False"),
        ({"checkpoint": "here", "best_so_far": True}, "there is none"),
        ({"best_so_far": True}, "only with checkpoint"),
        ({"checkpoint": __file__}, "expected to keep checkpoints in .*A file is in its place: name another folder"),
    ],
)
def test_bad_settings(sims, unchecked, tmp_path, monkeypatch, how, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScorefoldError, match=message):
        sf.fit(sims, METHOD, **how)


# Pieces


def state(round, size=3):
    arrays = {
        "runs": np.arange(3.0, dtype=np.float32)[:size] + round,
        "losses": {"train": np.full((2, round), np.nan, np.float32)},
    }
    return State(round, False, arrays)


LIKE = {"runs": jax.numpy.zeros(3), "losses": {"train": np.zeros((2, 0), np.float32)}}


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"a": 1})
    for round in (4, 5):
        checkpoint.write(state(round))
    assert checkpoint.read(LIKE).round == 5
    weights = tmp_path / "round-000005" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.warns(ScorefoldWarning, match="round-000005 is passed over"):
        found = checkpoint.read(LIKE)
    assert (found.round, found.done) == (4, False)
    assert np.array_equal(found.arrays["runs"], [4, 5, 6])
    assert isinstance(found.arrays["runs"], jax.Array)
    assert found.arrays["losses"]["train"].shape == (2, 4)


def test_arrays_of_another_shape_are_passed_over(tmp_path):
    checkpoint = Checkpoint(tmp_path, {})
    checkpoint.write(state(4, size=2))
    with pytest.warns(ScorefoldWarning, match="of shape"):
        assert checkpoint.read(LIKE) is None


def test_a_full_disk_does_not_stop_training(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "no space left")

    monkeypatch.setattr(model, "write_folder", full)
    with pytest.warns(ScorefoldWarning, match="no checkpoint could be written.*no space left"):
        Checkpoint(tmp_path, {}).write(state(1))


def test_one_training_at_a_time_and_left_overs_are_swept(tmp_path):
    checkpoint = Checkpoint(tmp_path, {})
    left_over = tmp_path / ".round-000003.0123456789abcdef.part"
    left_over.mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    with checkpoint.session():
        assert not left_over.exists()
        with pytest.raises(ScorefoldError, match="another training uses"), checkpoint.session():
            pass
    with checkpoint.session():
        pass
    assert (tmp_path / "notes.txt").exists()


def test_nothing_is_written_before_it_is_time(tmp_path):
    with Checkpoint(tmp_path, {}, seconds=1e6).session() as watch:
        watch.after_round(state(1), 9)
        assert not (tmp_path / "round-000001").exists()
        watch.after_round(state(2)._replace(done=True), 9)
        assert model.holds(tmp_path / "round-000002", FORMAT)


# Kills

SCRIPT = """
import sys
import scorefold as sf
from scorefold import tasks
task = tasks.get("gaussian")
sims = sf.simulate(task.prior, task.simulator, 200)
training = sf.Training(members=1, steps=50 * int(sys.argv[3]), learning_rates=(1e-3, 1e-2), patience=999)
method = sf.NPSE(width=8, depth=1, base=False, correction=False, training=training)
posterior = sf.fit(sims, method, seed=1, checkpoint=sys.argv[1], checkpoint_seconds=0)
posterior.save(sys.argv[2])
"""


def run(tmp_path, name, rounds):
    kept, saved = tmp_path / name, tmp_path / f"{name} model"
    # A program that was compiled once is taken from the cache, so that a start is quick.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", SCRIPT, str(kept), str(saved), str(rounds)]
    return subprocess.Popen(command, env={**os.environ, **cache}, stderr=subprocess.DEVNULL), kept, saved


def rounds_in(kept):
    return max((int(p.name[6:]) for p in kept.glob("round-*")), default=0)


def killed_and_resumed(tmp_path, kills, rounds, seed):
    """The model of a training that was killed so many times at random moments, and when."""
    rng, times = np.random.default_rng(seed), []
    for _ in range(kills):
        process, kept, _ = run(tmp_path, "killed", rounds)
        start, began = rounds_in(kept), time.monotonic()
        while rounds_in(kept) == start and process.poll() is None and time.monotonic() - began < 120:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.08))
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL, "it was done before it could be killed"
        times.append(rounds_in(kept))
    process, _, saved = run(tmp_path, "killed", rounds)
    assert process.wait(timeout=900) == 0
    assert times == sorted(times)
    assert times[-1] < rounds
    return saved, times


@pytest.mark.full  # test_goes_on_to_the_same_bits is killed in the same process
def test_a_kill(uninterrupted, tmp_path):
    saved, _ = killed_and_resumed(tmp_path, 1, ROUNDS, seed=0)
    alone = uninterrupted.save(tmp_path / "alone")
    for name in ("weights.safetensors", "config.json"):
        assert (saved / name).read_bytes() == (alone / name).read_bytes()


@pytest.mark.full
def test_twenty_kills(tmp_path, figure):
    process, _, alone = run(tmp_path, "alone", 300)
    assert process.wait(timeout=600) == 0
    saved, times = killed_and_resumed(tmp_path, 20, 300, seed=1)
    figure(f"killed after rounds {', '.join(map(str, times))} of 300")
    for name in ("weights.safetensors", "config.json"):
        assert (saved / name).read_bytes() == (alone / name).read_bytes()
    left = sorted(p.name for p in (tmp_path / "killed").iterdir())
    assert left == ["lock", "round-000299", "round-000300"]
