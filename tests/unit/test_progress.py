"""Progress in a pipe: lines that are true, a few seconds apart, on standard error."""

import re
import sys
import types
import warnings

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold import progress
from scorefold.train.loop import _why_it_ended
from scorefold.train.schedule import Limits, beats, last_round


@pytest.fixture
def clock(monkeypatch):
    """A time that passes only when it is told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_every_few_seconds_with_count_rate_and_time_left(capsys, clock):
    with progress.bar("simulating", 1_000, show=True, done=100) as report:
        for _ in range(9):
            clock[0] += 1.0
            report.update(50, "3 failed")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "simulating: 350 of 1,000 (35%), 0:05, 0:13 left, 3 failed",
        "simulating: 550 of 1,000 (55%), 0:09, 0:09 left, 3 failed",
    ]


def test_the_last_line_comes_once(capsys, clock):
    with progress.bar("drawing", 2, show=True) as report:
        for _ in range(2):
            clock[0] += 6.0
            report("0 diverged")
    assert capsys.readouterr().err.splitlines() == [
        "drawing: 1 of 2 (50%), 0:06, 0 diverged",
        "drawing: 2 of 2 (100%), 0:12, 0 diverged",
    ]


def test_work_that_ends_early_says_why_and_once(capsys, clock):
    with progress.bar("training", 320, show=True, may_end_early=True) as report:
        report("loss 1.0")
        report.end("ended, as unseen cases were no longer fitted better")
    said = capsys.readouterr().err.splitlines()
    assert said == ["training: 1 of at most 320, 0:00, ended, as unseen cases were no longer fitted better"]


def test_once_the_end_is_known_the_time_left_is_no_bound(capsys, clock):
    """Of 785 rounds that there might be, 20 come: 'at most 8:34 left' was said until the last of them."""
    with progress.bar("training", 785, show=True, may_end_early=True) as report:
        for done in range(1, 21):
            clock[0] += 1.0
            if done == 10:
                report.expect(20)
            report("loss 1.0")
        report.end("ended after 20 of at most 785 rounds")
    assert capsys.readouterr().err.splitlines() == [
        "training: 2 of at most 785, 0:02, at most 13:03 left, loss 1.0",
        "training: 7 of at most 785, 0:07, at most 12:58 left, loss 1.0",
        "training: 12 of 20 (60%), 0:12, 0:08 left, loss 1.0",
        "training: 17 of 20 (85%), 0:17, 0:03 left, loss 1.0",
        "training: 20 of 20 (100%), 0:20, ended after 20 of at most 785 rounds",
    ]


def test_training_knows_its_end_once_the_rate_of_every_network_falls():
    limits = Limits(rounds=100, patience=5, trial=5, fall=4)
    stood_still, learns = np.ones(8), np.linspace(2.0, 1.0, 8)
    assert last_round(np.stack([stood_still, learns]), limits) == 100
    assert last_round(np.stack([stood_still, stood_still]), limits) == 9
    assert beats(np.ones((2, 10)), limits, np.zeros(2, int)).active.tolist() == [False, False], "after nine rounds it has ended"
    assert beats(np.ones((2, 9)), limits, np.zeros(2, int)).active.all()


def test_compilation_does_not_count_for_the_time_left(capsys, clock):
    """The first round takes a minute and the others a second: nothing is told after the first, and the truth later."""
    with progress.bar("training", 200, show=True, may_end_early=True) as report:
        report.update(0, "compiling")
        clock[0] += 60.0
        report("loss 2.0")
        for _ in range(6):
            clock[0] += 1.0
            report("loss 1.0")
        report.end("ended")
    assert capsys.readouterr().err.splitlines() == [
        "training: 0 of at most 200, 0:00, compiling",
        "training: 1 of at most 200, 1:00, loss 2.0",
        "training: 2 of at most 200, 1:01, at most 3:18 left, loss 1.0",
        "training: 7 of at most 200, 1:06, at most 3:13 left, loss 1.0",
        "training: 7 of at most 200, 1:06, ended",
    ]


def test_a_step_of_unknown_length_and_a_line_of_words(capsys, clock):
    with progress.step("correcting", show=True):
        clock[0] += 7.0
    progress.say("learning [a] likelihood", show=True)
    progress.say("nothing", show=False)
    assert capsys.readouterr().err.splitlines() == ["correcting: begun", "correcting: done, 0:07", "learning [a] likelihood"]


def test_silence(capsys):
    with progress.bar("simulating", 10, show=False) as report:
        report("x")
        report.end("y")
    assert list(progress.track([1, 2], "x", show=False)) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_an_error_is_not_followed_by_a_line(capsys):
    with pytest.raises(ZeroDivisionError), progress.step("drawing", show=True):
        _ = 1 / 0
    assert capsys.readouterr().err == "drawing: begun\n"


def test_failures_are_counted_as_they_happen(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_A_LINE", 0.0)
    prior = sf.Prior({"v": stats.norm(0, 1)})

    def simulator(theta, rng):
        return theta if rng.random() > 0.1 else theta * np.nan

    with pytest.warns(sf.errors.ScorefoldWarning, match="failed") as caught:
        sf.simulate(prior, simulator, 400, seed=1, workers=sf.Workers(max_failures=0.5), progress=True)
    counts = [int(one) for one in re.findall(r"(\d+) failed", capsys.readouterr().err)]
    assert counts == sorted(counts)
    assert str(caught[0].message).startswith(f"{counts[-1]} of 400 simulations failed")


def test_why_training_ended():
    assert "ended after 63 of at most 320 rounds, as unseen cases were no longer fitted better" in _why_it_ended(63, 320)
    assert "all 320 rounds that `steps` allows" in _why_it_ended(320, 320)


def test_a_bar_on_a_terminal_shows_words_as_they_are(monkeypatch, capsys):
    import io

    import rich
    from rich.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(rich, "get_console", lambda: Console(file=screen, force_terminal=True, width=120))
    monkeypatch.setattr("rich.progress.get_console", rich.get_console)
    with progress.bar("drawing", 2, show=True) as report:
        report("[bold]a[/bold]")
        report.expect(3)
        report.end("[red]over")
    assert "[red]over" in screen.getvalue()
    assert capsys.readouterr().err == ""


class Screen:
    """IPython's `display`, which remembers what a notebook would show."""

    def __init__(self):
        self.shown = []

    def display(self, what, display_id):
        assert display_id
        self.update(what)
        return self

    def update(self, what):
        self.shown.append((repr(what), what._repr_html_()))


