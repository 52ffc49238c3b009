"""What holds for every method, on one conjugate task that each was trained on for a moment.

On this task the straight line that methods start from is the truth, so what is checked is that the path from simulations to
draws is right; test_more_than_the_base.py checks that networks learn.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from baseline import LARGEST, METHODS, SHORTLY, misses, observed, simulations
from chance import one_of
from full import shortly

import scorefold as sf
from scorefold.errors import ScorefoldError, UnlikeSimulations, UntrustworthyDraws
from scorefold.methods.choice import Choice

FILES = ("config.json", "weights.safetensors")
NETWORKS = [name for name in METHODS if name != "abc"]


def differ(name, one, other):
    """Whether no draw is in both; ABC's are few and drawn again and again."""
    if name == "abc":
        return not np.array_equal(one, other)
    return not {row.tobytes() for row in one} & {row.tobytes() for row in other}


# The fitted line misses by 0.1 sd a parameter at n = 8 (over 14 seeds the larger of two is 0.12 ± 0.06, and the larger |log
# ratio| of the sds 0.05 ± 0.02): the limits are 6 times that. NUTS has not converged for one seed in 14. ABC keeps few
# of so few simulations: unit/methods/test_abc.py has more.
@pytest.mark.false_failure(1e-6)
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
@pytest.mark.parametrize("every_method", shortly(NETWORKS, *SHORTLY[:-1]), indirect=True)
@pytest.mark.parametrize("n", shortly([LARGEST, 1, 2], LARGEST))
def test_close_to_the_posterior(every_method, n):
    _, posterior = every_method
    x = observed(n)
    draws = one_of(lambda seed: posterior.sample(x, 1_000, seed=seed), lambda draws: draws.info.converged)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.6
    assert stretch < 0.3
    assert draws.n == n


def test_the_seed_decides(every_method):
    name, posterior = every_method
    x = observed(LARGEST)
    one, again, other = (posterior.sample(x, 1_000, seed=seed).theta for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert differ(name, one, other)


@pytest.mark.false_failure(1e-6)
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_the_order_of_observations_does_not_matter(every_method):
    # Means of 1,000 draws worth 400 or more differ by 0.07 sd: six of them.
    _, posterior = every_method
    x = observed(LARGEST)
    one, turned = (posterior.sample(data, 1_000, seed=1).theta for data in (x, x[::-1]))
    assert (np.abs(one.mean(0) - turned.mean(0)) < 0.4 * one.std(0)).all()


def test_a_list_of_data_sets_is_each_of_them(every_method):
    # Item i has its own stream, (seed, i): the first equals a call of its own, and no item depends on the others.
    name, posterior = every_method
    x = observed(LARGEST)
    drawn = posterior.sample([x, x + 0.1], draws=1_000, seed=2)
    assert np.array_equal(drawn[0].theta, posterior.sample(x, draws=1_000, seed=2).theta)
    others = posterior.sample([x - 0.1, x + 0.1], draws=1_000, seed=2)
    assert np.array_equal(drawn[1].theta, others[1].theta)
    assert differ(name, drawn[0].theta, others[0].theta)
    assert differ(name, *(one.theta for one in posterior.sample([x, x], draws=1_000, seed=2)))


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
@pytest.mark.full
def test_many_data_sets_are_each_of_them(every_method):
    _, posterior = every_method
    x = np.stack([observed(LARGEST), observed(LARGEST) + 0.3])
    many = posterior.sample_many(x, 1_000, seed=[3, 4])
    alone = posterior.sample(x[1], 1_000, seed=4).theta
    assert not many.diverged.any()
    np.testing.assert_allclose(many.theta[1], alone, atol=1e-3)


def test_on_disk_it_draws_the_same_bits(every_method, tmp_path):
    _, posterior = every_method
    back = sf.load(posterior.save(tmp_path / "model"))
    for field in ("method", "prior", "shape", "made"):
        assert getattr(back, field) == getattr(posterior, field), field
    assert type(back) is type(posterior)
    one, other = (p.sample(observed(LARGEST), draws=1_000, seed=1) for p in (posterior, back))
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.how == other.how
    back.save(tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


@pytest.mark.parametrize("value", [1e6, -1e30])
def test_absurd_observations_never_pass_silently(every_method, value):
    """Draws that are finite and come with warnings about the data and the draws, or an error that says what went wrong."""
    _, posterior = every_method
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UntrustworthyDraws)
        try:
            drawn = posterior.sample(np.full((LARGEST, 2), value), draws=1_000)
        except ScorefoldError as error:
            assert "\n" not in str(error)  # noqa: PT017
            return
    said = [one for one in caught if issubclass(one.category, UntrustworthyDraws)]
    assert [one.category for one in said] == [UnlikeSimulations, UntrustworthyDraws]
    assert not any("\n" in str(one.message) for one in said)
    assert np.isfinite(drawn.theta).all()
    assert not drawn.info.converged
    assert "DIVERGED" in repr(drawn) or "NOT SETTLED" in repr(drawn)


def test_what_goes_with_other_methods_alone_is_refused(every_method):
    name, posterior = every_method
    option = {"sampler": "langevin"} if name in ("npe", "abc", "nle", "nre") else {"chains": 4}
    with pytest.raises(ScorefoldError, match=r"expected (only|a sampler)"):
        posterior.sample(observed(1), 10, **option)


@pytest.mark.parametrize("every_method", shortly(["npe", "npse", "abc"], "npe", "abc"), indirect=True)
def test_more_observations_than_trained_for_are_refused(every_method):
    _, posterior = every_method
    with pytest.raises(ScorefoldError, match=r"at most 8 observations.*got 9|sets of 9 observations or more; got 0"):
        posterior.sample(observed(9), 10)


@pytest.mark.parametrize("every_method", ["f-npse"], indirect=True)
def test_f_npse_is_pf_npse_with_sets_of_one(every_method):
    """One code path: the same simulations give the same bits."""
    _, one = every_method
    other = sf.fit(simulations(3_000), replace(one.method, set_size=None), seed=0)
    drawn = [p.sample(observed(LARGEST), 1_000, seed=1).theta for p in (one, other)]
    np.testing.assert_array_equal(*drawn)


def test_every_method_is_here():
    assert set(sf.methods.METHODS) - {"auto"} <= set(METHODS)  # which is one of the others


def test_by_default_it_is_the_method_that_the_simulations_ask_for(monkeypatch):
    asked = Choice(METHODS["nle"][0], "a likelihood, as a test says")
    monkeypatch.setattr("scorefold.methods.fit.choose", lambda sims: asked)
    posterior = sf.fit(simulations(300))
    assert posterior.method == asked.method
    assert sf.fit(simulations(300), "abc").method == METHODS["abc"][0]
