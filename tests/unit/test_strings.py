"""Names that are hard to write: in tables, CSV files, figures, pages and on the terminal, each is what the user wrote."""

import csv
import io
import warnings

import numpy as np
import pytest
from matplotlib import rc_context
from rich.console import Console
from scipy import stats

import scorefold as sf
from scorefold.app.commands.model_commands import _write
from scorefold.app.commands.observation_files import read_observations
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.amortised import FlowInfo
from scorefold.report.canvas import plain_text, save
from scorefold.report.corner import corner
from scorefold.report.diagnosis_figures import contraction
from scorefold.report.diagnosis_table import grid
from scorefold.report.page import table
from scorefold.report.sequence_figure import sequence
from scorefold.shown import one_line, text_table

NAMES = (
    "rate [1/s]", "[bold]loud[/bold]", 'he said "so"', "a, b", "two\nlines", "<b>x</b>", "5$ bill", "$\\beta$", "$broken",
    "_hidden", "Βήτα", "скорость", "naïve é", "\x1b[31mred", "{0}", "%s", "back\\slash", "tab\there",
)  # fmt: skip
THETA = np.random.default_rng(0).normal(size=(60, len(NAMES)))
DRAWN = sf.Draws(THETA, NAMES, FlowInfo(1.0, True, False), 3, None, 0.1)


def test_a_prior_takes_them_and_prints_them_in_lines():
    prior = sf.Prior({name: stats.norm(0, 1) for name in NAMES})
    assert prior.names == NAMES
    for text in (repr(prior), repr(DRAWN)):
        assert "\n" not in text
        assert "\x1b" not in text


def test_the_summary_has_a_line_for_each():
    lines = str(DRAWN.summary()).splitlines()
    assert len(lines) == 1 + len(NAMES) + 2
    for name, line in zip(NAMES, lines[1:], strict=False):
        assert line.startswith(one_line(name))
        assert "\x1b" not in line


def test_columns_stay_in_line_with_wide_letters():
    lines = text_table(("parameter", "mean"), [("速度", "1.5"), ("e\u0301tat", "10.25")]).splitlines()
    assert lines == ["parameter   mean", "速度         1.5", "e\u0301tat       10.25"]


@pytest.mark.parametrize("name", NAMES)
def test_the_terminals_tables_do_not_read_them_as_markup(name):
    screen = io.StringIO()
    Console(file=screen, width=200, color_system=None).print(grid(("parameter", "p"), [(name, "0.5")]))
    assert one_line(name) in screen.getvalue().replace("        ", "\t")


@pytest.mark.parametrize("name", NAMES)
def test_pages_escape_them(name):
    page = table(("parameter", "p"), [(name, "0.5")])
    assert "<b>x" not in page
    assert "<script" not in page
    assert "<b>x" not in DRAWN._repr_html_()


def test_csv_files_hold_them_and_are_read_again(tmp_path):
    path = tmp_path / "draws.csv"
    _write(DRAWN, path)
    with path.open(encoding="utf-8", newline="") as file:
        assert tuple(next(csv.reader(file))) == NAMES
    back = read_observations(path, "DATA")
    assert back.names == NAMES
    np.testing.assert_allclose(np.stack(back.cells, axis=1), THETA)


