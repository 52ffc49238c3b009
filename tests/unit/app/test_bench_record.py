"""Records: strict JSON lines that survive a kill at any byte, and know what they describe."""

import json

import pytest

from scorefold.app.bench.bench_plan import cells
from scorefold.app.bench.record import appending, cell_of, described, done, read
from scorefold.errors import ScorefoldError

CELLS = cells("tiny")[:4]


def record(cell, c2st=0.5, seconds=1.0):
    return described(cell) | {"measures": {"c2st": c2st}, "seconds": {"draw": seconds}}


@pytest.fixture
def path(tmp_path):
    with appending(tmp_path / "records.jsonl") as append:
        for cell in CELLS:
            append(record(cell))
    return tmp_path / "records.jsonl"


def test_what_is_written_is_read(path):
    assert read(path) == [record(cell) for cell in CELLS]
    assert [cell_of(one) for one in read(path)] == CELLS
    assert done(path) == {cell.key for cell in CELLS}


def test_no_file_is_no_records(tmp_path):
    assert read(tmp_path / "none.jsonl") == []


def test_a_file_cut_at_any_byte_loses_only_its_last_record(path):
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert len(read(path)) == kept
    for cut in (0, 1, ends[0] - 1, ends[0], ends[1] + 7, len(whole) - 1):
        path.write_bytes(whole[:cut])
        there = done(path)
        with appending(path) as append:
            for cell in CELLS:
                if cell.key not in there:
                    append(record(cell))
        assert path.read_bytes() == whole


def test_a_last_line_of_zeros_was_torn(path):
    """As some file systems leave it after a loss of power."""
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    assert len(read(path)) == len(CELLS)
    with appending(path) as append:
        append(record(CELLS[0]))
    assert len(path.read_bytes().splitlines()) == len(CELLS) + 1


def test_a_broken_line_in_the_middle_is_refused(path):
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], *lines[2:]]) + "\n")
    with pytest.raises(ScorefoldError, match="line 2"):
        read(path)


def test_the_first_record_of_a_cell_counts(path):
    with appending(path) as append:
        append(record(CELLS[1], c2st=0.9))
    assert [one["measures"]["c2st"] for one in read(path)] == [0.5] * len(CELLS)


def test_a_record_with_another_description_is_refused(path):
    text = path.read_text()
    path.write_text(text.replace('"budget": 500', '"budget": 501', 1))
    with pytest.raises(ScorefoldError, match="does not belong"):
        done(path)


def test_numbers_are_numbers(path):
    with appending(path) as append, pytest.raises(ValueError, match="JSON"):
        append({**record(CELLS[0]), "measures": {"c2st": float("nan")}})
    path.write_text(json.dumps({"key": "a", "measures": float("nan")}) + "\n" + path.read_text())
    with pytest.raises(ScorefoldError, match="NaN"):
        read(path)


def test_one_run_at_a_time(path):
    with appending(path), pytest.raises(ScorefoldError, match="another run"), appending(path):
        pass
