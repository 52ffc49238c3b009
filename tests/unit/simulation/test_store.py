"""The store: what goes in comes out, in whatever order it came; damage is found; several writers do no harm."""

import hashlib
import itertools
import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scorefold.errors import FolderVanished, ScorefoldError, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.simulation.calls import plan
from scorefold.simulation.outcome import NOT_FINITE, OK, STATUS, Block
from scorefold.simulation.simulations import Results, gather
from scorefold.simulation.store import contents, description
from scorefold.simulation.store import store as module
from scorefold.simulation.store.fingerprint import fingerprint
from scorefold.simulation.store.store import Store

PRIOR = Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})
SIMULATOR = {"name": "f", "sha256": "0" * 64}
SHAPE = (3,)
ROWS = 16
X = np.random.default_rng(0).normal(size=(1000, *SHAPE)).astype(np.float32)
BAD = np.random.default_rng(1).uniform(size=1000) < 0.1


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(description, "MOST_ROWS", ROWS)
    monkeypatch.setattr(contents, "SMALL_SHARDS", 5)


def about(prior=PRIOR, simulator=SIMULATOR, seed=5, set_size=2, shape=SHAPE, version="0"):
    return description.describe(prior, simulator, seed, set_size, shape, version)


def create(path):
    return Store.create(path, PRIOR, about())


def block(start, stop):
    status = np.where(BAD[start:stop], NOT_FINITE, OK).astype(np.uint8)
    x = np.where(BAD[start:stop, None], np.float32(0), X[start:stop])
    return Block(start, x, status, np.arange(start, stop, dtype=np.float32), ())


PLANNED = plan(PRIOR, 1000, 2, 5)


def add(store, start, stop):
    store.add(block(start, stop), PLANNED.theta[PLANNED.case[start:stop]], PLANNED.case[start:stop])


