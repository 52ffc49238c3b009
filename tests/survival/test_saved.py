"""Models on disk, of every method: what is saved comes back bit for bit, and what was changed is refused."""

import dataclasses
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import equinox as eqx
import hostile_folders
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from untrained import (
    CASES,
    HISTORY,
    MADE,
    MARGINALS,
    REFINED,
    SCORES,
    SHORT,
    SMALL,
    loaded,
    random_posterior,
    untrained,
)

import scorefold as sf
from scorefold import tasks
from scorefold.disk import durable
from scorefold.disk import folder as model
from scorefold.errors import DiskFull, ModelError, ScorefoldError, ScorefoldWarning, StorageError, UntrustworthyDraws
from scorefold.methods.load import SETTINGS
from scorefold.methods.refine.finish import NOT_COMPARED
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.region import Fit
from scorefold.methods.refine.round import Round
from scorefold.posterior.versions import FORMAT
from scorefold.prior.multivariate_normal import Gaussian
from scorefold.prior.proposal import GaussianProposal
from scorefold.score.ensemble import fewest_numbers
from scorefold.simulation.likeness import look

CONFIG, WEIGHTS = "config.json", "weights.safetensors"


# Round trips


def same_values(one, other, where=""):
    """The same classes with the same values, and the same bits in every array."""
    assert type(one) is type(other), where
    if dataclasses.is_dataclass(one) and not isinstance(one, eqx.Module):
        for field in dataclasses.fields(one):
            same_values(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            same_values(a, b, f"{where}.{i}")
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            same_values(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, eqx.Module | np.ndarray):
        if isinstance(one, np.ndarray) or "own embedding" not in where:  # whose functions are made anew
            assert jax.tree.structure(one) == jax.tree.structure(other), where
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert (np.asarray(a).dtype, np.asarray(a).tobytes()) == (np.asarray(b).dtype, np.asarray(b).tobytes()), where
    elif isinstance(one, float):  # what is not finite comes back as NaN
        assert one == other or not (np.isfinite(one) or np.isfinite(other)), where
    else:
        assert one == other, where


@pytest.mark.parametrize("case", [*CASES, *REFINED])
def test_everything_comes_back(case, tmp_path):
    posterior = untrained(case)
    assert posterior.save(tmp_path / "model") == tmp_path / "model"
    back = loaded(case, tmp_path / "model")
    same_values(posterior, back, case)
    assert np.array_equal(back.prior.sample(5, 0), posterior.prior.sample(5, 0))
    back.save(tmp_path / "again")
    for name in (CONFIG, WEIGHTS):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


@pytest.mark.full
def test_large_models(tmp_path):
    """1,000 parameters, 100,000 rounds of training and 20 of refinement: the configuration stays small."""
    dim, rng = 1_000, np.random.default_rng(0)
    slope = rng.normal(size=(dim, dim)) / np.sqrt(dim)
    prior = sf.Prior(Gaussian(np.zeros(dim), np.eye(dim) + slope @ slope.T))
    method = sf.NPSE(base=False, correction=False, **SMALL)
    regions = [
        GaussianProposal(rng.normal(size=dim), 0.1 * np.eye(dim) + 1e-3 * (slope + slope.T) / (i + 1)) for i in range(20)
    ]
    local = random_posterior(method, prior.proposing(regions[-1]), (3,), 2)
    long = HISTORY._replace(train=np.ones((2, 100_000), np.float32), validation=np.ones((2, 100_001), np.float32))
    local = dataclasses.replace(local, history=long)
    fit = Fit(0.0, 0.0, (0.2, 0.4))
    rounds = tuple(Round(region, "line", 300, 1, 280, 20, 0.5, fit, False, False, 0.1, 0.0) for region in regions)
    posterior = RefinedPosterior(prior, (3,), local, None, 12, rounds, True, NOT_COMPARED, MADE)
    folder = posterior.save(tmp_path / "model")
    assert (folder / CONFIG).stat().st_size < 200_000
    same_values(posterior, sf.load(folder))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def trained():
    task = tasks.get("gaussian")
    sims = sf.simulate(task.prior, task.simulator, 400, seed=5)
    return sf.fit(sims, sf.NPSE(width=8, depth=1, correction=False, training=SHORT), seed=3), task.observe(3, 0)[1]


def test_draws_are_bit_identical(trained, tmp_path):
    posterior, x = trained
    back = sf.load(posterior.save(tmp_path / "model"))
    one, other = (p.sample(x, draws=20, seed=1) for p in (posterior, back))
    assert one.theta.tobytes() == other.theta.tobytes()
    assert back.made == posterior.made
    assert (back.made.seed, back.made.simulation_seed, back.made.budget, back.made.failed) == (3, 5, 400, 0)
    assert back.made.packages["jax"] == jax.__version__


@pytest.mark.full
def test_draws_are_bit_identical_in_another_process(trained, tmp_path, figure):
    posterior, x = trained
    posterior.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np, scorefold as sf\n"
        "x = np.load(sys.argv[1] + '/x.npy')\n"
        "np.save(sys.argv[1] + '/theta.npy', sf.load(sys.argv[1] + '/model').sample(x, draws=20, seed=1).theta)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    there, here = np.load(tmp_path / "theta.npy"), posterior.sample(x, draws=20, seed=1).theta
    figure(f"{int((there != here).sum())} of {here.size} numbers differ")
    assert there.tobytes() == here.tobytes()


def simulator(shape):
    return lambda theta, rng: np.resize(theta, shape) + 0.5 * rng.standard_normal(shape)


SHORTLY = ("npe", "abc")


@pytest.mark.parametrize("case", [name if name in SHORTLY else pytest.param(name, marks=pytest.mark.full) for name in CASES])
def test_every_method_draws_the_same_after_loading(case, tmp_path):
    method, prior, shape, largest, *_ = CASES[case]
    sims = sf.simulate(prior, simulator(shape), 600, set_size=largest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)  # it is trained for a moment only
        posterior = sf.fit(sims, method, seed=2)
    back = loaded(case, posterior.save(tmp_path / "model"))
    # Without a base, a network trained for a moment is wrong enough for composed scores to diverge.
    x = np.random.default_rng(1).normal(size=(2 if getattr(method, "base", True) else 1, *shape))
    how = {"set_size": "auto"} if case == "pf-npse" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        one, other = (p.sample(x, draws=20, seed=1, **how) for p in (posterior, back))
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.how == other.how
    assert back.made == posterior.made


@dataclasses.dataclass(frozen=True)
class OwnRule(sf.rules.Gauss):
    """Composes as it likes."""


@dataclasses.dataclass(frozen=True)
class OwnMethod(sf.NPSE):
    """A subclass."""


@pytest.mark.parametrize(
    ("method", "name"),
    [(sf.NPSE(rule=OwnRule(), **SMALL), "OwnRule.* as the rule of NPSE"), (OwnMethod(**SMALL), "the method")],
)
def test_what_cannot_be_saved_is_refused_before_training(monkeypatch, method, name):
    monkeypatch.setattr(sf.NPSE, "train", lambda *args: pytest.fail("it was trained"))
    sims = sf.simulate(MARGINALS, simulator((2,)), 100)
    with pytest.raises(ScorefoldError, match=f"can be saved with what is trained; got .*{name}"):
        sf.fit(sims, method)


class Trained(Exception):
    """Training was reached."""


METHODS = {
    "f-npse": sf.NPSE(set_size=1, **SMALL),
    "npe": sf.NPE(layers=1, **SMALL),
    "nle": sf.NLE(layers=1, **SMALL),
    "nre": sf.NRE(**SMALL),
    "abc": sf.ABC(),
}


def told_before_training(monkeypatch, method, sims):
    """What `fit` warns of before it trains."""

    def reached(*args, **how):
        raise Trained

    monkeypatch.setattr(type(method), "train", reached)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(Trained):
            sf.fit(sims, method)
    return [str(one.message) for one in said if "not to save" in str(one.message)]


@pytest.mark.parametrize("name", METHODS)
def test_a_prior_that_no_file_may_hold_is_said_before_training(monkeypatch, name):
    prior = sf.Prior({"a": stats.norminvgauss(1.25, 0.5)})
    sims = sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), 100)
    (said,) = told_before_training(monkeypatch, METHODS[name], sims)
    assert "'norminvgauss' is not a distribution that files may hold" in said


