"""What CONTRIBUTING tells about rooms and files is so."""

import re
from pathlib import Path

from test_rooms import BASICS, MAY_IMPORT

import scorefold

ROOT = Path(__file__).parents[2]
PACKAGE = Path(scorefold.__file__).parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \|.*\| ([\w, ]+) \|$", flags=re.MULTILINE)
LONGEST_READING = 1_000


def test_the_table_of_rooms_is_that_of_the_imports():
    above, told = set(), {}
    for room, words in ROW.findall(TEXT):
        parts = {"nothing": set(), "all above": set(above), "basics": BASICS}
        told[room] = set().union(*(parts.get(word, {word}) for word in words.split(", ")))
        above.add(room)
    assert told == {room: rooms - {"__init__"} for room, rooms in MAY_IMPORT.items() if not room.startswith("__")}


def test_every_file_it_names_is_there():
    names = set(re.findall(r"`((?:\w+/)*\w+\.py)`", TEXT))
    assert len(names) > 20
    missing = {name for name in names if not (ROOT / name).exists() and not (PACKAGE / name).exists()}
    assert not missing


def test_the_mathematics_can_be_read_in_an_hour():
    files = re.findall(r"^\d\. `([\w/]+\.py)`: ", TEXT, flags=re.MULTILINE)
    assert len(files) == 6
    assert sum(len((PACKAGE / name).read_text().splitlines()) for name in files) < LONGEST_READING
