"""The paper's figures from records: which there are, and what is in them."""

import numpy as np
import pytest
from pretended import pretended

from scorefold.app.bench.bench_figures import all_figures
from scorefold.app.bench.points import points
from scorefold.report.canvas import save

LINES = {f"{axis}_{metric}" for axis in ("budget", "n") for metric in ("mmd2", "c2st")}


@pytest.fixture(scope="module")
def paper():
    """The paper's records for two parameter draws of one task, and the tasks that are looked at."""
    seeds = "training=0,training=1,parameters=1000,parameters=1001,parameters=1006,parameters=1007"
    return pretended("paper", f"task=sir,{seeds}") + pretended("paper", "task=bimodal,task=weinberg")


@pytest.fixture(scope="module")
def figures(paper):
    return all_figures(paper)


def test_every_figure_of_the_paper_is_there(figures):
    assert set(figures) == LINES | {
        "sets_mmd2", "sets_c2st", "conservative", "samplers", "bimodal", "weinberg",
    }  # fmt: skip


def test_only_figures_with_records_are_there():
    assert set(all_figures(pretended("smoke"))) == LINES
    assert set(all_figures(pretended("tiny"))) == LINES | {"bimodal"}


def labels(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_lines_and_labels(figures):
    found = figures
    scores = {f"{method}, {setting}" for method in ("F-NPSE", "PF-NPSE (m = 6)", "NPSE") for setting in ("paper", "default")}
    assert labels(found["budget_c2st"]) == scores | {"NPE", "NLE", "NRE"}
    assert labels(found["sets_c2st"]) == {"PF-NPSE, paper", "PF-NPSE, default"}
    langevin = {f"Algorithm 1, a = {a}, L = {L}" for a, L in ((0.3, 5), (0.1, 5), (0.5, 5), (0.3, 2), (0.3, 10))}
    assert labels(found["samplers"]) == {f"PF-NPSE (m = 6), paper, {name}" for name in (*langevin, "Algorithm 2")}
    assert "NPSE, paper, conservative" in labels(found["conservative"])
    panels = found["budget_mmd2"].axes
    assert [panel.get_title() for panel in panels] == [f"n = {n}" for n in (1, 8, 14, 22, 30)]
    assert all(sum(len(line.get_xdata()) == 4 for line in panel.lines) == 9 for panel in panels)
    assert len(found["sets_c2st"].axes[0].lines[0].get_xdata()) == 6, "F-NPSE is m = 1"


def test_a_band_is_as_wide_as_the_spread():
    records = pretended("quick", "task=sir,method=f-npse,setting=paper,budget=1000")
    (band,) = all_figures(records)["n_mmd2"].axes[0].collections
    found = points(records, "n", "mmd2")
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(max(p.mean + p.spread for p in found.values()))
    assert heights.min() == pytest.approx(min(p.mean - p.spread for p in found.values()))


def test_they_can_be_saved(tmp_path):
    for name, figure in all_figures(pretended("smoke")).items():
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 10_000


def test_methods_differ_in_shape_and_settings_in_dash(figures):
    (legend,) = figures["n_c2st"].legends
    lines = zip(legend.texts, legend.legend_handles, strict=True)
    looks = {text.get_text(): (line.get_marker(), line.get_linestyle()) for text, line in lines}
    assert len(looks) == 9
    assert len(set(looks.values())) == 9
    assert looks["F-NPSE, paper"][0] == looks["F-NPSE, default"][0] != looks["NPE"][0]


@pytest.mark.full
def test_a_study_of_some_tasks_shows_those_side_by_side():
    at = "training=0,training=1,parameters=1000,parameters=1006,budget=10000,setting=paper,method=pf-npse"
    records = pretended("paper", f"task=gaussian,task=sir,task=mixture,{at}")
    kept = [r for r in records if not (r["cell"]["sampler"] and r["cell"]["task"] == "mixture")]
    panels = all_figures(kept)["samplers"].axes
    assert [panel.get_title() for panel in panels] == ["Gaussian\nbudget = 10,000", "SIR\nbudget = 10,000"]
    assert {panel.get_subplotspec().rowspan.start for panel in panels} == {0}


def test_set_sizes_are_shown_where_there_are_three_or_more():
    at = "training=0,parameters=1000,budget=10000,setting=paper,sampler=,conservative=False"
    records = pretended("paper", f"task=gaussian,task=mixture,method=f-npse,method=pf-npse,{at}")
    kept = [r for r in records if r["cell"]["m"] in (1, 6) or (r["cell"]["n"] == 22 and r["cell"]["task"] == "gaussian")]
    (panel,) = all_figures(kept)["sets_c2st"].axes
    assert panel.get_title() == "Gaussian\nn = 22"
    assert "sets_c2st" not in all_figures([r for r in kept if r["cell"]["n"] == 8])


def test_squared_mmd_is_on_a_scale_of_roots(figures):
    for panel in figures["budget_mmd2"].axes:
        ticks, to_pixels = panel.get_yticks(), panel.transData.transform
        heights = {y: float(to_pixels((1_000, y))[1]) for y in (0, 0.01, 0.04)}
        assert heights[0.04] - heights[0] == pytest.approx(2 * (heights[0.01] - heights[0]))
        assert 0 in ticks
        assert len(ticks) >= 3
        tops = [max(line.get_ydata()) for line in panel.lines]
        assert panel.get_ylim()[0] < 0 < max(tops) < panel.get_ylim()[1]
    assert figures["budget_c2st"].axes[0].get_yscale() == "linear"


@pytest.mark.full
def test_weinberg_shows_a_density_for_one_and_for_all_observations(paper):
    for axes in all_figures(paper)["weinberg"].axes:
        one, joint = (line for line in axes.lines if len(line.get_xdata()) > 2)
        assert one.get_color() != joint.get_color()
        for line in (one, joint):
            assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_the_scale_of_roots_has_0_with_its_label(factor):
    records = pretended("quick", "task=sir,setting=paper,method=f-npse,budget=1000")
    larger = [{**r, "measures": {**r["measures"], "mmd2": factor * r["measures"]["mmd2"]}} for r in records]
    (panel,) = all_figures(larger)["n_mmd2"].axes
    assert "0" in [tick.get_text() for tick in panel.get_yticklabels()]
    assert panel.get_ylim()[0] < 0