@pytest.mark.parametrize("name", METHODS)
def test_a_model_too_large_for_a_file_is_said_before_training(monkeypatch, name):
    sims = sf.simulate(MARGINALS, simulator((2,)), 100)
    assert not told_before_training(monkeypatch, METHODS[name], sims)
    monkeypatch.setitem(model.MOST_BYTES, WEIGHTS, 1_000)
    (said,) = told_before_training(monkeypatch, METHODS[name], sims)
    assert "and a file may have 1,000" in said


def test_how_large_a_model_will_be_is_known_before_training(monkeypatch, tmp_path):
    """To within what the names of arrays and the shape of the simulations add."""
    sims = sf.simulate(MARGINALS, simulator((2,)), 2_000)
    size = (sf.fit(sims, "abc").save(tmp_path / "model") / WEIGHTS).stat().st_size
    monkeypatch.setitem(model.MOST_BYTES, WEIGHTS, 1)
    (said,) = told_before_training(monkeypatch, METHODS["abc"], sims)
    expected = int(said.split("take ")[1].split(" bytes")[0].replace(",", ""))
    assert 0.8 * size < expected < 1.1 * size


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    with pytest.raises(ModelError, match="a round at least"):
        dataclasses.replace(untrained("refined"), rounds=()).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_networks_of_other_settings_are_not_saved(tmp_path):
    posterior = untrained("f-npse")
    wider = dataclasses.replace(posterior, method=dataclasses.replace(posterior.method, width=6))
    with pytest.raises(ScorefoldError, match=r"expected ensemble as NPSE.*got another"):
        wider.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_every_class_of_settings_can_be_loaded():
    public = [value for room in (sf, sf.rules, sf.samplers, sf.embeddings) for value in (getattr(room, n) for n in dir(room))]
    settings = {
        kind.__name__: kind
        for kind in public
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not issubclass(kind, eqx.Module)
    }
    assert {name: kind for name, kind in settings.items() if kind not in (sf.Draws, sf.Batched, sf.Workers)} == SETTINGS


