"""Observations in files: headers are names, and what cannot be meant is refused by name."""

import numpy as np
import pytest
import typer
from untrained import MADE, MARGINALS, untrained

import scorefold as sf
from scorefold.app.commands.observation_files import read_observations
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.likeness import look


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """One whose outcomes have names."""
    from dataclasses import replace

    rng = np.random.default_rng(0)
    theta = MARGINALS.sample(300, seed=0)
    x = np.stack([rng.gamma(2.0, size=300), rng.integers(0, 2, 300)], axis=1)
    seen = look(sf.Simulations(MARGINALS, theta, x, x_names=("rt", "choice")))
    return replace(untrained("f-npse"), made=MADE._replace(seen=seen))


def written(folder, text, encoding="utf-8"):
    path = folder / "data.csv"
    path.write_bytes(text.encode(encoding))
    return path


READ = {
    "a header": "rt,choice\n0.5,1\n0.7,0\n",
    "quoted names": '"rt","choice"\n0.5,1\n0.7,0\n',
    "blanks and empty lines": "rt, choice\n0.5, 1\n\n0.7, 0\n\n",
    "no header": "0.5,1\n0.7,0\n",
    "Windows": "\ufeffrt,choice\r\n0.5,1\r\n0.7,0\r\n",
}


@pytest.mark.parametrize("what", READ)
def test_files_are_read(tmp_path, posterior, what):
    x = posterior.checked(read_observations(written(tmp_path, READ[what]), "DATA"))
    np.testing.assert_array_equal(x, [[0.5, 1], [0.7, 0]])


REFUSED_BY_NAME = {
    "swapped": ("choice,rt\n1,0.5\n", "expected the columns rt, choice of x_obs in this order; got choice, rt"),
    "missing": ("rt,answer\n0.5,1\n", "choice is missing. There are rt, answer"),
    "text": ("rt,choice\n0.5,left\n0.7,right\n", "the column 'choice' of x_obs to hold numbers; got text such as 'left'"),
    "empty cells": ("rt,choice\n0.5,1\n,0\n", r"1 of 2 hold NaN or infinity \(first: x_obs\[1\]\)"),
}


@pytest.mark.parametrize("what", REFUSED_BY_NAME)
def test_columns_are_refused_by_name(tmp_path, posterior, what):
    text, message = REFUSED_BY_NAME[what]
    with pytest.raises(ScorefoldError, match=message):
        posterior.checked(read_observations(written(tmp_path, text), "DATA"))


UNREADABLE = {
    "semicolons": ("rt;choice\n0,5;1\n", "expected commas between the columns; got semicolons. Save it with commas"),
    "semicolons and no header": ("0.5;1\n0.7;0\n", "got semicolons"),
    "tabs": ("rt\tchoice\n0.5\t1\n", "got tabs"),
    "a short row": ("rt,choice\n0.5\n", "expected 2 cells in every row, as in the first; row 2 has 1"),
    "a name twice": ("rt,rt\n1,2\n", "a different name for each column; got rt, rt"),
    "nothing": ("\n\n", "it is empty"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_is_no_table_is_wrong_usage(tmp_path, what):
    text, message = UNREADABLE[what]
    with pytest.raises(typer.BadParameter, match=message):
        read_observations(written(tmp_path, text), "DATA")


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path):
    with pytest.raises(typer.BadParameter, match=r"data\.csv cannot be read: expected text in UTF-8; .* Save it as UTF-8"):
        read_observations(written(tmp_path, "größe\n0.5\n", "latin-1"), "DATA")
    with pytest.raises(typer.BadParameter, match=r"none\.csv cannot be read: No such file or directory$"):
        read_observations(tmp_path / "none.csv", "DATA")


def test_columns_that_are_not_asked_for_are_left_out_and_said(tmp_path, posterior):
    table = read_observations(written(tmp_path, "subject,rt,choice\nann,0.5,1\nbob,0.7,0\n"), "DATA")
    with pytest.warns(ScorefoldWarning, match="the columns subject of x_obs are not expected and are left out"):
        assert posterior.checked(table).tolist() == [[0.5, 1], [0.7, 0]]


def test_data_frames_go_the_same_way(posterior):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"rt": [0.5, 0.7], "choice": [1, 0]})
    assert posterior.checked(frame).tolist() == [[0.5, 1], [0.7, 0]]
    with pytest.raises(ScorefoldError, match="in this order; got choice, rt"):
        posterior.checked(frame[["choice", "rt"]])
    with pytest.raises(ScorefoldError, match="choice is missing"):
        posterior.checked(frame[["rt"]])


def test_without_names_the_columns_are_taken_as_they_come(tmp_path):
    table = read_observations(written(tmp_path, "p,q\n0.5,1\n"), "DATA")
    assert untrained("f-npse").checked(table).tolist() == [[0.5, 1]]
