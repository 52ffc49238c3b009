"""Figures: what a reader must be able to see in them."""

import struct
import warnings
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from scorefold.errors import ScorefoldError
from scorefold.report.canvas import save
from scorefold.report.corner import corner
from scorefold.report.health_figures import sampler_health, training_curve
from scorefold.report.kernel_density import marginal
from scorefold.report.palette import BLUE, INK, ORANGE

rng = np.random.default_rng(0)


def names(dim):
    return [f"theta {k + 1}" for k in range(dim)]


def normal(draws, dim=1):
    return np.random.default_rng(draws + dim).normal(size=(draws, dim))


def two_modes(draws=1000):
    sides = np.where(np.arange(draws) % 2, 1, -1)[:, None] * [5.0, 3.0]
    return sides + 0.3 * normal(draws, 2)


def line(axes, colour):
    """The (x, y) of the one line of a colour."""
    (found,) = [artist for artist in axes.lines if to_hex(artist.get_color()) == colour.lower()]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def labels(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def pixels(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


# Corner


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_corner_has_a_triangle_of_panels_with_labels_outside(dim):
    figure = corner(normal(300, dim), names(dim))
    assert len(figure.axes) == dim * (dim + 1) // 2
    assert [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()] == names(dim)
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == names(dim)[1:]
    assert all(axes.has_data() for axes in figure.axes)


def test_panels_of_one_parameter_share_their_limits():
    figure = corner(normal(300, 3) * [1, 10, 100], names(3))
    places = [(row, column) for row in range(3) for column in range(row + 1)]
    for (row, column), axes in zip(places, figure.axes, strict=True):
        on_diagonal = figure.axes[places.index((column, column))]
        assert axes.get_xlim() == on_diagonal.get_xlim()
        if row != column:
            assert axes.get_ylim() == figure.axes[places.index((row, row))].get_xlim()


@pytest.mark.parametrize("dim", [1, 2])
def test_legend_names_what_is_shown_and_nothing_else(dim):
    cloud = normal(200, dim)
    assert labels(corner(cloud, names(dim))) == ["draws"]
    everything = corner(cloud, names(dim), reference=cloud, truth=np.zeros(dim), prior=3 * cloud)
    assert labels(everything) == ["draws", "reference", "prior", "truth"]


def test_legend_lies_in_the_empty_triangle():
    figure = corner(normal(200, 2), names(2), normal(300, 2), np.zeros(2), "a title", normal(300, 2))
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_limits_hold_both_modes_and_the_valley_shows():
    draws = two_modes()
    figure = corner(draws, names(2))
    for axes, values in ((figure.axes[0], draws[:, 0]), (figure.axes[2], draws[:, 1])):
        low, high = axes.get_xlim()
        assert np.mean((low < values) & (values < high)) > 0.99
        x, density = line(axes, BLUE)
        peaks = [density[x < 0].max(), density[x > 0].max()]
        assert density[np.argmin(np.abs(x))] < 0.02 * min(peaks)
        true_peak = 0.5 / (0.3 * np.sqrt(2 * np.pi))
        np.testing.assert_allclose(peaks, true_peak, rtol=0.25)


def test_limits_hold_draws_reference_and_truth():
    figure = corner(normal(500), names(1), reference=normal(50) + 20, truth=np.array([-30.0]))
    low, high = figure.axes[0].get_xlim()
    assert low < -30
    assert 21 < high < 40


@pytest.mark.parametrize("count", [50, 1000])
def test_a_lone_outlier_does_not_move_the_limits_far(count):
    draws = normal(count, 2)
    draws[0] = [1e6, -1e9]
    figure = corner(draws, names(2))
    for axes in (figure.axes[0], figure.axes[2]):
        low, high = axes.get_xlim()
        assert -6 < low < high < 6
        _, density = line(axes, BLUE)
        assert density.max() == pytest.approx(0.4, rel=0.35)


def test_a_hard_bound_keeps_its_edge():
    exponential = np.random.default_rng(3).exponential(size=(1000, 1))
    x, density = line(corner(exponential, names(1)).axes[0], BLUE)
    assert x.min() >= 0
    assert density[x < 0.1].max() > 0.75
    low, _ = corner(exponential, names(1)).axes[0].get_xlim()
    assert low < 0  # room to see the edge


@pytest.mark.false_failure(1e-9)
def test_few_draws_of_a_tail_are_not_taken_for_a_bound():
    """By how close the first draws lie to each other alone, one tail in fifteen was."""
    rng = np.random.default_rng(0)
    edges = [not marginal(rng.normal(size=200))[1][[1, -2]].max() < 0.02 for _ in range(200)]
    assert sum(edges) < 10, "it would be 26"


def test_tails_fade_out():
    _, density = line(corner(normal(1000), names(1)).axes[0], BLUE)
    assert density[1] < 0.01 * density.max()
    assert density[-2] < 0.01 * density.max()


@pytest.mark.parametrize("cloud", [normal(1000), two_modes()[:, :1], np.abs(normal(1000))], ids=str)
def test_marginals_integrate_to_one(cloud):
    figure = corner(cloud, names(1), reference=cloud[::2])
    for colour in (BLUE, INK):
        x, density = line(figure.axes[0], colour)
        assert np.trapezoid(density, x) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("slope", [0.0, 0.8, 0.98])
def test_the_outer_region_holds_nine_draws_in_ten(slope):
    draws = normal(2000, 2)
    draws[:, 1] = slope * draws[:, 0] + np.sqrt(1 - slope**2) * draws[:, 1]
    outline = corner(draws, names(2)).axes[1].collections[1].get_paths()[0]
    assert outline.contains_points(draws).mean() == pytest.approx(0.9, abs=0.02)
    area = np.prod(np.ptp(outline.vertices, axis=0))
    assert area == pytest.approx((2 * 2.146) ** 2, rel=0.25)  # χ²₂ at 0.9 is 2.146², whatever the slope


def test_round_modes_stay_round_on_a_diagonal():
    regions = corner(two_modes(), names(2)).axes[1].collections[1].get_paths()[0].to_polygons()
    assert len(regions) == 2
    for region in regions:
        assert abs(np.corrcoef(region.T)[0, 1]) < 0.15


def test_truth_is_drawn_in_every_panel():
    figure = corner(normal(200, 3), names(3), truth=np.array([0.1, 0.2, 0.3]))
    for axes in figure.axes:
        assert any(to_hex(artist.get_color()) == ORANGE.lower() for artist in axes.lines)


def test_large_and_small_units_leave_short_tick_labels():
    figure = corner(normal(300, 3) * [1e-7, 1.0, 1e9] + [0, 12345, 0], names(3))
    bottom = figure.axes[-3:]
    assert all(len(tick.get_text()) <= 5 for axes in bottom for tick in axes.get_xticklabels())
    assert "10^{\N{MINUS SIGN}7}" in bottom[0].get_xlabel()


def test_outer_labels_do_not_overlap():
    figure = corner(normal(200, 7) * 1234.5, [f"a_rather_long_name_{k}" for k in range(7)])
    figure.draw_without_rendering()
    bottom = figure.axes[-7:]
    boxes = [axes.xaxis.label.get_window_extent() for axes in bottom]
    assert all(a.x1 <= b.x0 for a, b in pairwise(boxes))
    for axes in bottom:
        ticks = [tick.get_window_extent() for tick in axes.get_xticklabels()]
        assert len(ticks) >= 2
        assert not any(axes.xaxis.label.get_window_extent().overlaps(tick) for tick in ticks)


@pytest.mark.parametrize("draws", [2, 3, 21])
def test_few_draws_and_equal_draws_are_drawn_quietly(draws):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corner(normal(draws, 2), names(2))
        corner(np.full((draws, 2), 3.5), names(2), reference=normal(draws, 2))


# Training and sampler


@pytest.mark.false_failure(0)
def test_training_curve_shows_members_means_and_kept_epochs():
    train = rng.normal(size=(3, 40)) + 5
    validation = rng.normal(size=(3, 41)) + 6
    (axes,) = training_curve(train, validation, np.array([0, 20, 40]), 2, "title").axes
    assert len(axes.lines) == 3 + 1 + 3 + 1 + 1
    kept = axes.lines[-1]
    np.testing.assert_array_equal(kept.get_xdata(), [0, 40, 80])
    np.testing.assert_allclose(kept.get_ydata(), validation[[0, 1, 2], [0, 20, 40]])
    assert any(np.array_equal(artist.get_ydata(), validation.mean(0)) for artist in axes.lines[:-1])
    assert axes.get_title(loc="left") == "title"


def test_a_steep_start_does_not_flatten_the_training_curve():
    loss = 1 + 0.2 * np.exp(-np.arange(100) / 30)[None]
    loss[0, 0] = 1e6
    (axes,) = training_curve(loss, np.concatenate([loss[:, :1], loss], axis=1), np.array([100])).axes
    low, high = axes.get_ylim()
    assert low < 1.01
    assert 1.2 < high < 2


def test_sampler_health_runs_from_noise_to_signal():
    gamma = 1 / (1 + np.exp(np.linspace(-9, 9, 30)))
    step, q, stein = np.geomspace(1e-4, 1, 30), np.geomspace(0.5, 100, 30), np.linspace(0.9, 1.3, 30)
    drift = np.linspace(0.3, 0.02, 30)
    panels = sampler_health(gamma, step, q, stein, drift, "title").axes
    assert len(panels) == 4
    assert panels[0].get_xlim()[0] > panels[0].get_xlim()[1]
    for axes, values in zip(panels, (step, q, stein, drift), strict=True):
        x, y = line(axes, BLUE)
        assert (np.diff(x) < 0).all()
        np.testing.assert_allclose(x, np.log10(np.sqrt((1 - gamma) / gamma))[::-1])
        np.testing.assert_allclose(y, values[::-1])
        low, high = axes.get_ylim()
        assert low < values.min()
        assert high > values.max()
    assert panels[1].get_yscale() == "log"
    for axes, right in zip(panels[1:], (1, 1, 0), strict=True):
        assert (line(axes, ORANGE)[1] == right).all()
        assert axes.get_ylim()[0] <= right < axes.get_ylim()[1]
        assert len(axes.patches) == 1, "a band for what is allowed"


@pytest.mark.parametrize("panel", [2, 3])
def test_one_value_does_not_squash_the_others(panel):
    gamma = 1 / (1 + np.exp(np.linspace(-9, 9, 60)))
    values = {name: np.full(60, right) for name, right in (("step", 0.1), ("q", 1.0), ("stein", 1.0), ("drift", 0.02))}
    values["stein" if panel == 2 else "drift"][7] = 500.0
    axes = sampler_health(gamma, **values).axes[panel]
    assert axes.get_ylim()[1] < 2
    assert [text.get_text() for text in axes.texts] == ["500"], "it is marked, with its value"


def test_sampler_health_survives_zeros():
    gamma = np.linspace(0.1, 0.9, 5)
    sampler_health(gamma, np.zeros(5), np.zeros(5), np.zeros(5), np.zeros(5)).draw_without_rendering()


# Files


@pytest.mark.parametrize("dim", [1, 4, 10])
def test_save_writes_a_png_of_sane_size(tmp_path, dim):
    path = save(corner(normal(200, dim), names(dim), title="title"), tmp_path / "new" / "folder" / "corner.png")
    width, height = pixels(path)
    assert 500 < width < 2500
    assert 400 < height < 2500
    assert path.stat().st_size > 5_000


def test_save_crops_nothing(tmp_path):
    cloud = normal(200, 2)
    short = pixels(save(corner(cloud, ["a", "b"]), tmp_path / "short.png"))
    tall = pixels(save(corner(cloud, ["a", "b"], title="t" * 200), tmp_path / "tall.png"))
    assert tall[0] > short[0] + 500


# Errors


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: corner(normal(50, 3), names(2)), r"draws of shape \(any, 2\); got \(50, 3\)"),
        (lambda: corner(normal(50, 2)[:, 0], names(2)), "draws of shape"),
        (lambda: corner(np.empty((0, 2)), names(2)), "draws of shape"),
        (lambda: corner(normal(1, 2), names(2)), "at least 2 draws"),
        (lambda: corner(np.empty((5, 0)), []), "one name per parameter"),
        (lambda: corner(np.full((9, 1), np.nan), names(1)), "finite draws; got 9 non-finite of 9"),
        (lambda: corner(normal(9, 2), names(2), reference=normal(9, 3)), "reference of shape"),
        (lambda: corner(normal(9, 2), names(2), prior=normal(9, 1)), "prior of shape"),
        (lambda: corner(normal(9, 2), names(2), truth=np.zeros(3)), "truth of shape"),
        (lambda: corner(normal(9, 2), names(2), truth=np.array([0, np.inf])), "finite truth"),
        (lambda: training_curve(np.ones((2, 5)), np.ones((2, 5)), np.zeros(2)), "validation of shape"),
        (lambda: training_curve(np.ones((2, 5)), np.ones((2, 6)), np.zeros(3)), "kept of shape"),
        (lambda: training_curve(np.ones((2, 5)), np.ones((2, 6)), np.array([0, 6])), "from 0 to 5"),
        (lambda: sampler_health(np.array([0.5, 1.0]), *np.ones((4, 2))), "0 < gamma < 1"),
        (lambda: sampler_health(np.array([0.5, 0.9]), *np.ones((4, 4))), "step of shape"),
        (lambda: sampler_health(np.array([0.5]), np.ones(1), np.array([np.nan]), np.ones(1), np.ones(1)), "finite q"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, message):
    with pytest.raises(ScorefoldError, match=message):
        draw()