def test_the_lower_bound_of_an_architecture():
    for case, (method, prior, shape, largest) in SCORES.items():
        numbers = sum(v.size for v in jax.tree.leaves(untrained(case).ensemble))
        sizes = method.network_shape(2, prior.has_density, shape, largest)
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
    with pytest.raises(StorageError, match="expected to write the model to"):
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

    monkeypatch.setattr(durable.os, "fsync", failing(os.fsync))
    monkeypatch.setattr(Path, "rename", failing(Path.rename))
    with pytest.raises(DiskFull, match=r"no space left\. Nothing is half-written") if step < 6 else nullcontext():
        new.save(folder, overwrite=True)
    monkeypatch.undo()
    assert sf.load(folder).method == (old.method if step < 5 else new.method)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# Hostile folders, one by one


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = untrained("pf-npse").save(tmp_path_factory.mktemp("saved") / "model")
    sf.load(folder)
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


CHOICE = {"n": 3, "set_size": 1, "cases": 20, "score": [[1, 0.0]], "error": [[1, 0.0]]}


def put(*path_and_value):
    *path, value = path_and_value

    def change(config):
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    return change


def field(*path_and_value):
    return put("posterior", *path_and_value)


VERSION = f'"version": {FORMAT.version}'
NEXT = FORMAT.version + 1
NO_LONGER = "version 1, which this scorefold no longer reads. Train and save it again"
CONFIGS = {
    "another format": (put("format", "pickle"), "about something else"),
    "a newer version": (put("version", NEXT), f"version {NEXT}, written by a newer scorefold. Update scorefold"),
    "an older version": (put("version", 1), NO_LONGER),
    "version 0": (put("version", 0), "the version to be a whole number from 1"),
    "version True": (put("version", True), "got True"),
    "an unknown key": (put("extra", 1), "unknown 'extra'"),
    "an unknown kind": (put("kind", "os.system"), "expected the kind of posterior to be one of abc, composed"),
    "another kind": (put("kind", "abc"), "missing sizes"),
    "no posterior": (put("posterior", None), "the posterior to be an object"),
    "an unknown field": (field("extra", 1), "unknown 'extra'"),
    "an unknown method": (field("method", "is", "eval"), "expected the method to be one of"),
    "a rule as the method": (field("method", {"is": "Gauss", "pilots": 0}), "expected a method, NPSE; got Gauss"),
    "another method": (
        field("method", {"is": "ABC", "accept": 0.1, "summary": "moments", "adjust": True}), "expected a method, NPSE; got ABC",
    ),
    "no method": (field("method", None), "expected a method, NPSE; got None"),
    "a setting of another type": (field("method", "width", "16"), "expected width of NPSE to be a whole number; got '16'"),
    "a setting that cannot be": (field("method", "width", 7), "an even width"),
    "a sampler as the rule": (field("method", "rule", {"is": "ProbabilityFlow", "levels": 3}), "expected rule of NPSE"),
    "an unknown rule": (field("method", "rule", "sum"), "unknown rule 'sum'"),
    "an unknown schedule": (field("method", "schedule", "x"), "unknown schedule"),
    "a function": (field("method", "embedding", {"is": "function", "name": "f"}), "sf.load.folder, embedding=the_function"),
    "an unknown prior": (field("prior", "kind", "improper"), "a prior as scorefold writes it"),
    "a hostile distribution": (field("prior", "marginals", 0, "distribution", "rv_histogram"), "not a distribution that files"),
    "more parameters": (field("prior", "names", ["a", "b", "c"]), "of shape|a list of 3"),
    "a huge network": (field("method", "width", 16_384), "the file is too small"),
    "a deep network": (field("method", "depth", 10**9), "depth up to 64"),
    "many members": (field("method", "training", "members", 10**12), "at most 256 members"),
    "a huge observation": (field("shape", [2**31, 2**31, 2**31]), "the file is too small"),
    "a huge set": (field("largest_set", 10**9), "largest_set to be a whole number"),
    "no set": (field("largest_set", 0), "largest_set to be a whole number from 1"),
    "a larger network": (field("method", "width", 6), "the file is too small|to be float32 of shape"),
    "another largest set": (field("largest_set", 2), "from_size.weight to be float32|base|size of a set"),
    "sets larger than trained": (field("table", 0, 1, "set_size", 4), "every size of sets should have a score"),
    "sets larger than the networks": (
        field("table", 0, 1, {"n": 3, "set_size": 4, "cases": 1, "score": [[4, 0]], "error": [[4, 0]]}), "sets of 1 to 3",
    ),
    "n twice": (field("table", [[3, CHOICE], [3, CHOICE]]), "each key of table once"),
    "another n": (field("table", 0, 0, 4), "the table of sets"),
    "a table of triples": (field("table", [[3, CHOICE, 1]]), "a pair of table to be a list of at most 2"),
    "no history": (field("history", None), "history to be an object"),
    "a history of words": (field("history", "learning_rate", "a"), "history.learning_rate to be a number"),
    "a history elsewhere": (field("history", "train", "history.validation"), "history.train to be one of history.train"),
    "a history without epochs": (field("history", "epochs_a_round", 0), "one epoch or more"),
    "a negative count": (field("history", "skipped", -1), "history.skipped to be a whole number from 0"),
    "made by nobody": (field("made", {}), "made to have other keys"),
    "made in many lines": (field("made", "packages", {"a\nb": 1}), "to be a word"),
    "an observation without numbers": (field("shape", [0]), "an axis to be a whole number from 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONFIGS)
def test_hostile_configurations(tmp_path, files, what):
    change, message = CONFIGS[what]
    refused(written(tmp_path / "model", files, change), message)


def refused(folder, message):
    started = time.process_time()  # whatever else the machine does
    with pytest.raises(ModelError, match=message) as caught:
        sf.load(folder)
    assert time.process_time() - started < 2
    assert "\n" not in str(caught.value)


TEXTS = {
    "a key twice": (lambda text: text.replace(VERSION, f"{VERSION}, {VERSION}"), "'version' is there twice"),
    "NaN": (lambda text: text.replace(VERSION, '"version": NaN'), "NaN is not a number"),
    "infinity": (lambda text: text.replace(VERSION, f"{VERSION}e999"), "too large a number"),
    "a long number": (lambda text: text.replace(VERSION, VERSION + "0" * 5000), "too long a number"),
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
    return {("x" + k if k == "ensemble.network.out.weight" else k): v for k, v in header.items()}, data


def one_more(header, data):
    header["more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    return header, data + b"\0\0\0\0"


def one_less(header, data):
    last = max(header, key=lambda name: header[name]["data_offsets"])
    start = header.pop(last)["data_offsets"][0]
    return header, data[:start]


def other_type(header, data):
    header["ensemble.network.out.weight"]["dtype"] = "I32"
    return header, data


def other_shape(header, data):
    header["ensemble.network.x_mlp.first.weight"]["shape"].reverse()
    return header, data


def huge_shape(header, data):
    header["ensemble.network.out.weight"]["shape"] = [2**39, 2**39]
    return header, data


def at(name, *values):
    """Other numbers at the beginning of an array."""

    def change(header, data):
        start, stop = header[name]["data_offsets"]
        dtype = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}[header[name]["dtype"]]
        array = np.frombuffer(data[start:stop], dtype).copy()
        array[: len(values)] = values
        return header, data[:start] + array.tobytes() + data[stop:]

    return change


def with_shape(name, shape):
    """Another shape of as many numbers."""

    def change(header, data):
        header[name]["shape"] = shape
        return header, data

    return change


HEADERS = {
    "a name twice": (twice, "is there twice"),
    "overlapping arrays": (overlap, "one after the other"),
    "an unexpected name": (renamed, "unknown 'xensemble.network.out.weight'; missing ensemble.network.out.weight"),
    "an array too many": (one_more, "unknown 'more'; missing none"),
    "an array too few": (one_less, "missing "),
    "another type": (other_type, "ensemble.network.out.weight to be float32"),
    "another shape": (other_shape, "ensemble.network.x_mlp.first.weight to be float32 of shape"),
    "a shape that overflows": (huge_shape, "to have other than"),
    "metadata": (lambda header, data: ({"__metadata__": {"a": "b"}, **header}, data), "'__metadata__'"),
    "NaN": (at("ensemble.network.out.weight", np.nan), "finite numbers"),
    "infinity": (at("ensemble.network.out.weight", -np.inf), "finite numbers"),
    "a round kept that was none": (at("history.kept", 3), "and the kept one among them"),
    "a history of another rank": (with_shape("history.train", [4]), "history.train to have the axes"),
    "a history of other members": (with_shape("history.train", [1, 4]), "to have 1 as members; got 2"),
    "an empty array of huge axes": (with_shape("history.train", [0, 2**40, 2**40]), "to have other than"),
    "a gap at the end": (lambda header, data: (header, data + bytes(64)), "bytes of arrays"),
    "cut off": (lambda header, data: (header, data[:-4]), "bytes of arrays"),
    "no header": (lambda header, data: (b"", data), "a header of 2 to"),
    "a header that is no object": (lambda header, data: (b"[]", data), "to hold an object"),
    "a long header": (lambda header, data: (json.dumps(header).encode() + b" " * 2_000_000, data), "a header of 2 to"),
    "a scale of zero": (at("ensemble.standardize.scale", 0.0), "scales and units should be above 0"),
    "a variance of zero": (at("ensemble.base.variances", 0.0), "variances should be above 0 and at most 1"),
    "levels that fall": (at("ensemble.correction.t", 99.0), "levels should rise"),
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
        config["learned"] = config.pop("posterior")
        return config

    folder = written(tmp_path / "model", files)
    newer = model.Format(FORMAT.name, FORMAT.version + 1, {FORMAT.version: rename})
    with model.opened(folder, newer) as found:
        assert "learned" in found.config
        assert "posterior" not in found.config
    assert set(FORMAT.migrations) == set(range(3, FORMAT.version)), "of versions 1 and 2 there was no release"


@pytest.mark.parametrize("version", [1, 2])
def test_a_model_of_a_version_that_was_never_released_is_refused(tmp_path, version):
    folder = untrained("abc").save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"version": version}))
    with pytest.raises(ModelError, match="version"):
        sf.load(folder)


@pytest.mark.parametrize("method", ["abc", "nle, as before", "f-npse"])
def test_a_model_of_version_3_that_knew_no_inputs_is_read(tmp_path, method):
    theta = MARGINALS.sample(200, seed=0)
    seen = look(sf.Simulations(MARGINALS, theta, np.random.default_rng(0).normal(size=(200, *untrained(method).shape))))
    posterior = dataclasses.replace(untrained(method), made=MADE._replace(seen=seen))
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 3}
    for key in ("input_names", "inputs"):
        del config["posterior"]["made"]["seen"][key]
    config["posterior"].pop("inputs", None)
    config["posterior"].pop("whole", None)
    if method.startswith("nle"):
        for key in ("missing", "tails", "straighten", "changing", "edges"):
            del config["posterior"]["method"][key]
        for key in ("local", "corrected_for"):
            del config["posterior"][key]
    (folder / CONFIG).write_text(json.dumps(config))
    assert sf.load(folder).made == posterior.made


