"""Models on disk: what is saved comes back bit for bit, and what was changed is refused."""

import dataclasses
import hashlib
import json
import os
import pickle
import time
from contextlib import nullcontext
from pathlib import Path

import equinox as eqx
import hostile_folders
import jax
import numpy as np
import pytest
from untrained import CASES, loaded, untrained

import scorefold as sf
from scorefold.disk import folder as model
from scorefold.disk import whole_folder as commit
from scorefold.errors import ModelError, ScorefoldError
from scorefold.methods import load as artifact
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import FORMAT
from scorefold.score.ensemble import fewest_numbers

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CONFIG, WEIGHTS = "config.json", "weights.safetensors"


def same(one, other):
    """The same structure with the same bits."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# Round trips


@pytest.mark.parametrize("case", CASES)
def test_everything_comes_back(case, tmp_path):
    posterior = untrained(case)
    assert posterior.save(tmp_path / "model") == tmp_path / "model"
    back = loaded(case, tmp_path / "model")
    assert type(back) is ComposedPosterior
    assert (back.prior, back.method, back.shape, back.table, back.made) == (
        posterior.prior,
        posterior.method,
        posterior.shape,
        posterior.table,
        posterior.made,
    )
    if case != "own embedding":  # its functions are made anew
        same(back.ensemble, posterior.ensemble)
    for a, b in zip(jax.tree.leaves(back.ensemble), jax.tree.leaves(posterior.ensemble), strict=True):
        assert np.array_equal(a, b)
    same(back.history, posterior.history)
    assert np.array_equal(back.prior.sample(5, 0), posterior.prior.sample(5, 0))
    back.save(tmp_path / "again")
    for name in (CONFIG, WEIGHTS):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_every_class_of_settings_can_be_loaded():
    public = [getattr(sf, name) for name in sf.__all__]
    written = {
        kind.__name__: kind
        for kind in public
        if dataclasses.is_dataclass(kind) and kind not in (sf.Draws, sf.Batched, sf.Diagnosis)
    }
    assert written == artifact.SETTINGS


def test_the_lower_bound_of_an_architecture():
    for case, (method, prior, shape, largest) in CASES.items():
        like = untrained(case).ensemble
        numbers = sum(v.size for v in jax.tree.leaves(like))
        sizes = dataclasses.replace(method, width=4, depth=1).network_shape(2, prior.has_density, shape, largest)
        assert 0.01 * numbers < fewest_numbers(sizes, 2) <= numbers


# Saving


def test_a_model_is_replaced_only_when_asked(tmp_path):
    posterior, other = untrained("f-npse"), untrained("npse")
    folder = posterior.save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"there is a model\. Write save\(folder, overwrite=True"):
        other.save(folder)
    assert sf.load(folder).method == posterior.method
    other.save(folder, overwrite=True)
    assert sf.load(folder).method == other.method
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("what", ["file", "folder", "empty folder", "link", "broken link", "model with more"])
def test_what_is_no_model_is_never_replaced(tmp_path, what):
    place = tmp_path / "place"
    if what == "file":
        place.write_text("mine")
    elif what == "folder":
        place.mkdir()
        (place / "thesis.tex").write_text("mine")
    elif what == "empty folder":
        place.mkdir()
    elif what == "model with more":
        untrained("f-npse").save(place)
        (place / "notes.txt").write_text("mine")
    else:
        place.symlink_to(tmp_path / ("nowhere" if what == "broken link" else "."))
    before = sorted(p.name for p in place.iterdir()) if place.is_dir() else None
    with pytest.raises(ModelError, match="something else, which is kept"):
        untrained("f-npse").save(place, overwrite=True)
    assert before == (sorted(p.name for p in place.iterdir()) if place.is_dir() else None)


@pytest.mark.parametrize("folder", [None, 3, "", "a\0b", b"bytes", ["a"]])
def test_paths_that_are_none(unchecked, folder):
    for act in (untrained("f-npse").save, sf.load):
        with pytest.raises(ScorefoldError, match="expected the path of a folder"):
            act(folder)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="could not be written"):
        untrained("f-npse").save(tmp_path / "file" / "model")


@pytest.mark.parametrize("step", range(7))
def test_a_crash_while_writing_leaves_the_old_model(tmp_path, monkeypatch, step):
    """Every fsync and rename in turn fails: the folder holds the old model or, once it has its name, the new one."""
    old, new = untrained("f-npse"), untrained("npse")
    folder = old.save(tmp_path / "model")
    calls = iter(range(100))

    def failing(function):
        def call(*args, **kwargs):
            if next(calls) == step:
                raise OSError(28, "no space left")
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(commit.os, "fsync", failing(os.fsync))
    monkeypatch.setattr(Path, "rename", failing(Path.rename))
    with pytest.raises(ModelError, match="no space left") if step < 6 else nullcontext():
        new.save(folder, overwrite=True)
    monkeypatch.undo()
    assert sf.load(folder).method == (old.method if step < 5 else new.method)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# Hostile folders, one by one


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = untrained("pf-npse").save(tmp_path_factory.mktemp("saved") / "model")
    return {name: (folder / name).read_bytes() for name in (CONFIG, WEIGHTS)}


def written(folder, files, config=None, weights=None, agree=True):
    """The model with another configuration (a function of the old one) or other weights, size and SHA-256 right again."""
    folder.mkdir()
    weights = files[WEIGHTS] if weights is None else weights
    value = json.loads(files[CONFIG])
    value = value if config is None else config(value) or value
    if agree:
        value["weights"] = {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    (folder / CONFIG).write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    (folder / WEIGHTS).write_bytes(weights)
    return folder


def put(*path_and_value):
    *path, value = path_and_value

    def change(config):
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    return change


CONFIGS = {
    "another format": (put("format", "pickle"), "about something else"),
    "a newer version": (put("version", 2), "version 2, written by a newer scorefold. Update scorefold"),
    "version 0": (put("version", 0), "the version to be a whole number from 1"),
    "version True": (put("version", True), "got True"),
    "an unknown key": (put("extra", 1), "unknown 'extra'"),
    "an unknown kind": (put("kind", "os.system"), "expected the kind of posterior to be one of abc, composed"),
    "an unknown method": (put("method", "is", "eval"), "expected the method to be one of"),
    "a rule as the method": (put("method", {"is": "Gauss", "pilots": 0}), "expected a method; got Gauss"),
    "no method": (put("method", None), "expected a method; got None"),
    "a setting of another type": (put("method", "width", "16"), "expected width of NPSE to be a whole number; got '16'"),
    "a setting that cannot be": (put("method", "width", 7), "an even width"),
    "a sampler as the rule": (put("method", "rule", {"is": "ProbabilityFlow", "levels": 3}), "expected rule of NPSE"),
    "an unknown rule": (put("method", "rule", "sum"), "unknown rule 'sum'"),
    "an unknown schedule": (put("method", "schedule", "x"), "unknown schedule"),
    "a function": (put("method", "embedding", {"is": "function", "name": "f"}), "sf.load.folder, embedding=the_function"),
    "an unknown prior": (put("prior", "kind", "improper"), "a prior as scorefold writes it"),
    "a hostile distribution": (put("prior", "marginals", 0, "distribution", "rv_histogram"), "not a distribution that files"),
    "more parameters": (put("prior", "names", ["a", "b", "c"]), "a list of 3"),
    "a huge network": (put("method", "width", 16_384), "the file is too small"),
    "a deep network": (put("method", "depth", 10**9), "depth up to 64"),
    "many members": (put("method", "training", "members", 10**12), "at most 256 members"),
    "a huge observation": (put("shape", [2**31, 2**31, 2**31]), "the file is too small"),
    "a huge set": (put("trained", "largest_set", 10**9), "the largest set to be a whole number"),
    "a larger network": (put("method", "width", 6), "the file is too small|to be float32 of shape"),
    "another largest set": (put("trained", "largest_set", 2), "from_size.weight to be float32|base|size of a set"),
    "sets larger than trained": (put("trained", "partition", 0, "set_size", 4), "the size of a set to be .* from 1 to 3"),
    "no history": (put("trained", "history", None), "the history to be an object"),
    "a history of words": (put("trained", "history", "train", [["a"]]), "the training loss to be a number"),
    "a ragged history": (put("trained", "history", "train", [[1], [1, 2]]), "rows of one length"),
    "made by nobody": (put("made", {}), "where the model comes from"),
    "an observation without numbers": (put("shape", [0]), "an axis to be a whole number from 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONFIGS)
def test_hostile_configurations(tmp_path, files, what):
    change, message = CONFIGS[what]
    refused(written(tmp_path / "model", files, change), message)


def refused(folder, message):
    started = time.perf_counter()
    with pytest.raises(ModelError, match=message) as caught:
        sf.load(folder)
    assert time.perf_counter() - started < 2
    assert "\n" not in str(caught.value)


TEXTS = {
    "a key twice": (lambda text: text.replace('"version": 1', '"version": 1, "version": 1'), "'version' is there twice"),
    "NaN": (lambda text: text.replace('"version": 1', '"version": NaN'), "NaN is not a number"),
    "infinity": (lambda text: text.replace('"version": 1', '"version": 1e999'), "too large a number"),
    "a long number": (lambda text: text.replace('"version": 1', '"version": 1' + "0" * 5000), "too long a number"),
    "deep": (lambda text: "[" * 500_000, "nested too deeply|JSON"),
    "a list": (lambda text: "[1]", "to hold an object; got list"),
    "nothing": (lambda text: "", "to be JSON"),
    "two objects": (lambda text: text + text, "to be JSON"),
    "three megabytes": (lambda text: text + " " * 3_000_000, "at most 2,097,152 bytes"),
    "comments": (lambda text: "// a model\n" + text, "to be JSON"),
}


@pytest.mark.parametrize("what", TEXTS)
def test_hostile_texts(tmp_path, files, what):
    change, message = TEXTS[what]
    folder = written(tmp_path / "model", files)
    (folder / CONFIG).write_text(change(files[CONFIG].decode()))
    refused(folder, message)


def test_a_text_that_is_not_utf8(tmp_path, files):
    folder = written(tmp_path / "model", files)
    (folder / CONFIG).write_bytes(b"\xff\xfe" + files[CONFIG])
    refused(folder, "JSON in UTF-8")


def with_header(content, change):
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    raw, data = change(header, data)
    raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def twice(header, data):
    name = next(iter(header))
    return (json.dumps(header)[:-1] + "," + json.dumps({name: header[name]})[1:]).encode(), data


def overlap(header, data):
    by_size = {}
    for entry in header.values():
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        if size in by_size:
            entry["data_offsets"] = by_size[size]["data_offsets"]
            return header, data
        by_size[size] = entry
    raise AssertionError("no two arrays of one size")


def renamed(header, data):
    return {("x" + k if k == "network.out.weight" else k): v for k, v in header.items()}, data


def one_more(header, data):
    header["more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    return header, data + b"\0\0\0\0"


def one_less(header, data):
    last = max(header, key=lambda name: header[name]["data_offsets"])
    start = header.pop(last)["data_offsets"][0]
    return header, data[:start]


def other_type(header, data):
    header["network.out.weight"]["dtype"] = "I32"
    return header, data


def other_shape(header, data):
    header["network.x_mlp.first.weight"]["shape"].reverse()
    return header, data


def huge_shape(header, data):
    header["network.out.weight"]["shape"] = [2**39, 2**39]
    return header, data


def not_a_number(value):
    def change(header, data):
        values = np.frombuffer(data, "<f4").copy()
        values[7] = value
        return header, values.tobytes()

    return change


def no_scale(header, data):
    start, stop = header["standardize.scale"]["data_offsets"]
    return header, data[:start] + bytes(stop - start) + data[stop:]


HEADERS = {
    "a name twice": (twice, "is there twice"),
    "overlapping arrays": (overlap, "one after the other"),
    "an unexpected name": (renamed, "unknown 'xnetwork.out.weight'; missing network.out.weight"),
    "an array too many": (one_more, "unknown 'more'; missing none"),
    "an array too few": (one_less, "missing "),
    "another type": (other_type, "network.out.weight to be float32"),
    "another shape": (other_shape, "network.x_mlp.first.weight to be float32 of shape"),
    "a shape that overflows": (huge_shape, "to have other than"),
    "metadata": (lambda header, data: ({"__metadata__": {"a": "b"}, **header}, data), "'__metadata__'"),
    "NaN": (not_a_number(np.nan), "finite numbers"),
    "infinity": (not_a_number(-np.inf), "finite numbers"),
    "a gap at the end": (lambda header, data: (header, data + bytes(64)), "bytes of arrays"),
    "cut off": (lambda header, data: (header, data[:-4]), "bytes of arrays"),
    "no header": (lambda header, data: (b"", data), "a header of 2 to"),
    "a header that is no object": (lambda header, data: (b"[]", data), "to hold an object"),
    "a long header": (lambda header, data: (json.dumps(header).encode() + b" " * 2_000_000, data), "a header of 2 to"),
    "a scale of zero": (no_scale, "scales and variances above 0"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_hostile_weights(tmp_path, files, what):
    change, message = HEADERS[what]
    refused(written(tmp_path / "model", files, weights=with_header(files[WEIGHTS], change)), message)


def test_weights_with_another_sha256(tmp_path, files):
    changed = bytearray(files[WEIGHTS])
    changed[-2] ^= 1
    refused(written(tmp_path / "model", files, weights=bytes(changed), agree=False), "the SHA-256")
    refused(written(tmp_path / "shorter", files, weights=files[WEIGHTS][:-4], agree=False), "The copy is not complete")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("what", ["missing", "link", "pipe", "folder", "pickle", "sparse"])
def test_hostile_files(tmp_path, files, name, what):
    folder = written(tmp_path / "model", files)
    path = folder / name
    if what == "link":
        path.rename(tmp_path / "real")
        path.symlink_to(tmp_path / "real")
    else:
        path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "pickle":
        path.write_bytes(pickle.dumps(hostile_folders.Bomb()))
    elif what == "sparse":
        with open(path, "wb") as file:
            file.truncate(2**36)
    refused(folder, {"missing": "and nothing else", "pickle": "JSON|complete", "sparse": "at most"}.get(what, "to be a file"))


@pytest.mark.parametrize("name", ["model.pkl", ".DS_Store", "weights.safetensors.bak"])
def test_a_file_too_many(tmp_path, files, name):
    folder = written(tmp_path / "model", files)
    (folder / name).write_bytes(b"")
    refused(folder, f"and nothing else; got .*{name}")


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_no_folder(tmp_path, place):
    (tmp_path / "file").write_text("")
    refused(tmp_path / place, "expected a folder that can be read")


def test_an_embedding_of_ones_own_must_fit(tmp_path):
    folder = untrained("own embedding").save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"own_embedding.*sf.load\(folder, embedding=the_function\)"):
        sf.load(folder)
    with pytest.raises(ModelError, match="embedding"):
        sf.load(folder, embedding=lambda shape, key: eqx.nn.MLP(shape[0], 3, 5, 1, key=key))


def test_older_versions_load(tmp_path, files, monkeypatch):
    """As if the next version had renamed a key."""

    def rename(config):
        config["learned"] = config.pop("trained")
        return config

    folder = written(tmp_path / "model", files)
    newer = model.Format(FORMAT.name, FORMAT.version + 1, {FORMAT.version: rename})
    with model.opened(folder, newer) as found:
        assert "learned" in found.config
        assert "trained" not in found.config
    assert set(FORMAT.migrations) == set(range(1, FORMAT.version))


def test_safetensors_itself_reads_the_weights(tmp_path):
    from safetensors.numpy import load_file

    posterior = untrained("f-npse")
    arrays = load_file(posterior.save(tmp_path / "model") / WEIGHTS)
    assert np.array_equal(arrays["network.out.weight"], posterior.ensemble.network.out.weight)


# Hostile folders by the thousand


def test_mutated_folders(files):
    outcome = hostile_folders.attack(files, 150, seed=0)
    assert outcome["untyped"] == []
    assert outcome["refused"] > 120
    assert len(outcome["messages"]) > 40
    assert outcome["longest"] < 2


@pytest.mark.full
@pytest.mark.parametrize("case", ["pf-npse", "prior from draws", "configured convolution", "rule and sampler"])
def test_five_thousand_mutated_folders(case, tmp_path):
    hostile_folders.assert_harmless(untrained(case).save(tmp_path / "model"), 5_000 if case == "pf-npse" else 1_000)
