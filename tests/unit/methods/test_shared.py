"""What data sets share: regions that hold another one's draws, and cases that need not be made again."""

import dataclasses

import numpy as np
import pytest
import untrained

import scorefold as sf
from scorefold.methods.refine.plan import SMALLEST_SHARE
from scorefold.methods.refine.region import propose, round_number
from scorefold.methods.refine.shared import Shared, each
from scorefold.posterior.refining import Refining
from scorefold.prior.proposal import whole
from scorefold.simulation.simulations import split
from scorefold.tasks.gaussian import standard_normal_prior

PRIOR = standard_normal_prior(2)
PLAN = Refining(5_000, 6, 7, "gaussian", None, None, None, False)


def around(centre, sd=0.05):
    return centre + sd * np.random.default_rng(0).standard_normal((1_000, 2))


def simulated(region, count=1_500):
    return split(sf.simulate(PRIOR.proposing(region), lambda theta, rng: theta, count, seed=1), 1)


REGION = propose("gaussian", around([1.0, -0.5]), 9.0, np.zeros(2))
REFINED = untrained.refined("refined")
SHARED = Shared(proposed=((whole(2), simulated(whole(2))), (REGION, simulated(REGION))))


@pytest.mark.false_failure(1e-6)
def test_a_region_that_holds_the_draws_is_taken_with_all_its_simulations():
    near = around([1.05, -0.52])
    assert SHARED.region_for(near) is REGION
    assert 4_000 - 1_500 - 50 < SHARED.left_to_make(4_000, REGION, 1) < 4_000 - 1_500  # and some of the prior's own
    assert SHARED.left_to_make(1_000, REGION, 1) == SMALLEST_SHARE
    assert SHARED.region_for(around([-1.0, 1.0])) is None
    assert SHARED.region_for(around([1.0, -0.5], sd=0.5)) is None
    assert SHARED.region_for(around([0.0, 0.0], sd=0.4)) is None  # not the prior as a whole, which holds everything


@pytest.mark.false_failure(1e-6)
def test_any_simulation_in_its_frame_serves_a_likelihood():
    theta = PRIOR.from_normal(around([1.0, -0.5]).repeat(2, axis=0)[:1_500])
    there = Shared(placed=(simulated(REGION)._replace(prior=PRIOR, theta=theta),))
    frame = propose("gaussian", around([1.0, -0.5]), 4.0, np.zeros(2))
    assert there.left_to_place(4_000, frame, PRIOR) == 4_000 - 1_500
    away = propose("gaussian", around([-1.0, 0.5]), 4.0, np.zeros(2))
    assert there.left_to_place(4_000, away, PRIOR) == 4_000


def test_the_first_data_set_is_refined_as_if_alone_and_the_others_see_what_was_simulated(tmp_path):
    seen = []

    def one(x, plan, shared):
        seen.append((plan.seed, plan.store, len(shared.placed)))
        return dataclasses.replace(REFINED, n=len(x)), Shared(placed=(SHARED.proposed[0][1],))

    found = each([np.zeros((n, 2)) for n in (1, 2, 3)], PLAN._replace(store=tmp_path), one)
    assert [posterior.n for posterior in found] == [1, 2, 3]
    seeds, stores, shared = zip(*seen, strict=True)
    assert seeds[0] == PLAN.seed
    assert len(set(seeds)) == 3
    assert [path.name for path in stores] == ["data-set-1", "data-set-2", "data-set-3"]
    assert shared == (0, 1, 2)
    seen.clear()
    each([np.zeros((1, 2))], PLAN._replace(store=tmp_path), one)
    assert seen == [(PLAN.seed, tmp_path, 0)]


def test_numbers_of_cases_are_few():
    counts = np.arange(1, 20_000)
    rounded = np.array([round_number(int(count)) for count in counts])
    assert (rounded <= counts).all()
    assert (rounded > counts * 15 / 17).all()
    assert len(np.unique(rounded[(counts >= 4_096) & (counts < 8_192)])) == 16