def test_a_model_of_version_4_that_took_every_number_for_continuous_is_read(tmp_path):
    posterior = untrained("nle, as before")
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 4}
    assert config["posterior"].pop("whole") == 0
    for key in ("straighten", "changing", "edges"):
        del config["posterior"]["method"][key]
    (folder / CONFIG).write_text(json.dumps(config))
    assert sf.load(folder).whole == 0


@pytest.mark.parametrize(
    ("change", "why"),
    {
        "places twice": (lambda own: dataclasses.replace(own, order=jnp.zeros_like(own.order)), "each outcome .* one place"),
        "no step": (lambda own: dataclasses.replace(own, step=0 * own.step), "go up in steps"),
    }.values(),
)
def test_values_of_counts_are_checked(tmp_path, change, why):
    posterior = untrained("nle, counts")
    terms = dataclasses.replace(posterior.terms, lattice=change(posterior.terms.lattice))
    with pytest.raises(ModelError, match=why):
        sf.load(dataclasses.replace(posterior, terms=terms).save(tmp_path / "model"))


@pytest.mark.parametrize("method", ["nle, as before", "nre, as before", "npe"])
def test_a_model_of_version_4_that_knew_no_holes_is_read(tmp_path, method):
    posterior = untrained(method)
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 4}
    for key in ("missing", "tails", "straighten", "changing", "edges"):
        config["posterior"]["method"].pop(key, None)
    (folder / CONFIG).write_text(json.dumps(config))
    assert sf.load(folder).method == posterior.method


