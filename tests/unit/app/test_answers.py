"""What `benchmarks/answers.py` measures against, and the table that it makes."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import answers_table
import exact_answers as exact
from scorefold.tasks.gaussian import VARIANCES

RNG = np.random.default_rng(0)
X = 0.5 + np.sqrt(VARIANCES) * RNG.standard_normal((4, 10))
TASKS = pytest.mark.parametrize("task", [exact.GAUSSIAN, exact.MIXTURE], ids=lambda task: task.name)


@TASKS
def test_the_joint_density_is_the_task_s(task):
    theta = RNG.standard_normal((3, 10))
    at, x = jnp.asarray(theta, jnp.float32), jnp.asarray(X, jnp.float32)
    terms = [sum(float(task.log_likelihood(one, observation)) for observation in x) for one in at]
    right = stats.norm.logpdf(theta).sum(axis=1) + terms
    np.testing.assert_allclose(exact.log_joint(task, theta, X), right, rtol=1e-4)


@TASKS
def test_nothing_near_is_higher_than_the_maximum(task):
    top = exact.highest(task, X)
    near = top + 0.02 * RNG.standard_normal((200, 10))
    assert exact.log_joint(task, near, X).max() < exact.log_joint(task, top[None], X)[0]


@pytest.mark.false_failure(1e-9)  # 10⁵ draws tell it to a hundredth of a nat
@TASKS
def test_evidence_of_one_observation(task):
    theta = stats.norm(X[0] / 2, 1).rvs((100_000, 10), random_state=RNG)
    by_draws = exact.log_joint(task, theta, X[:1]) - stats.norm(X[0] / 2, 1).logpdf(theta).sum(axis=1)
    assert abs(exact.exact_evidence(task, X[:1]) - (logsumexp(by_draws) - np.log(len(theta)))) < 0.3


@pytest.mark.false_failure(1e-12)  # nine standard errors
def test_another_prior_is_half_as_wide_in_the_space_of_the_first():
    for task in (exact.GAUSSIAN, exact.SIR):
        u = task.prior.to_normal(exact.other_prior_of(task, 1.0).sample(2_000, 0))
        np.testing.assert_allclose(u.mean(axis=0), 1.0, atol=0.1)
        np.testing.assert_allclose(u.std(axis=0), 0.5, atol=0.1)


def test_the_table(tmp_path):
    path = tmp_path / "answers.jsonl"
    other = {"part": "other_prior", "task": "sir", "n": 8, "seed": 0}
    moderate = {**other, "prior": "moderate", "said": ""}
    beside = {"map_off": 0.2, "mean_off": 0.15}
    lines = [
        {"part": "density", "scores": "conservative", "n": 1000, "largest": 9.0, "map_off": 0.0, "cpu_seconds": 1.0},
        {"part": "density", "scores": "conservative", "n": 1000, "largest": 0.02, "map_off": 0.001, "cpu_seconds": 5.0},
        {"part": "exact", "task": "mixture", "n": 1, "data": 700, "off": -0.03, "map_off": 0.01},
        {"part": "evidence", "task": "mixture", "n": 30, "seed": 0, "data": 700, "off": -0.1, "error": 0.2},
        {"part": "evidence", "task": "mixture", "n": 30, "seed": 1, "data": 700, "off": 0.3, "error": 0.4, **beside},
        {"part": "evidence", "task": "mixture", "sims": 40_000, "n": 30, "seed": 1, "data": 700, "off": 0.1, "error": 0.1},
        {**moderate, "data": 700, "changed": 0.55, "trained under it": 0.56, "own": 0.54, "reweighed": 0.5},
        {**moderate, "data": 701, "changed": 0.58, "trained under it": 0.56, "own": 0.56, "reweighed": 0.5},
        {**other, "prior": "far", "data": 700, "changed": 0.7, "said": "warned"},
        {**other, "prior": "beyond", "data": 700, "said": "refused"},
        {"part": "missing", "method": "NPSE", "n": 30, "seed": 0, "data": 700, "c2st": 0.53},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    rows = answers_table.table(path).splitlines()
    assert len(rows) == 2 + 8
    assert "0.02 nat off at most" in rows[2], "the later of two results counts"
    assert "2 trainings × 1 data set | evidence 0.30 nat off at most, 0.20 in the mean; stated error 0.30;" in rows[4]
    assert rows[4].endswith("; maximum 0.20 sd off at most, mean 0.15 sd off at most |")
    assert "from 40,000 simulations, n = 30, 1 training × 1 data set | evidence 0.10 nat off at most" in rows[5]
    assert "C2ST 0.565 ± 0.015; trained under it 0.560 ± 0.000; difference +0.005 ± 0.015; the change itself 0.500" in rows[6]
    assert rows[6].endswith("under the first prior 0.550; warned of in 0 of 2 |")
    assert rows[8].endswith("| refused |")
