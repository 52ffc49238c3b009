"""How reference draws are kept: made once, found again, and made again when the file is not whole."""

import numpy as np
import pytest

from scorefold.errors import ScorefoldWarning
from scorefold.tasks import stored
from scorefold.tasks.nuts_reference import Chains

X = np.arange(6.0).reshape(3, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SCOREFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def made():
    """What was computed, and the references that compute it."""
    calls = []

    def compute(x_obs, draws, seed):
        calls.append((x_obs.sum(), draws, seed))
        return Chains(np.random.default_rng(seed).normal(x_obs.sum(), 1, (draws, 2)), 1.001, draws + 1.0, 0)

    return calls, lambda name="thing", version=1: stored.kept(name, version)(compute)


def test_draws_are_computed_once(folder, made):
    calls, reference = made
    first = reference()(X, 1_200, 3)
    again = reference()(X, 1_200, 3)
    np.testing.assert_array_equal(first, again)
    assert calls == [(15.0, 1_200, 3)]
    (file,) = folder.iterdir()
    assert file.name.startswith("thing-")
    assert stored.read(file, 1_200).ess == 1_201, "the diagnostics are kept too"


def test_fewer_draws_are_the_first_of_a_thousand(folder, made):
    calls, reference = made
    many = reference()(X, 1_000, 3)
    np.testing.assert_array_equal(reference()(X, 10, 3), many[:10])
    assert len(calls) == 1


def test_everything_that_matters_makes_another_file(folder, made):
    calls, reference = made
    reference()(X, 10, 3)
    reference("other")(X, 10, 3)
    reference(version=2)(X, 10, 3)
    reference()(X + 1, 10, 3)
    reference()(X.reshape(2, 3), 10, 3)
    reference()(X, 1_001, 3)
    reference()(X, 10, 4)
    assert len(calls) == len(list(folder.iterdir())) == 7


@pytest.mark.parametrize("content", [b"", b"nonsense", "half", "other", "nan"])
def test_a_file_that_is_not_whole_is_made_again(folder, made, content):
    calls, reference = made
    first = reference()(X, 10, 3)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    others = {
        "half": whole[: len(whole) // 2],
        "other": stored.save({"draws": np.zeros((1_000, 2))}),
        "nan": stored.save({"draws": np.full((1_000, 2), np.nan), **dict.fromkeys(stored.DIAGNOSTICS, np.zeros(1))}),
    }
    file.write_bytes(content if isinstance(content, bytes) else others[content])
    np.testing.assert_array_equal(reference()(X, 10, 3), first)
    assert len(calls) == 2
    assert file.read_bytes() == whole


def test_an_interrupted_write_leaves_no_file_under_the_name(folder, made, monkeypatch):
    calls, reference = made

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stored.os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            reference()(X, 10, 3)
    assert not list(folder.glob("*.safetensors"))
    reference()(X, 10, 3)
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_costs_the_cache_only(tmp_path, made, monkeypatch):
    _, reference = made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCOREFOLD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(ScorefoldWarning, match="SCOREFOLD_CACHE"):
        assert reference()(X, 10, 3).shape == (10, 2)