@pytest.mark.parametrize("method", ["nle, as before", "nre, as before"])
def test_a_model_of_version_5_that_knew_parameters_as_u_alone_is_read(tmp_path, method):
    posterior = untrained(method)
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 5}
    for key in ("straighten", "changing", "edges"):
        config["posterior"]["method"].pop(key, None)
    (folder / CONFIG).write_text(json.dumps(config))
    back = sf.load(folder)
    assert back.method == posterior.method
    assert back.terms.coordinates is None


def test_a_model_of_version_6_whose_noise_was_the_same_everywhere_is_read(tmp_path):
    posterior = untrained("nle, as before")
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 6}
    del config["posterior"]["method"]["changing"]
    (folder / CONFIG).write_text(json.dumps(config))
    back = sf.load(folder)
    assert back.method == posterior.method
    assert back.terms.line.changing is None


def test_a_model_of_version_8_whose_likelihood_had_one_line_is_read(tmp_path):
    posterior = untrained("nle, as before")
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 8}
    del config["posterior"]["modes"]
    (folder / CONFIG).write_text(json.dumps(config))
    same_values(sf.load(folder), posterior)


def test_a_refinement_of_version_9_that_had_nothing_beside_it_is_read(tmp_path):
    folder = untrained("refined").save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 9}
    assert config["posterior"].pop("beside") is None
    (folder / CONFIG).write_text(json.dumps(config))
    assert sf.load(folder).beside is None


