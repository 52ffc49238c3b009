"""Posteriors with all that belongs to them, in random numbers: for what does not need right draws."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.density.cells import Lattice
from scorefold.density.coordinates import Coordinates
from scorefold.density.masked_line import MaskedLine
from scorefold.methods.load import POSTERIORS
from scorefold.methods.refine.never_worse import Compared, Judged
from scorefold.methods.refine.refined import RefinedPosterior, Round
from scorefold.methods.refine.region import Fit
from scorefold.methods.refine.score_summaries import Summaries
from scorefold.posterior.made import Made
from scorefold.posterior.modes import Mode
from scorefold.posterior.reach import fit_reach
from scorefold.posterior.saved import About
from scorefold.posterior.trust import Disagreement
from scorefold.prior.proposal import GaussianProposal, TruncatedProposal
from scorefold.score.correction import Correction
from scorefold.score.local_mean import LocalMean
from scorefold.score.masked_base import MaskedBase
from scorefold.score.set_size import Choice
from scorefold.train.training import History

SHORT = sf.Training(members=2, steps=50)
MARGINALS = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 1)})
NORMAL = sf.Prior(stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]]), names=["a", "b"])
DRAWS = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(200, 2)), names=["a", "b"])


def own_embedding(shape, key):
    return eqx.nn.MLP(shape[0], 3, 4, 1, key=key)


SMALL = {"width": 4, "depth": 1, "training": SHORT}

# (method, prior, shape of an observation, largest set, and perhaps how many of its numbers are inputs, and counts)
SCORES = {
    "f-npse": (sf.NPSE(set_size=1, **SMALL), MARGINALS, (2,), 1),
    "pf-npse": (sf.NPSE(**SMALL), MARGINALS, (2,), 3),
    "npse": (sf.NPSE(composes=False, **SMALL), MARGINALS, (2,), 3),
    "conservative": (
        sf.NPSE(conservative=True, sampler=sf.samplers.Metropolis(levels=3, last=3), **SMALL), MARGINALS, (2,), 1,
    ),
    "without base and correction": (
        sf.NPSE(base=False, correction=False, schedule="cosine", T=50, **SMALL), MARGINALS, (2,), 1,
    ),
    "rule and sampler": (sf.NPSE(rule=sf.rules.Damped(batch=7), sampler="langevin", **SMALL), MARGINALS, (2,), 1),
    "convolution": (sf.NPSE(embedding="convolution", **SMALL), MARGINALS, (12,), 1),
    "configured convolution": (
        sf.NPSE(embedding=sf.embeddings.Convolution(channels=(2, 3), out=4), **SMALL), MARGINALS, (5, 2), 2,
    ),
    "attention": (sf.NPSE(embedding=sf.embeddings.Attention(width=8, heads=2, layers=1), **SMALL), MARGINALS, (4, 2), 1),
    "own embedding": (sf.NPSE(embedding=own_embedding, **SMALL), MARGINALS, (3,), 1),
    "multivariate normal": (sf.NPSE(**SMALL), NORMAL, (2,), 1),
    "prior from draws": (sf.NPSE(**SMALL), DRAWS, (2,), 2),
    "scalar observations": (sf.NPSE(**SMALL), MARGINALS, (), 2),
    "missing numbers": (sf.NPSE(missing=True, **SMALL), MARGINALS, (3,), 2),
}  # fmt: skip
CASES = {
    **SCORES,
    "npe": (sf.NPE(layers=2, **SMALL), MARGINALS, (2,), 3),
    "npe, splines, no base": (sf.NPE(flow="spline", layers=2, base=False, **SMALL), MARGINALS, (), 3),
    "npe, convolution": (
        sf.NPE(layers=1, embedding=sf.embeddings.Convolution(channels=(2,), out=3), **SMALL), MARGINALS, (8,), 3,
    ),
    "nle": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (2,), 3),
    "nle, one number": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (), 3),
    "nle, inputs": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (3,), 3, 1),
    "nle, counts": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (4,), 3, 1, 2),
    "nle, counts alone": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (2,), 3, 0, 2),
    "nle, several modes": (sf.NLE(layers=2, sampler="vi", steps=20, **SMALL), MARGINALS, (3,), 3, 1, 0, 2),
    "nle, as before": (
        sf.NLE(layers=2, tails=False, straighten=False, changing=False, edges=False, sampler="vi", steps=20, **SMALL),
        MARGINALS,
        (2,),
        3,
    ),
    "nre, as before": (sf.NRE(straighten=False, sampler="vi", steps=20, **SMALL), MARGINALS, (2,), 3),
    "nle, missing numbers": (sf.NLE(layers=2, missing=True, sampler="vi", steps=20, **SMALL), MARGINALS, (3,), 3, 1),
    "nle, no base": (sf.NLE(layers=2, base=False, sampler="vi", steps=20, **SMALL), MARGINALS, (2,), 3),
    "nre": (sf.NRE(sampler="vi", steps=20, **SMALL), MARGINALS, (2,), 3),
    "nre, no base": (sf.NRE(base=False, sampler="vi", steps=20, **SMALL), MARGINALS, (3,), 3),
    "nre, missing numbers": (sf.NRE(sampler="vi", steps=20, missing=True, **SMALL), MARGINALS, (3,), 3),
    "npe, missing numbers": (sf.NPE(layers=2, missing=True, **SMALL), MARGINALS, (3,), 3),
    "abc": (sf.ABC(), MARGINALS, (2,), 3),
}  # fmt: skip
REFINED = ("refined", "refined with summaries", "refined by a likelihood")
HISTORY = History(
    np.ones((2, 2), np.float32), np.array([[1, np.nan, 2]] * 2, np.float32), np.array([0, 2]), 3, 2e-3, {2e-3: 1.0}, 4
)
LOCAL = LocalMean(
    np.array([0.1, -0.2]), 2 * np.eye(2), np.array([0.01, 0.02]), 0.01 * np.eye(2), np.array([[0.9, 0.1], [0.0, 1.1]]),
    0.01 * np.eye(2), np.array([0.1, 0.2]), 0.01, 0.3,
)  # fmt: skip
MADE = Made(3, 2**70, 400, 7, {"jax": "1", "é": "2"})


def untrained(case):
    """A posterior of random numbers, with all that belongs to it."""
    return refined(case) if case in REFINED else random_posterior(*CASES[case])


def random_posterior(method, prior, shape, largest, inputs=0, whole=0, modes=0):
    kind = next(kind for kind, methods in POSTERIORS.items() if isinstance(method, methods))
    counts = {"largest_set": largest, "inputs": inputs, "whole": whole, "modes": modes}
    about = About(method, prior.dim, prior.has_density, shape, counts, 10**9)
    rng = np.random.default_rng(0)
    table = {3: Choice(3, 1, 20, {1: 0.0, 3: np.nan}, {1: 0.0, 3: 0.01})} if largest == 3 else {}
    sets = {"u": rng.normal(size=(9, prior.dim)), "x": rng.normal(size=(9, largest, math.prod(shape))).astype(np.float32)}
    seen = math.prod(shape) * (2 if getattr(method, "missing", False) else 1)
    values = {
        "prior": prior, "method": method, "shape": shape, "history": HISTORY, "made": MADE, "largest_set": largest,
        "inputs": inputs, "whole": whole, "modes": modes,
        "least_noise": 0.02, "table": table, "sizes": np.arange(9) % largest + 1,
        "reach": random_reach(prior.dim, seen, rng), "local": LOCAL if prior is NORMAL else None, **sets,
        **{name: random_tree(like, rng) for name, like in zip(kind.networks, kind.blank(about), strict=True)},
    }  # fmt: skip
    if isinstance(method, sf.ABC):
        del values["history"]
    return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values})


def random_reach(dim, x, rng):
    return fit_reach(rng.normal(size=(50, x)), rng.normal(size=(50, dim)))


def random_tree(like, rng):
    def one(part):
        if isinstance(part, Correction):
            part = dataclasses.replace(jax.tree.map(one, part), t=jnp.linspace(1.0, 9.0, len(part.t)))
            return part
        if isinstance(part, MaskedBase | MaskedLine):
            return dataclasses.replace(jax.tree.map(one, part), noise=jnp.eye(len(part.noise)))
        if isinstance(part, Lattice):
            count = len(part.low)
            return Lattice(jnp.arange(len(part.order))[::-1], jnp.zeros(count), jnp.ones(count), 1.0 + jnp.arange(count))
        if isinstance(part, Coordinates):
            return Coordinates(jnp.cumsum(rng.uniform(size=part.values.shape), axis=1), jnp.ones(part.slopes.shape))
        return jnp.asarray(rng.uniform(0.1, 0.9, part.shape), part.dtype)

    special = Correction | MaskedBase | MaskedLine | Lattice | Coordinates
    return jax.tree.map(one, like, is_leaf=lambda part: isinstance(part, special))


def refined(case):
    """By hand: a region, and a start that observations are seen through."""
    method = CASES["pf-npse"][0]
    gaussian = GaussianProposal(np.array([0.1, -0.3]), np.array([[0.2, 0.05], [0.05, 0.1]]))
    box = TruncatedProposal(np.eye(2), np.array([-1.0, -0.5]), np.array([0.5, 1.0]))
    joined = case == "refined with summaries"
    local = random_posterior(method, MARGINALS.proposing(gaussian), (4,) if joined else (2,), 3)
    start = random_posterior(dataclasses.replace(method, width=6), MARGINALS, (2,), 3)
    summaries = Summaries(start, np.array([0.1, -0.3])) if joined else None
    some = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    modes = (Mode(np.array([0.1, 0.2]), 0.7, None), Mode(np.array([-0.1, 0.2]), 0.3, 0.05))
    rounds = tuple(
        Round(region, engine, 300, 1, 280, 20, 0.5, Fit(0.0, np.inf, (0.2, 0.4)), False, False, 0.1, np.nan, *rest)
        for region, engine, rest in ((box, "line", ()), (gaussian, "scores", (some, some / 2, modes, 1)))
    )
    compared = Compared(600, (Judged("the start", 0.4, 0.1), Judged("scores", np.inf, 0.0)), "the start")
    beside = None
    if case == "refined by a likelihood":
        local = random_posterior(CASES["nle"][0], MARGINALS.proposing(gaussian), (2,), 1)
        beside = Disagreement(np.array([[0.1, -0.2], [-0.1, 0.2]]), np.array([[0.05, 0.0], [-0.05, 0.0]]))
    return RefinedPosterior(MARGINALS, (2,), local, summaries, 12, rounds, True, compared, MADE, beside)


def loaded(case, folder):
    return sf.load(folder, embedding=own_embedding) if case == "own embedding" else sf.load(folder)