@pytest.fixture
def notebook(monkeypatch, clock):
    """A notebook without ipywidgets: rich showed a warning there in place of every bar, and nothing else."""
    import rich
    from rich.console import Console

    screen = Screen()
    made = types.ModuleType("IPython.display")
    made.display = screen.display
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    monkeypatch.setattr(rich, "get_console", lambda: Console(force_jupyter=True))
    return screen


def test_a_bar_in_a_notebook_needs_no_widgets(notebook, clock):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress.bar("training", 785, show=True, may_end_early=True) as report:
            for done in range(1, 21):
                clock[0] += 1.0
                if done == 10:
                    report.expect(20)
                report("<loss> 1.0")
            report.end("ended")
    lines = [line for line, _ in notebook.shown]
    assert lines[0] == "training: 0 of at most 785, 0:00"
    assert "training: 12 of 20 (60%), 0:12, 0:08 left, <loss> 1.0" in lines
    last, shown = notebook.shown[-1]
    assert last == "training: 20 of 20 (100%), 0:20, ended"
    assert "value='20' max='20'" in shown
    assert "&lt;loss&gt;" in notebook.shown[12][1]


def test_a_notebook_is_not_flooded(notebook, clock):
    with progress.bar("simulating", 10_240, show=True) as report:
        for _ in range(10_240):
            clock[0] += 2.0**-10
            report("0 failed")
    assert len(notebook.shown) < 60
    assert notebook.shown[-1][0] == "simulating: 10,240 of 10,240 (100%), 0:10, 0 failed"


def work_that_fails_after_one_of_three():
    with progress.bar("drawing", 3, show=True) as report:
        report("")
        _ = 1 / 0


def test_steps_and_errors_in_a_notebook(notebook, clock):
    with progress.step("correcting", show=True):
        clock[0] += 7.0
    assert [line for line, _ in notebook.shown] == ["correcting: begun", "correcting: done, 0:07", "correcting: done, 0:07"]
    assert "value" not in notebook.shown[0][1], "nobody knows how far it is"
    notebook.shown.clear()
    with pytest.raises(ZeroDivisionError):
        work_that_fails_after_one_of_three()
    assert notebook.shown[-1][0] == "drawing: 1 of 3 (33%), 0:00"


def test_what_will_take_long_is_said_at_once(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.bar("drawing", 100, show=True) as report:
        now[0] = 1.0
        report("")
        assert capsys.readouterr().err == "", "the first may have been compiled"
        now[0] = 2.0
        report("")
        assert "2 of 100 (2%), 0:02, 1:38 left" in capsys.readouterr().err
        now[0] = 3.0
        report("")
        assert capsys.readouterr().err == "", "then every few seconds"


def test_the_first_simulations_tell_how_long_all_will_take(capsys, clock):
    """They find out the shape of an observation, one after the other; nothing was said until all eight were there."""
    said = []

    def simulator(theta, rng):
        said.append(capsys.readouterr().err)
        clock[0] += 30.0
        return theta

    sf.simulate(sf.Prior({"v": stats.norm(0, 1)}), simulator, 100, progress=True)
    assert said[:2] == ["", "simulating: 1 of 100 (1%), 0:30, 0 failed\n"]
    assert said[2] == "simulating: 2 of 100 (2%), 1:00, 49:00 left, 0 failed\n"
    assert said[7] == "simulating: 7 of 100 (7%), 3:30, 46:30 left, 0 failed\n"


def test_a_verb_with_rounds_says_which(capsys):
    prior = sf.Prior({"v": stats.norm(0, 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.errors.UntrustworthyDraws)
        sf.smc_abc(prior, lambda theta, rng: theta + rng.normal(size=1), [[0.3]], 1_000, 50, progress=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round ")]
    assert lines[0] == "round 1: at most 1,000 simulator calls in all"
    assert re.fullmatch(r"round 2: 100 of at most 1,000 simulator calls made, tolerance \d.*", lines[1])


def test_a_prediction_shows_how_far_it_is(capsys):
    prior = sf.Prior({"v": stats.norm(0, 1)})
    simulator = lambda theta, rng: theta + rng.normal(size=1)  # noqa: E731
    draws = sf.fit(sf.simulate(prior, simulator, 200), "abc").sample([[0.3]], 50)
    draws.predict(simulator, progress=True)
    assert capsys.readouterr().err == "simulating: 50 of 50 (100%), 0:00, 0 failed\n"