def test_a_model_of_version_10_that_knew_no_edges_is_read(tmp_path):
    posterior = untrained("nle, as before")
    folder = posterior.save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text()) | {"version": 10}
    del config["posterior"]["method"]["edges"]
    (folder / CONFIG).write_text(json.dumps(config))
    back = sf.load(folder)
    assert back.terms.line.edges is None
    same_values(back, posterior)


def test_edges_without_a_margin_are_refused(tmp_path):
    posterior = untrained("nle")
    line = posterior.terms.line
    flat = dataclasses.replace(line, edges=dataclasses.replace(line.edges, shortest=0 * line.edges.shortest))
    terms = dataclasses.replace(posterior.terms, line=flat)
    with pytest.raises(ModelError, match="edges should have a side"):
        sf.load(dataclasses.replace(posterior, terms=terms).save(tmp_path / "model"))


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_model_whose_noise_changed_in_another_form_is_refused(tmp_path, version):
    folder = untrained("nle").save(tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"version": version}))
    with pytest.raises(ModelError, match="Fit it once more"):
        sf.load(folder)


def test_modes_without_widths_are_refused(tmp_path):
    posterior = untrained("nle, several modes")
    places = posterior.terms.coordinates
    flat = dataclasses.replace(posterior.terms, coordinates=dataclasses.replace(places, whiten=-places.whiten))
    with pytest.raises(ModelError, match="a mode should have widths above 0"):
        sf.load(dataclasses.replace(posterior, terms=flat).save(tmp_path / "model"))