def digest(path):
    files = (file for file in sorted(Path(path).rglob("*")) if file.is_file() and file.parent.name != "runtimes")
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def filled(path, stop=100):
    store = create(path)
    add(store, 0, stop)
    store.finish(stop)
    return store


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Digests of stores filled at one go, by where they stop."""
    known = {}

    def of(stop):
        if stop not in known:
            path = tmp_path_factory.mktemp("whole")
            filled(path, stop)
            known[stop] = digest(path)
        return known[stop]

    return of


# What goes in comes out


def test_rows_come_out_as_they_went_in(tmp_path):
    filled(tmp_path)
    at = 0
    for start, part in Store.open(tmp_path).read():
        rows = slice(start, start + len(part["status"]))
        assert start == at
        np.testing.assert_array_equal(part["x"], np.where(BAD[rows, None], 0, X[rows]))
        np.testing.assert_array_equal(part["theta"], PLANNED.theta[PLANNED.case[rows]])
        np.testing.assert_array_equal(part["case"], PLANNED.case[rows])
        np.testing.assert_array_equal(part["status"] == OK, ~BAD[rows])
        at = rows.stop
    assert at == 100


def test_names_say_range_and_hash(tmp_path):
    filled(tmp_path, 40)
    names = sorted(os.listdir(tmp_path / "shards"))
    assert [name[:25] for name in names] == [
        "000000000000-000000000016",
        "000000000016-000000000032",
        "000000000032-000000000040",
    ]
    for name in names:
        assert hashlib.sha256((tmp_path / "shards" / name).read_bytes()).hexdigest() == name[26:90]


def test_rows_to_a_shard_follow_from_the_shape(monkeypatch):
    monkeypatch.setattr(description, "MOST_ROWS", 16_384)
    assert about()["rows"] == 16_384
    assert about(shape=(1000,))["rows"] == 4_096
    assert about(shape=(10**9,))["rows"] == 16


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_order_and_cuts_do_not_matter(tmp_path_factory, whole, data):
    stop = data.draw(st.sampled_from([100, 96, 33]))
    cuts = sorted({0, stop, *data.draw(st.lists(st.integers(1, stop - 1), max_size=12))})
    pieces = data.draw(st.permutations(list(itertools.pairwise(cuts))))
    path = tmp_path_factory.mktemp("store")
    store = create(path)
    for start, end in pieces:
        if data.draw(st.booleans()):
            store = Store.open(path)  # as after a kill
        add(store, start, end)
        if data.draw(st.integers(0, 3)) == 0:  # done twice, by another writer
            add(create(path), max(0, start - 3), end)
    store.finish(stop)
    assert digest(path) == whole(stop)
    assert store.missing(stop) == []
    np.testing.assert_array_equal(store.runtimes(0, stop), np.arange(stop))


def test_runtimes_are_not_lost_in_the_gaps_of_a_merged_file(tmp_path):
    store = create(tmp_path)
    for start, stop in [(4, 5), (5, 6), (6, 7), (7, 100), (0, 1)]:
        add(store, start, stop)
        add(create(tmp_path), max(0, start - 3), stop)
    add(store, 1, 4)
    store.finish(100)
    np.testing.assert_array_equal(store.runtimes(0, 100), np.arange(100))


@pytest.mark.parametrize("steps", [(20, 50, 100), (16, 32, 100), (99, 100)])
def test_a_larger_budget_continues_a_smaller_one(tmp_path, whole, steps):
    at = 0
    for stop in steps:
        store = create(tmp_path)
        assert sum(b - a for a, b in store.missing(stop)) == stop - at
        add(store, at, stop)
        store.finish(stop)
        assert digest(tmp_path) == whole(stop)
        at = stop


def test_what_is_missing(tmp_path):
    store = create(tmp_path)
    assert store.missing(40) == [(0, 16), (16, 32), (32, 40)]
    add(store, 3, 5)
    add(store, 20, 36)
    assert store.missing(40) == [(0, 3), (5, 16), (16, 20), (36, 40)]
    assert store.missing(34) == [(0, 3), (5, 16), (16, 20)]
    assert store.missing(4) == [(0, 3)]
    assert store.stop() == 36


def test_many_small_shards_are_merged_early(tmp_path):
    store = create(tmp_path)
    for row in range(0, 14):
        add(store, row, row + 1)
        assert len(os.listdir(tmp_path / "shards")) <= contents.SMALL_SHARDS


def test_cases_are_those_of_memory(tmp_path, monkeypatch):
    store = filled(tmp_path)
    status = np.where(BAD[:100], NOT_FINITE, OK)
    wanted = gather(PRIOR, plan(PRIOR, 100, 2, 5), Results(status, [(0, X[:100])], SHAPE))
    for limit in (module.IN_MEMORY, 0):
        monkeypatch.setattr(module, "IN_MEMORY", limit)
        sims = store.simulations()
        assert isinstance(sims.x, np.memmap) == (limit == 0)
        for field in ("theta", "x", "sizes", "origin"):
            np.testing.assert_array_equal(getattr(sims, field), getattr(wanted, field))
        assert (sims.budget, sims.failed, sims.seed, sims.set_size) == (100, BAD[:100].sum(), 5, 2)
        assert sims.prior == PRIOR
        assert [one.index for one in sims.failures] == np.flatnonzero(BAD[:100]).tolist()
        assert {(one.status, one.text) for one in sims.failures} == {("not finite", "in an earlier run, which said how")}
    assert store.counts()["not finite"] == BAD[:100].sum()
    assert sum(store.counts().values()) == 100
    assert not list((tmp_path / "tmp").iterdir())


def test_missing_simulations_are_no_cases(tmp_path):
    store = create(tmp_path)
    with pytest.raises(ScorefoldError, match="it is empty"):
        store.simulations()
    add(store, 20, 60)
    with pytest.raises(ScorefoldError, match=r"expected 60 simulations .*; 20 are missing, the first of them number 0"):
        store.simulations()


def test_a_prior_from_draws_keeps_its_draws(tmp_path):
    prior = Prior.from_draws(np.random.default_rng(0).normal(size=(6_000, 2)))
    Store.create(tmp_path, prior, about(prior))
    again = Store.open(tmp_path).prior
    np.testing.assert_array_equal(again.sample(100, seed=1), prior.sample(100, seed=1))
    (draws,) = tmp_path.glob("prior-*")
    draws.write_bytes(draws.read_bytes()[:-8])
    with pytest.raises(ScorefoldError, match="expected the prior's draws in"):
        Store.open(tmp_path)


# Damage


def first_shard(path):
    return sorted((path / "shards").iterdir())[0]


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def empty(file):
    file.write_bytes(b"")


def grown(file):
    file.write_bytes(file.read_bytes() + b"\0")


def flipped(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def noise(file):
    file.write_bytes(os.urandom(500))


def renamed(file):
    file.rename(file.with_name("other.safetensors"))


def moved(file):
    file.rename(file.with_name(file.name.replace("000000000000-000000000016", "000000000016-000000000032")))


def linked(file):
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def folder(file):
    file.unlink()
    file.mkdir()


def rewritten(change):
    def rewrite(file):
        part = {key: value.copy() for key, value in safetensors.numpy.load(file.read_bytes()).items()}
        content = safetensors.numpy.save(change(part), metadata={"start": "0"})
        file.unlink()
        file.with_name(f"{file.name[:26]}{hashlib.sha256(content).hexdigest()}.safetensors").write_bytes(content)

    return rewrite


DAMAGE = {
    "cut": (cut, "bytes and has"),
    "empty": (empty, "no readable header"),
    "grown": (grown, "bytes and has"),
    "flipped": (flipped, "not the one in its name"),
    "noise": (noise, "header|bytes"),
    "renamed": (renamed, "name is not a shard's"),
    "linked": (linked, "not a plain file"),
    "folder": (folder, "not a plain file"),
    "another key": (rewritten(lambda part: {**part, "more": np.zeros(3)}), "should hold"),
    "another type": (rewritten(lambda part: {**part, "x": part["x"].astype(np.float64)}), "should hold"),
    "fewer rows": (rewritten(lambda part: {key: value[:-1] for key, value in part.items()}), "should hold"),
    "no such status": (rewritten(lambda part: {**part, "status": np.full_like(part["status"], 77)}), "cannot be"),
    "not finite": (rewritten(lambda part: {**part, "x": part["x"] * np.float32(np.nan)}), "cannot be"),
}


@pytest.mark.parametrize("key", DAMAGE)
def test_damage_is_found_set_aside_and_made_good(tmp_path, whole, key):
    damage, message = DAMAGE[key]
    filled(tmp_path)
    damage(first_shard(tmp_path))
    with pytest.warns(ScorefoldWarning, match=f"1 of the files .* damaged and were moved to .*({message})"):
        store = Store.open(tmp_path)
    assert store.missing(100) == [(0, 16)]
    assert len(os.listdir(tmp_path / "quarantine")) == 1
    add(store, 0, 16)
    store.finish(100)
    assert {name: sha for name, sha in digest(tmp_path).items() if name.startswith("shards")} == {
        name: sha for name, sha in whole(100).items() if name.startswith("shards")
    }


def test_a_shard_under_the_name_of_another_is_damage(tmp_path):
    filled(tmp_path)
    moved(first_shard(tmp_path))
    with pytest.warns(ScorefoldWarning, match="should begin with simulation 16 and says '0'"):
        assert Store.open(tmp_path).missing(100) == [(0, 16)]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_content_makes_opening_fail(tmp_path_factory, content, at):
    path = tmp_path_factory.mktemp("store")
    filled(path, 20)
    file = first_shard(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:at] + content + whole[at + len(content) :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)
        store = Store.open(path)
    assert store.missing(20) in ([], [(0, 16)])
    assert bool(store.quarantined) == (store.missing(20) != [])


def test_leftovers_of_killed_writers_are_swept(tmp_path, whole):
    filled(tmp_path)
    (tmp_path / "tmp" / "half").write_bytes(b"half a shard")
    Store.open(tmp_path)
    assert digest(tmp_path) == whole(100)


# Several writers


def test_a_writer_reads_what_another_has_merged(tmp_path):
    mine, other = create(tmp_path), create(tmp_path)
    for row in range(0, 16, 4):
        add(mine, row, row + 3)
    other.scan()
    for row in range(3, 16, 4):
        add(other, row, row + 1)  # completes the range and merges it
    assert len(os.listdir(tmp_path / "shards")) == 1
    ((start, part),) = mine.read(16)
    assert start == 0
    np.testing.assert_array_equal(part["x"], block(0, 16).x)


def test_of_two_different_accounts_one_is_kept(tmp_path):
    """A simulation that timed out for one writer and not for the other."""
    for order in ((0, 1), (1, 0)):
        path = tmp_path / str(order[0])
        stores = [create(path), create(path)]
        for which in order:
            one = block(0, 16)
            one.status[0] = NOT_FINITE if which else OK
            one.x[0] = 0
            stores[which].add(one, PLANNED.theta[PLANNED.case[:16]], PLANNED.case[:16])
        stores[0].finish(16)
        assert len(os.listdir(path / "shards")) == 1
    assert digest(tmp_path / "0") == digest(tmp_path / "1")


# The description


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 6}, r"seed\n    in the store: 5\n    now:          6"),
        ({"set_size": 3}, r"set_size\n    in the store: 2\n    now:          3"),
        ({"shape": (4,)}, r"shape\n    in the store: \[3\]\n    now:          \[4\]"),
        (
            {"simulator": {"name": "g", "sha256": "1" * 64}},
            r"simulator\n    in the store: f \(code 0{12}…\)\n    now:          g \(code 1",
        ),
        ({"prior": Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 3)})}, r"prior of b\n .*scale=2\.0.*\n .*scale=3\.0"),
        (
            {"prior": Prior({"a": stats.norm(0, 1), "c": stats.uniform(0, 2)})},
            r"prior of b\n.*\n.*no such parameter\n  prior of c",
        ),
    ],
)
def test_another_run_is_refused_with_the_difference(tmp_path, change, message):
    filled(tmp_path)
    before = digest(tmp_path)
    with pytest.raises(ScorefoldError, match=message):
        Store.create(tmp_path, change.get("prior", PRIOR), about(**change))
    assert digest(tmp_path) == before


def test_another_version_or_name_may_continue(tmp_path):
    filled(tmp_path)
    Store.create(tmp_path, PRIOR, about(version="99", simulator={**SIMULATOR, "name": "renamed"}))
    assert json.loads((tmp_path / "description.json").read_text())["scorefold"] == "0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=2), "; schema cannot be read"),
        (lambda d: d.update(more=1), "; more cannot be read"),
        (lambda d: d.pop("seed"), "; seed cannot be read"),
        (lambda d: d.update(seed=True), "; seed cannot"),
        (lambda d: d.update(rows=0), "counts and shapes"),
        (lambda d: d.update(rows=2**31), "counts and shapes"),
        (lambda d: d.update(set_size=10**30), "counts and shapes"),
        (lambda d: d.update(shape=[-1]), "counts and shapes"),
        (lambda d: d.update(shape=["3"]), "counts and shapes"),
        (lambda d: d["prior"].update(kind="pickle"), "the kinds are"),
    ],
)
def test_a_changed_description_is_refused(tmp_path, change, message):
    filled(tmp_path)
    file = tmp_path / "description.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ScorefoldError, match=message):
        Store.open(tmp_path)


def edited(path, **change):
    file = path / "description.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 6}, "other parameters than follow from the prior, the seed and the set size"),
        ({"set_size": 3}, "other parameters than follow"),
        ({"prior": about(prior=Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2.1)}))["prior"]}, "other parameters"),
        ({"prior": about(prior=Prior({"a": stats.norm(0, 1)}))["prior"]}, "should hold"),
        ({"shape": [4]}, "should hold"),
        ({"shape": [3, 1]}, "should hold"),
        ({"rows": 8}, "across a multiple of 8"),
    ],
)
def test_an_edited_description_is_an_error_and_moves_nothing(tmp_path, change, message):
    filled(tmp_path)
    edited(tmp_path, **change)
    before = digest(tmp_path)
    with pytest.raises(ScorefoldError, match=f"agree with description.json.*{message}.*Nothing was moved"):
        Store.open(tmp_path)
    assert digest(tmp_path) == before


def test_a_shard_with_other_parameters_is_an_error(tmp_path):
    """Its hash is right, so that it is no damage."""
    filled(tmp_path)
    rewritten(lambda part: {**part, "theta": part["theta"] + 1e-3})(first_shard(tmp_path))
    before = digest(tmp_path)
    with pytest.raises(ScorefoldError, match=r"1 of 7 do not and are whole: 000000000000-.*other parameters"):
        Store.open(tmp_path)
    assert digest(tmp_path) == before


def test_a_number_of_simulations_beyond_any_is_an_error(tmp_path):
    """Before parameters are drawn for all of them."""
    filled(tmp_path)
    start = 16 * 10**10
    part = safetensors.numpy.load(first_shard(tmp_path).read_bytes())
    content = safetensors.numpy.save(part, metadata={"start": str(start)})
    name = f"{start:012d}-{start + 16:012d}-{hashlib.sha256(content).hexdigest()}.safetensors"
    (tmp_path / "shards" / name).write_bytes(content)
    with pytest.raises(ScorefoldError, match="and no store to more than 1,000,000,000"):
        Store.open(tmp_path)


def test_parameters_that_were_rounded_otherwise_are_the_same(tmp_path):
    filled(tmp_path)
    rewritten(lambda part: {**part, "theta": part["theta"] * (1 + 1e-12)})(first_shard(tmp_path))
    assert Store.open(tmp_path).missing(100) == []


def test_a_simulator_that_looks_different_may_be_accepted(tmp_path):
    filled(tmp_path)

    def written_anew(theta, rng):
        return theta

    new = about(simulator=fingerprint(written_anew))
    with pytest.raises(ScorefoldError, match=r"If both simulators compute the same, sf\.Store\.open\(.*\)\.accept"):
        Store.create(tmp_path, PRIOR, new)
    Store.open(tmp_path).accept(written_anew)
    assert Store.create(tmp_path, PRIOR, new).missing(100) == []
    with pytest.raises(ScorefoldError, match="seed") as error:
        Store.create(tmp_path, PRIOR, new | {"seed": 9})
    assert "accept" not in str(error.value)


def test_files_that_vanish_are_missed(tmp_path):
    """Never are zeros returned for them."""
    store = filled(tmp_path)
    calls, status = plan(PRIOR, 100, 2, 5), store.statuses(100)
    first_shard(tmp_path).unlink()
    with pytest.raises(FolderVanished, match="some are no longer there"):
        store.gather(calls, status)
    shutil.rmtree(tmp_path)
    with pytest.raises(FolderVanished, match="it is gone"):
        list(store.read())
    with pytest.raises(FolderVanished, match="write to the store"):
        add(store, 100, 110)
    assert not tmp_path.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_an_unreadable_description_is_refused(tmp_path, text):
    (tmp_path / "description.json").write_text(text)
    with pytest.raises(ScorefoldError, match="expected a"):
        Store.open(tmp_path)


def test_other_folders_are_left_alone(tmp_path):
    with pytest.raises(ScorefoldError, match=r"found no description\.json"):
        Store.open(tmp_path / "nowhere")
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ScorefoldError, match="a folder with other files"):
        create(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_every_status_has_a_name():
    assert STATUS[OK] == "ok"
    assert len(set(STATUS)) == 7


@pytest.mark.parametrize("path", [3, None, b"store", "a\0b", ""])
@pytest.mark.usefixtures("unchecked")
def test_paths_that_are_none(path):
    with pytest.raises(ScorefoldError, match="expected the path of a folder"):
        Store.open(path)


@pytest.mark.parametrize(
    ("stop", "message"), [(-1, "got -1"), (1.5, "got 1.5"), ("x", "got 'x'"), (2**70, "first of them number 20")]
)
@pytest.mark.usefixtures("unchecked")
def test_numbers_of_simulations_that_are_none(tmp_path, stop, message):
    store = filled(tmp_path, 20)
    with pytest.raises(ScorefoldError, match=message):
        store.simulations(stop)