def test_figures_draw_them(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(0, len(NAMES), 3):
            save(corner(THETA[:, k : k + 3], NAMES[k : k + 3]), tmp_path / "corner.png")
        save(sequence([THETA, THETA], [1, 2], NAMES), tmp_path / "sequence.png")
        save(contraction(THETA, THETA, NAMES), tmp_path / "contraction.png")


def test_letters_that_the_font_lacks_are_written_so_that_names_differ():
    """Matplotlib draws the same empty box for each, and warns of every one of them in words of its own."""
    names = ("速度 [km/h]", "密度 [km/h]")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure = corner(THETA[:, :2], names)
        figure.canvas.draw()
    assert [figure.axes[i].get_xlabel() for i in (1, 2)] == [r"\u901f\u5ea6 [km/h]", r"\u5bc6\u5ea6 [km/h]"]
    assert {one.category for one in said} == {ScorefoldWarning}
    assert r"lacks 度 速, written there as \u5ea6 \u901f" in str(said[0].message)
    with rc_context({"font.family": ["no such font", "DejaVu Sans"]}):
        assert plain_text("Βήτα, скорость") == "Βήτα, скорость"


def test_mathematics_is_kept_and_other_dollars_are_dollars():
    assert plain_text("$\\beta$") == "$\\beta$"
    assert plain_text("$broken") == r"\$broken"
    assert plain_text("5$ or 6$") == "5$ or 6$"  # Matplotlib takes it for mathematics, and so would the user's own figure
    assert plain_text("$\\nonsense{$") == r"\$\nonsense{\$"
    assert plain_text("_hidden") == " _hidden"


# On the whole walk

HARD = ("two\nlines", "<b>x</b>", "[red]\x1b[31mred", "速度, Βήτα")


@pytest.fixture(scope="module")
def walk():
    """Two posteriors whose parameters, outcomes and simulator's words are hard to write, and their simulator."""
    prior = sf.Prior({name: stats.norm(0, 1) for name in HARD})

    def simulator(theta, rng):
        return theta + 0.3 * rng.normal(size=4)

    sims = sf.simulate(prior, simulator, 500, x_names=[f"x of {name}" for name in HARD])
    return [sf.fit(sims, sf.ABC(accept=share)) for share in (0.2, 0.5)], simulator


def in_lines(text):
    """Whether no name breaks a line or sends the terminal a command."""
    return "\x1b" not in text and "two\n" not in text


@pytest.mark.false_failure(1e-9)
def test_sentences_of_every_verb_are_in_lines(walk):
    """A shift of every observation by 2, seen in 45 data sets, would go unnoticed hardly ever."""
    (posterior, wide), simulator = walk
    x = np.zeros((1, 4))
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        posterior.sample(np.full((1, 4), 1e3), 50)
        found = sf.diagnose(posterior, simulator, 1, 45, 20, x_obs=np.full((1, 4), 9.0))
        off = sf.diagnose(wide, lambda theta, rng: simulator(theta, rng) + 2, 1, 45, 20)
    compared = sf.compare([posterior, wide], simulator, 1, 30, 20, names=HARD[:2])
    draws = posterior.sample(x, 60)
    said = [repr(posterior), str(draws.summary()), str(found.verdicts), str(off.verdicts), repr(compared), compared.verdict]
    assert "is shifted" in str(off.verdicts)
    assert any("x of" in str(one.message) for one in noticed)
    for text in (*said, *(str(one.message) for one in noticed)):
        assert in_lines(text), text


def test_a_failing_simulator_s_parameters_are_in_a_line(walk):
    def failing(theta, rng):
        raise RuntimeError("no")

    with pytest.raises(ScorefoldError) as given_up:
        sf.simulate(walk[0][0].prior, failing, 100)
    assert in_lines(str(given_up.value))


def test_whole_pages_show_them(walk, tmp_path):
    (posterior, wide), simulator = walk
    with warnings.catch_warnings(action="ignore", category=ScorefoldWarning):  # the font of figures has no Chinese letters
        sf.diagnose(posterior, simulator, 1, 45, 20).write(tmp_path / "diagnosis", {"simulator": HARD[1]})
        sf.compare([posterior, wide], simulator, 1, 30, 20, names=HARD[:2]).write(tmp_path / "comparison", {})
    for name in ("diagnosis", "comparison"):
        page = (tmp_path / name / "report.html").read_text("utf-8")
        assert "&lt;b&gt;x&lt;/b&gt;" in page
        assert "<b>x" not in page
        assert in_lines(page)


def test_models_and_stores_give_them_back(walk, tmp_path):
    (posterior, _), simulator = walk
    assert sf.load(posterior.save(tmp_path / "model")).prior.names == HARD
    sf.simulate(posterior.prior, simulator, 100, store=tmp_path / "store", workers=0)
    assert sf.Store.open(tmp_path / "store").prior.names == HARD


# Pair plots of many parameters


MANY = sf.Draws(np.random.default_rng(0).normal(size=(40, 30)), tuple(f"p{i}" for i in range(30)), DRAWN.info, 3, None, 0.1)


def test_pairs_draws_the_first_twelve_and_says_so():
    with pytest.warns(ScorefoldWarning, match=r"shows the first 12 of 30 parameters. Choose others by name, with parameters="):
        figure = sf.plots.pairs(MANY, truth=np.zeros(30), reference=MANY)
    assert len(figure.axes) == 12 * 13 // 2


def test_pairs_of_chosen_parameters():
    figure = sf.plots.pairs(MANY, parameters=["p29", "p3"], truth=np.arange(30.0))
    assert [axes.get_xlabel() for axes in figure.axes[-2:]] == ["p29", "p3"]
    with pytest.raises(ScorefoldError, match=r"got 'p30'\. Did you mean"):
        sf.plots.pairs(MANY, parameters=["p30"])
    with pytest.raises(ScorefoldError, match="different names"):
        sf.plots.pairs(MANY, parameters=["p3", "p3"])
