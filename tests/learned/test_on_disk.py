"""Variants of every method on disk: what is saved draws the same bits, and what was changed is refused.

The plain methods are in test_every_method.py, and what needs no training is in survival/test_saved.py.
"""

import dataclasses
import json
import warnings

import hostile_folders
import numpy as np
import pytest
from scipy import stats
from untrained import CASES, own_embedding

import scorefold as sf
from scorefold.errors import ModelError, ScorefoldWarning

pytestmark = [pytest.mark.usefixtures("quick_to_compile"), pytest.mark.full]

FILES = ("config.json", "weights.safetensors")
SHORT = sf.Training(members=2, steps=50)
PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 1)})
SMALL = {"width": 4, "depth": 1, "training": SHORT}
BASELINES = {
    "npe": (sf.NPE(layers=2, **SMALL), (2,)),
    "npe, splines, no base": (sf.NPE(flow="spline", layers=2, base=False, **SMALL), ()),
    "npe, convolution": (sf.NPE(layers=1, embedding=sf.embeddings.Convolution(channels=(2,), out=3), **SMALL), (8,)),
    "nle": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), (2,)),
    "nle, no base": (sf.NLE(layers=2, base=False, sampler="vi", steps=20, **SMALL), (2,)),
    "nre": (sf.NRE(sampler="vi", steps=20, **SMALL), (2,)),
    "nre, no base": (sf.NRE(base=False, sampler="vi", steps=20, **SMALL), (3,)),
    "abc": (sf.ABC(), (2,)),
}
# Method, prior, shape of an observation, largest set.
VARIANTS = {
    **{name: (method, PRIOR, shape, 3) for name, (method, shape) in BASELINES.items()},
    **{name: (dataclasses.replace(method, width=8, depth=1, training=SHORT), *rest) for name, (method, *rest) in CASES.items()},
}


def simulator(shape):
    return lambda theta, rng: np.resize(theta, shape) + 0.5 * rng.standard_normal(shape)


@pytest.fixture(scope="module", params=VARIANTS)
def trained(request):
    """A posterior, observations, how to draw for them and how to load it again."""
    method, prior, shape, largest = VARIANTS[request.param]
    sims = sf.simulate(prior, simulator(shape), 600, set_size=largest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)  # it is trained for a moment only
        posterior = sf.fit(sims, method, seed=2)
    # Without a base, a network trained for a moment is wrong enough for composed scores to diverge.
    n = 1 if isinstance(method, sf.NPSE) and not method.base else 2
    x = np.random.default_rng(1).normal(size=(n, *shape))
    how = {"set_size": "auto"} if request.param == "pf-npse" else {}
    extra = {"embedding": own_embedding} if request.param == "own embedding" else {}
    return posterior, x, how, extra


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_draws_are_bit_identical(trained, tmp_path):
    posterior, x, how, extra = trained
    back = sf.load(posterior.save(tmp_path / "model"), **extra)
    for field in ("method", "prior", "shape", "made"):
        assert getattr(back, field) == getattr(posterior, field), field
    assert type(back) is type(posterior)
    one, other = (p.sample(x, draws=20, seed=1, **how) for p in (posterior, back))
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.how == other.how
    back.save(tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


@pytest.mark.parametrize("trained", BASELINES, indirect=True)
def test_mutated_folders(trained, tmp_path):
    hostile_folders.assert_harmless(trained[0].save(tmp_path / "model"), 500)


def _everywhere(value, path=()):
    """Every number in a JSON document, by its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _everywhere(inner, (*path, key))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


@pytest.mark.parametrize("trained", BASELINES, indirect=True)
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
