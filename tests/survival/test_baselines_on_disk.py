"""NPE, NLE, NRE and ABC on disk: what is saved draws the same bits, and what was changed is refused."""

import json

import hostile_folders
import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ModelError

pytestmark = pytest.mark.usefixtures("quick_to_compile")

FILES = ("config.json", "weights.safetensors")
SHORT = sf.Training(members=2, steps=50)
PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 1)})
SMALL = {"width": 4, "depth": 1, "training": SHORT}
METHODS = {
    "npe": (sf.NPE(layers=2, **SMALL), (2,)),
    "npe, splines, no base": (sf.NPE(flow="spline", layers=2, base=False, **SMALL), ()),
    "npe, convolution": (sf.NPE(layers=1, embedding=sf.embeddings.Convolution(channels=(2,), out=3), **SMALL), (8,)),
    "nle": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), (2,)),
    "nle, no base": (sf.NLE(layers=2, base=False, sampler="vi", steps=20, **SMALL), (2,)),
    "nre": (sf.NRE(sampler="vi", steps=20, **SMALL), (2,)),
    "nre, no base": (sf.NRE(base=False, sampler="vi", steps=20, **SMALL), (3,)),
    "abc": (sf.ABC(), (2,)),
}


SHORTLY = ("npe", "abc")
CASES = [name if name in SHORTLY else pytest.param(name, marks=pytest.mark.full) for name in METHODS]


@pytest.fixture(scope="module", params=CASES)
def trained(request):
    method, shape = METHODS[request.param]
    sims = sf.simulate(PRIOR, lambda theta, rng: np.resize(theta, shape) + rng.standard_normal(shape), 600, set_size=3)
    return sf.fit(sims, method, seed=2), np.random.default_rng(0).normal(size=(2, *shape))


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_draws_are_bit_identical(trained, tmp_path):
    posterior, x = trained
    back = sf.load(posterior.save(tmp_path / "model"))
    assert (type(back), back.method, back.prior, back.shape) == (
        type(posterior),
        posterior.method,
        posterior.prior,
        posterior.shape,
    )
    assert back.made == posterior.made
    one, other = (p.sample(x, draws=20, seed=1) for p in (posterior, back))
    assert one.theta.tobytes() == other.theta.tobytes()
    back.save(tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


@pytest.mark.full
def test_mutated_folders(trained, tmp_path):
    hostile_folders.assert_harmless(trained[0].save(tmp_path / "model"), 500)


def _everywhere(value, path=()):
    """Every number in a JSON document, by its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _everywhere(inner, (*path, key))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def test_sizes_that_do_not_fit_the_weights_are_refused(trained, tmp_path):
    folder = trained[0].save(tmp_path / "model")
    text = (folder / "config.json").read_text()
    places = [path for path in _everywhere(json.loads(text)) if path[0] in ("method", "trained") and "history" not in path]
    places = [path for path in places if path[-1] in ("width", "depth", "layers", "members", "largest_set", "cases")]
    assert places
    for path in places:
        config = json.loads(text)
        inner = config
        for key in path[:-1]:
            inner = inner[key]
        for value in (inner[path[-1]] + 1, 10**9):
            inner[path[-1]] = value
            (folder / "config.json").write_text(json.dumps(config))
            with pytest.raises(ModelError):
                sf.load(folder)
    for axes in ([2**31], [2**31] * 8):
        (folder / "config.json").write_text(json.dumps({**json.loads(text), "shape": axes}))
        with pytest.raises(ModelError, match="the file is too small"):
            sf.load(folder)
