"""Records → points: means over cells, spread over trainings."""

import math

import numpy as np
import pytest
from pretended import pretended

from scorefold.app.bench.points import METRICS, Series, measured, pick, point, points, series, values

RECORDS = pretended("quick", "task=gaussian")


def test_mean_over_cells_and_spread_over_trainings():
    own = pick(RECORDS, method="f-npse", setting="paper", budget=1_000, n=8)
    found = point(own, "c2st")
    means = [np.mean([r["measures"]["c2st"] for r in pick(own, training=t)]) for t in (0, 1)]
    assert found.cells == len(own) == 4
    assert found.mean == pytest.approx(np.mean(means))
    assert found.spread == pytest.approx(abs(means[0] - means[1]) / math.sqrt(2))


def test_one_training_has_no_spread():
    assert math.isnan(point(pick(RECORDS, training=0), "c2st").spread)


def test_which_metrics_there_are():
    older = {"c2st": 0.6, "mmd2": 0.1, "shift": None, "sd_ratio": None}
    assert measured([{**RECORDS[0], "measures": older}]) == ["mmd2", "c2st"]
    assert measured([{**RECORDS[0], "measures": {**older, "sliced_wasserstein": 0.2}}, *RECORDS]) == list(METRICS)


def test_measures_that_are_not_there_are_left_out():
    lost = [{**r, "measures": {**r["measures"], "shift": None}} for r in RECORDS]
    assert point(lost, "shift") is None
    assert points(lost, "n", "shift") == {}
    assert point([*lost, RECORDS[0]], "shift").cells == 1


def test_points_come_in_order():
    assert list(points(RECORDS[::-1], "n", "mmd2")) == [1, 8, 30]
    assert values(RECORDS[::-1], "budget") == [1_000, 10_000]


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (Series("f-npse", "paper", 1, False, ""), "F-NPSE, paper"),
        (Series("pf-npse", "default", 6, True, ""), "PF-NPSE (m = 6), default, conservative"),
        (Series("pf-npse", "paper", 6, False, "transitions"), "PF-NPSE (m = 6), paper, Algorithm 2"),
        (Series("pf-npse", "paper", 6, False, "langevin a=0.1 L=5"), "PF-NPSE (m = 6), paper, Algorithm 1, a = 0.1, L = 5"),
        (Series("npe", "default", 30, False, ""), "NPE"),
        (Series("own", "default", 1, False, ""), "own"),
    ],
)
def test_labels(line, label):
    assert line.label == label


def test_a_record_knows_its_line():
    assert series(RECORDS[0]) == Series("f-npse", "paper", 1, False, "")