def test_coordinates_that_fall_are_refused(tmp_path):
    posterior = untrained("nle")
    falling = dataclasses.replace(posterior.terms.coordinates, values=-posterior.terms.coordinates.values)
    terms = dataclasses.replace(posterior.terms, coordinates=falling)
    with pytest.raises(ModelError, match="coordinates should rise"):
        sf.load(dataclasses.replace(posterior, terms=terms).save(tmp_path / "model"))


def test_what_simulations_look_like_is_saved_and_checked(tmp_path):
    rng = np.random.default_rng(0)
    theta = MARGINALS.sample(200, seed=0)
    seen = look(sf.Simulations(MARGINALS, theta, rng.normal(size=(200, 2)), x_names=("p", "q")))
    posterior = dataclasses.replace(untrained("abc"), made=MADE._replace(seen=seen, finished=False))
    folder = posterior.save(tmp_path / "model")
    with pytest.warns(ScorefoldWarning, match="not finished"):
        back = sf.load(folder)
    assert back.made == posterior.made
    assert back.x_names == ("p", "q")
    assert "2 numbers (p, q)" in repr(back)
    broken = dataclasses.replace(posterior, made=MADE._replace(seen=dataclasses.replace(seen, low=seen.high + 1)))
    with pytest.raises(ModelError, match="ranges and quantiles in order"):
        sf.load(broken.save(tmp_path / "broken"))


def test_safetensors_itself_reads_the_weights(tmp_path):
    from safetensors.numpy import load_file

    posterior = untrained("f-npse")
    arrays = load_file(posterior.save(tmp_path / "model") / WEIGHTS)
    assert np.array_equal(arrays["ensemble.network.out.weight"], posterior.ensemble.network.out.weight)


# Hostile folders by the thousand


def test_mutated_folders(files):
    outcome = hostile_folders.attack(files, 150, seed=0)
    assert outcome["untyped"] == []
    assert outcome["refused"] > 120
    assert len(outcome["messages"]) > 40
    assert outcome["longest"] < 2


