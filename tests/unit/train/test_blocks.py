"""Simulations larger than memory: what is held and the blocks that stream by have what they should. Nothing is trained."""

import numpy as np
import pytest
from streamed import CALLS, PART, TASK, TRAINING

import scorefold as sf
from scorefold.simulation.pieces import let_go
from scorefold.simulation.simulations import cut, split
from scorefold.train import training_set
from scorefold.train.training_set import FOLDS, Stream


@pytest.mark.false_failure(0)
def test_an_epoch_of_blocks_has_every_case_once_and_equal_folds():
    fold = np.random.default_rng(0).integers(0, FOLDS, 1_000)
    stream = Stream(np.asarray, fold, 10, seed=3)
    fewest = int(np.bincount(fold).min())
    epoch = [stream.rows(number) for number in range(fewest // 10)]
    for rows in epoch:
        assert rows.shape == (FOLDS, 10)
        assert (fold[rows] == np.arange(FOLDS)[:, None]).all()
        assert (np.diff(rows, axis=1) > 0).all()
    seen = np.concatenate(epoch, axis=1).ravel()
    assert len(np.unique(seen)) == len(seen) == fewest // 10 * 10 * FOLDS
    following = stream.rows(fewest // 10)
    assert not np.array_equal(following, epoch[0])
    assert np.array_equal(following, Stream(np.asarray, fold, 10, seed=3).rows(fewest // 10))
    assert not np.array_equal(epoch[0], Stream(np.asarray, fold, 10, seed=4).rows(0))
    assert (stream.unseen(7).reshape(7, FOLDS, 10).all(axis=2).argmax(axis=1) == np.arange(7) % FOLDS).all()


@pytest.mark.parametrize("m", [1, 2])
def test_a_training_set_is_what_was_simulated(streamed_sims, m):
    whole = split(streamed_sims._replace(x=np.array(streamed_sims.x)), m)
    known = {x.tobytes(): u for x, u in zip(whole.x, whole.prior.to_normal(whole.theta), strict=True)}
    (held,) = training_set.training_sets([streamed_sims], m, TRAINING, [5])
    blocks = [held.stream.block(number) for number in (0, 1, 40)]
    for u, x, sizes, _ in [held.cases, *blocks]:
        assert len(x) == 400 * 2 // m
        assert x.nbytes <= PART
        for one in range(len(x)):
            assert u[one] == pytest.approx(known[np.asarray(x[one]).tobytes()], abs=1e-6)
        assert (np.asarray(x)[np.arange(m) >= np.asarray(sizes)[:, None]] == 0).all()
    assert (np.bincount(held.fold) == 80 * 2 // m).all()


def test_a_prior_from_draws_joins_the_stream(little_memory, tmp_path):
    prior = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(6_000, 10)))
    sims = sf.simulate(prior, TASK.simulator, CALLS, store=tmp_path / "sims")
    (held,) = training_set.training_sets([sims], 1, TRAINING, [0], prior_too=True)
    alone = held.sizes == 0
    assert 0 < alone.sum() < len(alone)
    assert (held.x[alone] == 0).all()
    assert (held.x[~alone] != 0).any(axis=(1, 2)).all()
    draws = {row.tobytes() for row in prior.draws_normal[:CALLS]}
    assert all(row.tobytes() in draws for row in held.u[alone])
    block = held.stream.block(2)
    assert ((block.x == 0).all(axis=(1, 2)) == (block.sizes == 0)).all()


def test_sets_are_cut_when_they_are_read(streamed_sims):
    parts = cut(streamed_sims, 1)
    whole = split(streamed_sims, 1)
    assert len(parts.case) == streamed_sims.sizes.sum() == len(whole.x)
    rows = np.array([3, 700, len(whole.x) - 1])
    np.testing.assert_array_equal(parts.take(rows).x, whole.x[rows])
    np.testing.assert_array_equal(parts.take(rows).origin, whole.origin[rows])


def test_letting_go_loses_nothing(tmp_path):
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(5_000,))
    mapped[:] = 3
    let_go(np.asarray(mapped).reshape(50, 100)[3:])
    assert (mapped == 3).all()
    private = np.memmap(tmp_path / "a", np.float32, "c", shape=(5_000,))
    private[:] = 4
    let_go(private)
    assert (private == 4).all()
