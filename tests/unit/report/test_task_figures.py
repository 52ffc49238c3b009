"""The picture of a task's simulations, and the command that draws it."""

import numpy as np
import pytest
from command_line import call

from scorefold import tasks
from scorefold.errors import ScorefoldError
from scorefold.report import canvas, task_figures

RNG = np.random.default_rng(0)
SERIES = (("prey", (0.0, 1.0, 2.0), True), ("predators", (0.0, 1.0, 2.0), False))


@pytest.mark.parametrize(
    ("x", "series", "panels"),
    [
        (RNG.normal(size=(100, 1)), (), 1),
        (RNG.normal(size=(100, 2)), (), 1),
        (RNG.normal(size=(100, 10)), (), 1),
        (RNG.lognormal(size=(100, 6)), SERIES, 2),
    ],
)
def test_every_kind_of_observation_has_a_picture(x, series, panels, tmp_path):
    figure = task_figures.prior_predictive(x, series, title="what it is")
    assert len(figure.axes) == panels
    assert figure.axes[0].get_title(loc="left") == "what it is"
    path = canvas.save(figure, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert 5_000 < path.stat().st_size < 500_000


def test_series_are_split_by_their_lengths():
    figure = task_figures.prior_predictive(np.tile([1.0, 1, 1, 5, 5, 5], (50, 1)), SERIES)
    for panel, label, value in zip(figure.axes, ("prey", "predators"), (1, 5), strict=True):
        assert panel.get_ylabel() == label
        assert all((line.get_ydata() == value).all() for line in panel.lines if len(line.get_ydata()))
    assert [panel.get_yscale() for panel in figure.axes] == ["log", "linear"]


def test_failed_simulations_are_left_out():
    x = RNG.normal(size=(100, 1))
    x[:40] = np.nan
    heights = [patch.get_height() * patch.get_width() for patch in task_figures.prior_predictive(x).axes[0].patches]
    assert sum(heights) == pytest.approx(1)


@pytest.mark.parametrize(
    ("x", "series", "words"),
    [
        (np.zeros(5), (), "one per row"),
        (np.full((10, 2), np.nan), (), "two finite simulations; got 0"),
        (np.zeros((10, 5)), SERIES, "expected 6 numbers an observation, as the series have; got 5"),
    ],
)
def test_what_cannot_be_drawn_is_refused(x, series, words):
    with pytest.raises(ScorefoldError, match=words):
        task_figures.prior_predictive(x, series)


# scorefold tasks show


def test_show_describes_and_draws(tmp_path):
    result = call("tasks", "show", "correlated", "--out", tmp_path / "new", "--simulations", 100)
    assert result.exit_code == 0, result.output
    task = tasks.get("correlated")
    for words in (task.title, task.description, "An observation is 5 numbers", "Reference draws: grid"):
        assert words in result.output
    rows = [line.split() for line in result.output.splitlines()]
    row = next(line for line in rows if line and line[0] == "theta_1")
    assert row == ["theta_1", "uniform(loc=-1,", "scale=2)", "-0.9", "0", "0.9"]
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"correlated.png"}


def test_the_table_has_the_priors():
    lines = [line.split() for line in call("tasks").output.splitlines()]
    for name, law, numbers in (("sir", "lognorm", "10"), ("weinberg", "uniform", "1"), ("lotka_volterra", "lognorm", "20")):
        row = next(line for line in lines if line and line[0] == name)
        assert row[1:4] == [str(tasks.get(name).prior.dim), law, numbers]


def test_show_refuses_what_it_does_not_know(tmp_path):
    result = call("tasks", "show", "sirr", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "Did you mean 'sir'?" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert call("tasks", "show", "sir", "--out", tmp_path / "file" / "out").exit_code == 2