def numbers(value, path=()):
    """Every whole number in a JSON document, by its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, (*path, key))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


@pytest.mark.parametrize("case", ["pf-npse", "npe", "npe, splines, no base", "nle", "nre", "abc", "refined with summaries"])
def test_sizes_that_do_not_fit_the_weights_are_refused(case, tmp_path):
    folder = untrained(case).save(tmp_path / "model")
    before = json.loads((folder / CONFIG).read_text())
    sizes = ("width", "depth", "layers", "members", "largest_set")
    places = [path for path in numbers(before) if path[-1] in sizes]
    assert bool(places) == (case != "abc")
    changes = [(path, change) for path in places for change in (lambda value: value + 1, lambda value: 10**9)]
    changes += [(("posterior", "shape"), lambda value, axes=axes: axes) for axes in ([3], [2**31], [2**31] * 8)]
    for path, change in changes:
        config = json.loads(json.dumps(before))
        inner = config
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = change(inner[path[-1]])
        (folder / CONFIG).write_text(json.dumps(config))
        refused(folder, "cannot be loaded")


REFINEMENTS = {
    "no rounds": (field("rounds", []), "unknown 'rounds.0"),
    "no observations": (field("n", 0), "there should be observations"),
    "a flag as a number": (field("rounds", 0, "lost_mode", 1), "rounds.0.lost_mode to be true or false"),
    "a word for a flag": (field("agreed", "yes"), "agreed to be true or false"),
    "an unknown region": (field("rounds", 0, "proposal", "is", "Box"), "to be one of GaussianProposal, TruncatedProposal"),
    "a region of another kind": (field("rounds", 0, "proposal", "is", "GaussianProposal"), "rounds.0.proposal to have other"),
    "a region that is no object": (field("rounds", 0, "proposal", 3), "rounds.0.proposal to be an object"),
    "three widths": (field("rounds", 0, "fit", "widths", [1, 2, 3]), "to be a list of 2; got 3"),
    "nothing in the region": (field("local", {}), "local to be one of ComposedPosterior, SummedPosterior"),
    "no summaries": (field("summaries", None), "unknown 'summaries"),
    "no start": (field("summaries", "start", []), "summaries.start to be an object"),
    "a start with more members": (field("summaries", "start", "method", "training", "members", 3), "too small|summaries.start"),
    "a start of no size": (field("summaries", "start", "largest_set", 0), "largest_set to be a whole number from 1"),
    "a start of another prior": (
        field("summaries", "start", "prior", "marginals", 0, "parameters", "loc", 1.0), "a start, its region",
    ),
    "another prior": (field("prior", "marginals", 0, "parameters", "loc", 1.0), "the region's prior should be the prior"),
    "no region": (field("local", "prior", "kind", "marginals"), "unknown 'local.prior"),
    "a region in the region": (field("local", "prior", "prior", "kind", "proposal"), "missing|keys|known density"),
    "matrices in the text": (field("local", "prior", "proposal", "mean", [0, 0]), "mean should be among the arrays"),
    "as if it were composed": (put("kind", "composed"), "unknown 'agreed'"),
}  # fmt: skip
REGIONS = {
    "a root of zero": (at("rounds.1.proposal.root", 0, 0, 0, 0), "cannot be inverted"),
    "a mean far away": (at("rounds.1.proposal.mean", 1e7), "within ±1e"),
    "a box inside out": (at("rounds.0.proposal.low", 9.0), "low below high"),
    "axes that are none": (at("rounds.0.proposal.axes", 2.0), "orthogonal axes"),
    "a region that cannot be inverted": (at("local.prior.proposal.root", 0, 0, 0, 0), "cannot be inverted"),
    "a centre of another length": (with_shape("summaries.centre", [2, 1]), "summaries.centre to have the axes"),
}


@pytest.fixture(scope="module")
def refined_files(tmp_path_factory):
    folder = untrained("refined with summaries").save(tmp_path_factory.mktemp("saved") / "model")
    sf.load(folder)  # the shapes of these networks are traced once in a process, which is not what is timed
    return {name: (folder / name).read_bytes() for name in (CONFIG, WEIGHTS)}


@pytest.mark.parametrize("what", [*REFINEMENTS, *REGIONS])
def test_hostile_refinements(tmp_path, refined_files, what):
    if what in REGIONS:
        change, message = REGIONS[what]
        refused(written(tmp_path / "model", refined_files, weights=with_header(refined_files[WEIGHTS], change)), message)
    else:
        change, message = REFINEMENTS[what]
        refused(written(tmp_path / "model", refined_files, change), message)


MANY = {"pf-npse": 5_000, "prior from draws": 1_000, "configured convolution": 1_000, "rule and sampler": 1_000}
OTHERS = {case: 500 for case in CASES if case not in SCORES} | dict.fromkeys(REFINED, 1_000)


@pytest.mark.full
@pytest.mark.parametrize(("case", "count"), {**MANY, **OTHERS}.items())
def test_thousands_of_mutated_folders(case, count, tmp_path, figure):
    figure(hostile_folders.assert_harmless(untrained(case).save(tmp_path / "model"), count))
