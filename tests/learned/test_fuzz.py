"""Garbage in: a ScorefoldError with something to say, or a right answer; never another exception, never NaN.

Everything that a user can call is called with whatever hypothesis thinks of, around one posterior trained for a second. Valid
calls are kept to a few shapes, so that nothing compiles again.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.methods.method import Method
from scorefold.posterior.draws import Draws
from scorefold.simulation.simulations import Simulations

pytestmark = pytest.mark.usefixtures("unchecked")

PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(-2, 4)})
SHORT = settings(max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(SHORT, max_examples=2_000, derandomize=False)


def simulator(theta, rng):
    return theta[[0, 1, 0]] + 0.3 * rng.standard_normal(3)


class Given(NamedTuple):
    posterior: sf.Posterior
    others: list[sf.Posterior]
    """Of the other methods."""
    sims: Simulations
    folder: str

    def __repr__(self):
        return "…"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    sims = sf.simulate(PRIOR, simulator, 150)
    posterior = sf.fit(sims, sf.NPSE(width=8, depth=1, correction=False, training=sf.Training(members=1, steps=50)))
    folder = tmp_path_factory.mktemp("fuzz")
    sf.simulate(PRIOR, simulator, 150, store=folder / "store", workers=0)
    return Given(posterior, [sf.fit(sims, sf.ABC())], sims, str(folder))


@pytest.fixture(scope="module")
def thorough(tiny):
    """With every kind of posterior there is."""
    small = {"width": 8, "depth": 1, "training": sf.Training(members=1, steps=50)}
    methods = [sf.NPE(layers=1, **small), sf.NRE(sampler="vi", steps=20, **small)]
    return tiny._replace(others=[*tiny.others, *(sf.fit(tiny.sims, method) for method in methods)])


@dataclasses.dataclass(frozen=True)
class Ready(Method):
    """A method that has been trained before."""

    posterior: object

    def train(self, sims, seeds, progress, checkpoint=None):
        return [self.posterior for _ in sims]


# What people pass

FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e-45, 1e-300, 1e30, 1e37, 3e38, 1e39, 1e300])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5), st.sampled_from([2**31, 2**63, 2**64, -(2**70), 10**30]), FLOATS,
    st.complex_numbers(), st.text(max_size=5), st.binary(max_size=3), st.sampled_from([np.float32(1), np.int8(2), np.True_]),
    st.dates(), st.just(Ellipsis), st.just(NotImplemented), st.just(float), st.just(len), st.just(object()),
)  # fmt: skip
DTYPES = st.sampled_from(["f8", "f4", "f2", "i8", "u1", "?", "c8", "U2", "S2", "O", "M8[s]", "m8[s]", "V4"])
ODD = {"O": np.array([[1, "a", None]], object), "V4": np.zeros((1, 3), "V4")}
ARRAYS = DTYPES.flatmap(
    lambda dtype: st.just(ODD[dtype]) if dtype in ODD
    else hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)  # fmt: skip
GARBAGE = st.recursive(
    SCALARS | ARRAYS,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.tuples(inside, inside)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 2), inside, max_size=2)
        | st.sets(st.integers(0, 3), max_size=2)
    ),
    max_leaves=5,
)
# Nearly observations: the right shapes, with odd numbers among them.
NEARLY = hnp.arrays("f8", st.sampled_from([(1, 3), (2, 3), (3, 3)]), elements=st.floats(-3, 3) | FLOATS)
OBSERVATIONS = GARBAGE | NEARLY | st.lists(NEARLY, min_size=1, max_size=2) | NEARLY.map(np.ndarray.tolist)
OBSERVATIONS |= NEARLY.map(lambda x: np.ma.masked_array(x, x > 1)) | NEARLY.map(lambda x: x.astype(object))
COUNTS = st.sampled_from([1, 7, 128, np.int64(5)]) | GARBAGE.filter(lambda v: not isinstance(v, int | np.integer) or v < 200)
SEEDS = st.integers(0, 2**70) | GARBAGE
WORDS = st.sampled_from(["diffused", "self-tuned", "auto", "npse", "f-npse", "gaus", ""]) | GARBAGE
MARGINALS = st.sampled_from(
    [stats.norm(0, 1), stats.uniform(0, 1), stats.norm, stats.poisson(3), stats.beta(0.5, 0.5)]
) | st.builds(stats.norm, FLOATS, FLOATS)
KINDS = [
    sf.NPSE, sf.NPE, sf.NLE, sf.NRE, sf.ABC, sf.Training, sf.Batched, sf.embeddings.Convolution, sf.embeddings.Attention,
    *(getattr(sf.rules, name) for name in ("Damped", "Gauss", "Jac", "Diffused", "Tempered")),
    *(getattr(sf.samplers, name) for name in ("SelfTuned", "Langevin", "Transitions", "Ancestral", "DDIM", "DPM",
                                              "ProbabilityFlow", "Metropolis")),
]  # fmt: skip


# What they call; each takes `tiny` and hypothesis's `draw`


def sample(tiny, draw, posterior=None):
    posterior = posterior or tiny.posterior
    options = {k: draw(WORDS) for k in ("rule", "sampler", "set_size", "chains") if draw(st.integers(0, 5)) == 0}
    count = draw(COUNTS) if draw(st.booleans()) else 20
    seed = draw(SEEDS) if draw(st.booleans()) else 0
    x = draw(OBSERVATIONS)
    drawn = posterior.sample(x, draws=count, seed=seed, **options)
    for one in drawn if isinstance(drawn, list) else [drawn]:
        assert isinstance(one, Draws)
        assert one.theta.shape == (count, 2)
        assert np.isfinite(one.theta).all()
        low, high = PRIOR.bounds.T
        assert ((low <= one.theta) & (one.theta <= high)).all()
        repr(one)


def sample_others(tiny, draw):
    sample(tiny, draw, draw(st.sampled_from(tiny.others)))


def sample_many(tiny, draw):
    x = draw(GARBAGE | NEARLY.map(lambda x: x[None]))
    many = tiny.others[0].sample_many(x, draws=draw(COUNTS) if draw(st.booleans()) else 20, seed=draw(SEEDS))
    assert np.isfinite(many.theta[~many.diverged]).all()


def use_draws(tiny, draw):
    drawn = tiny.others[0].sample(np.zeros((1, 3)), draws=20)
    if draw(st.booleans()):
        x = drawn.predict(draw(st.just(simulator) | GARBAGE), draw(st.none() | COUNTS), draw(SEEDS))
        assert x.shape[2:] == (3,)
    else:
        drawn.to_arviz(draw(GARBAGE))


def diagnose(tiny, draw):
    """Of a hundred numbers that are right, one is wrong."""
    right = {"posterior": tiny.others[0], "simulator": simulator, "n": 1, "sims": 20, "draws": 20, "seed": 0, "x_obs": None}
    wrong = draw(st.sampled_from(list(right)))
    few = GARBAGE.filter(lambda v: not isinstance(v, int | np.integer) or v < 200)
    sf.diagnose(**{**right, wrong: draw(few)})


def smc_abc(tiny, draw):
    """One of the arguments is wrong."""
    right = {"prior": PRIOR, "simulator": simulator, "x_obs": np.zeros((1, 3)), "budget": 300, "draws": 20}
    wrong = draw(st.sampled_from([*right, "seed"]))
    few = GARBAGE.filter(lambda v: not isinstance(v, int | np.integer) or v < 200)
    drawn = sf.smc_abc(**{**right, wrong: draw(OBSERVATIONS if wrong == "x_obs" else few)})
    assert np.isfinite(drawn.theta).all()


def refine(tiny, draw):
    """No simulator, and something else that is wrong."""
    right = {"x_obs": np.zeros((1, 3)), "simulator": None, "budget": 500, "rounds": 2, "seed": 0, "sims": None}
    tiny.posterior.refine(**{**right, draw(st.sampled_from(list(right))): draw(GARBAGE)})


def fit(tiny, draw):
    method = draw(
        WORDS.filter(lambda word: not isinstance(word, str) or ("npse" not in word and word != "auto"))
        | st.just(Ready(tiny.posterior))
    )
    sims = draw(st.just(tiny.sims) | GARBAGE)
    if draw(st.integers(0, 3)) == 0:
        field = draw(st.sampled_from(["theta", "x", "sizes", "set_size", "origin", "prior", "budget", "failed"]))
        sims = tiny.sims._replace(**{field: draw(GARBAGE)})
    extra = {}
    if draw(st.integers(0, 3)) == 0:
        extra = {"checkpoint": draw(GARBAGE), "checkpoint_seconds": draw(GARBAGE), "best_so_far": draw(GARBAGE)}
    sf.fit(sims, method, draw(SEEDS), **extra)


def fit_many(tiny, draw):
    sims = draw(st.just([tiny.sims]) | st.just(tiny.sims) | GARBAGE)
    sf.fit_many(sims, Ready(tiny.posterior), draw(st.just([0]) | GARBAGE))


def simulate(tiny, draw):
    result = draw(GARBAGE)
    functions = st.sampled_from([simulator, lambda theta, rng: result, lambda: 0, sf.Batched(lambda theta, key: result)])
    sims = sf.simulate(
        draw(st.just(PRIOR) | GARBAGE),
        draw(functions | GARBAGE),
        draw(st.just(100) | GARBAGE.filter(lambda v: not isinstance(v, int | np.integer) or v < 300)),
        draw(st.sampled_from([1, 2]) | GARBAGE.filter(lambda v: not isinstance(v, int | np.integer) or v < 300)),
        draw(SEEDS),
        **_how(draw),
    )
    assert np.isfinite(sims.x).all()
    repr(sims)


def _how(draw):
    """An odd wish."""
    if draw(st.booleans()):
        return {}
    name = draw(st.sampled_from(["store", "workers", "executor", "count", "timeout", "memory", "max_failures"]))
    odd = GARBAGE.filter(lambda v: not isinstance(v, int | float | str | np.number))  # no folders, processes or waiting
    value = draw(odd | st.sampled_from([-1, -0.5, np.nan, np.inf, True, "", "\0"]))
    if name == "store":
        return {"workers": 0, "store": value}
    return {"workers": value if name == "workers" else sf.Workers(**{name: value})}


def open_store(tiny, draw):
    if draw(st.booleans()):
        sf.Store.open(draw(GARBAGE))
    else:
        sims = sf.Store.open(f"{tiny.folder}/store").simulations(draw(GARBAGE | st.integers(-5, 200)))
        assert sims.budget <= 150


def make_prior(tiny, draw):
    pairs = st.dictionaries(st.text(max_size=3) | SCALARS.filter(_hashable), MARGINALS | GARBAGE, max_size=3)
    normal = st.builds(lambda mean, cov: _normal(mean, cov), st.lists(FLOATS, max_size=2), ARRAYS)
    prior = sf.Prior(draw(pairs | normal | GARBAGE | st.lists(st.tuples(st.text(max_size=2), MARGINALS))),
                     *([draw(GARBAGE)] if draw(st.integers(0, 3)) == 0 else []))  # fmt: skip
    assert np.isfinite(prior.sample(5, 0)).all()
    repr(prior)


def _hashable(value):
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _normal(mean, cov):
    try:
        return stats.multivariate_normal(mean, cov)
    except Exception:
        return None


def prior_from_draws(tiny, draw):
    theta = draw(GARBAGE | hnp.arrays("f8", (100, 2), elements=FLOATS, fill=st.floats(-1, 1)))
    prior = sf.Prior.from_draws(theta, draw(st.none() | GARBAGE), draw(st.none() | GARBAGE))
    assert np.isfinite(prior.sample(5, 0)).all()


def use_prior(tiny, draw):
    call = draw(st.sampled_from(["sample", "to_normal", "from_normal", "log_prob"]))
    if call == "sample":
        assert np.isfinite(PRIOR.sample(draw(COUNTS), draw(SEEDS))).all()
        return
    values = draw(GARBAGE | hnp.arrays("f8", (2, 2), elements=FLOATS))
    result = getattr(PRIOR, call)(values)
    assert not np.isnan(result).any()
    assert call == "log_prob" or np.isfinite(result).all()


def make_settings(tiny, draw):
    kind = draw(st.sampled_from(KINDS))
    names = [field.name for field in dataclasses.fields(kind)]
    values = {name: draw(GARBAGE | WORDS) for name in names if name == "function" or draw(st.integers(0, 2)) == 0}
    made = kind(**values)
    repr(made)
    hash(made)


def save_and_load(tiny, draw):
    place = draw(GARBAGE | st.text(max_size=8).map(lambda word: f"{tiny.folder}/{word.replace('/', '')[:8]}"))
    if isinstance(place, str | bytes) and not str(place).startswith(tiny.folder):
        place = f"{tiny.folder}/x"
    if draw(st.booleans()):
        back = sf.load(tiny.posterior.save(place, draw(st.booleans() | GARBAGE)))
        assert back.method == tiny.posterior.method
    else:
        sf.load(place, draw(st.none() | GARBAGE))


CALLS: list[Callable] = [
    sample, sample, sample_others, sample_many, use_draws, diagnose, smc_abc, refine, fit, fit_many, simulate, simulate,
    open_store, make_prior, prior_from_draws, use_prior, make_settings, make_settings, save_and_load,
]  # fmt: skip


def once(tiny, data):
    call = data.draw(st.sampled_from(CALLS), label="call")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ScorefoldWarning)
        try:
            call(tiny, data.draw)
        except ScorefoldError as error:
            message = str(error)
            assert len(message) > 20, "say something"


@SHORT
@given(data=st.data())
def test_garbage(tiny, data):
    once(tiny, data)


@pytest.mark.full
@LONG
@given(data=st.data())
def test_more_garbage(thorough, data):
    once(thorough, data)
