"""Which sets to cut observations into: the numbers that are judged, the choice among them, and its words."""

import numpy as np
import pytest

from scorefold.compose.sets import sizes_of_sets
from scorefold.score.set_size import Choice, chosen_size, ladder, numbers, options


def choice(n, best, others=(1,)):
    return Choice(n, best, 41, {**dict.fromkeys(others, 0.4), best: 0.0}, {**dict.fromkeys(others, 0.05), best: 0.0})


def test_a_choice_in_words():
    assert choice(30, 6).why(30, 6) == (
        "sets of up to 6: with that the composed score fits 41 unseen cases of 30 observations best (score-matching loss "
        "against m = 1: +0.4 ± 0.05)"
    )
    words = "all 22 in one set: with m = 24 the composed score fits 41 unseen cases of 24 observations best (the judged number"
    assert choice(24, 24).why(22, 22).startswith(f"{words} nearest to 22; ")


@pytest.mark.parametrize(
    ("table", "n", "size"),
    [
        ({12: 12, 30: 30}, 22, 22),  # one set of 22, by those of 30
        ({12: 12, 30: 6}, 22, 6),
        ({12: 12}, 22, 22),  # as at 12, where one set did best
        ({12: 12, 30: 6}, 13, 13),
        ({12: 3, 30: 30}, 13, 3),
        ({12: 12, 30: 30}, 2, 2),
        ({12: 12, 24: 24}, 100, 24),  # more than one set in any case
        ({12: 12, 30: 6}, 10_000, 6),
    ],
)
def test_the_nearest_number_decides(table, n, size):
    found, why = chosen_size({judged: choice(judged, m) for judged, m in table.items()}, n, 30)
    assert found == size
    assert f"nearest to {n}" in why


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("m", [1, 3, 30])
def test_a_cut_is_even(n, m):
    sizes = sizes_of_sets(n, m)
    assert sizes.sum() == n
    assert len(sizes) == -(-n // m)
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(sizes) <= 0).all()


def test_the_ladder_ends_at_the_largest():
    assert ladder(1) == [1]
    assert ladder(8) == [1, 2, 3, 6, 8]
    assert ladder(30) == [1, 2, 3, 6, 12, 30]


@pytest.mark.parametrize("largest", [2, 3, 8, 30, 100, 1_000])
def test_every_number_has_one_nearby_that_is_judged(largest):
    judged = numbers(largest)
    assert judged[-1] == largest
    assert len(judged) <= 30
    assert all(min(abs(np.log(n / one)) for one in judged) < np.log(7 / 6) for n in range(2, largest + 1))


@pytest.mark.parametrize(
    ("n", "compete"),
    [(2, [1, 2]), (4, [1, 2, 4]), (8, [1, 2, 3, 6, 8]), (22, [1, 2, 3, 6, 12, 22]), (30, [1, 2, 3, 6, 12, 30])],
)
def test_one_set_of_all_competes_and_no_cut_twice(n, compete):
    assert options(n, 30) == compete
    assert len({len(sizes_of_sets(n, m)) for m in compete}) == len(compete)
