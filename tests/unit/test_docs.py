"""The site's sources: every page is in the contents, every public name in the reference, and what is built can be checked.

The site itself is built by `make docs`. Where what builds it is installed, its configuration is read too.
"""

import re
import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import scorefold as sf

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(DOCS).with_suffix(""))
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")]
    if not {"_build", "_ext", "data"} & set(path.relative_to(DOCS).parts)
}
TEXTS = {path: path.read_text() for path in (DOCS / f"{page}.md" for page in PAGES) if path.exists()}
NOTEBOOKS = {path: text for path, text in TEXTS.items() if "{code-cell}" in text}
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", flags=re.DOTALL)

sys.path.insert(0, str(DOCS / "_ext"))
from check_site import faults  # noqa: E402
from root_pages import PAGES as AT_THE_ROOT  # noqa: E402
from root_pages import read  # noqa: E402


def contents(page: str) -> set[str]:
    """The pages below one, as its toctree names them."""
    path = DOCS / f"{page}.md"
    if not path.exists():
        return set()
    lines = [line for block in TOCTREE.findall(path.read_text()) for line in block.splitlines()]
    named = [line.strip() for line in lines if line.strip() and not line.startswith(":")]
    return {str((path.parent / line).resolve().relative_to(DOCS)) for line in named}


def test_every_page_is_in_the_contents():
    found, new = set(), {"index"}
    while new:
        found |= new
        new = set().union(*(contents(page) for page in new)) - found
    assert found == PAGES


def test_every_public_name_is_in_the_reference():
    told = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.rst"))
    rooms = ("embeddings", "errors", "plots", "rules", "samplers")
    names = {f"scorefold.{name}" for name in sf.__all__ if name not in rooms}
    names |= {f"scorefold.{room}.{name}" for room in rooms for name in dir(getattr(sf, room))}
    names |= {f"scorefold.tasks.{name}" for name in ("names", "get")}
    in_words = {"scorefold.rules.RULES", "scorefold.rules.Rule", "scorefold.samplers.SAMPLERS", "scorefold.samplers.Sampler"}
    missing = {name for name in names - in_words if not re.search(rf":: {re.escape(name)}$", told, flags=re.MULTILINE)}
    assert not missing
    assert all(name.replace("scorefold.", "sf.") in told for name in in_words)


def test_every_name_of_the_reference_is_there():
    told = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.rst"))
    for name in re.findall(r"^\.\. auto\w+:: (\S+)$", told, flags=re.MULTILINE):
        home, _, last = name.rpartition(".")
        room = home.removeprefix("scorefold").removeprefix(".")
        thing = getattr(sf, room) if room in sf.__all__ else import_module(home)
        assert getattr(thing, last).__doc__


def test_notebooks_are_executed_by_the_build_and_say_so():
    assert len(NOTEBOOKS) >= 6
    for path, text in NOTEBOOKS.items():
        head = yaml.safe_load(text.split("---")[1])
        assert head["file_format"] == "mystnb", f"{path.name} would be shown and not executed"
        assert "```python" not in text, f"{path.name} has code that is not executed"


def test_tutorials_name_their_data_and_its_licence():
    data = DOCS / "tutorials" / "data"
    words = (data / "README.md").read_text()
    for path in data.iterdir():
        assert path.name == "README.md" or path.name in words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<a href='b.html#place'>x</a>", ""),
        ("<a href='missing.html'>x</a>", "a.html leads to missing.html, which is not there"),
        ("<a href='b.html#elsewhere'>x</a>", "a.html leads to b.html#elsewhere, which has no such place"),
        ("<script src='https://example.org/x.js'></script>", "a.html fetches https://example.org/x.js"),
        ("<a href='https://example.org'>x</a>", ""),
    ],
)
def test_the_check_of_a_site(tmp_path, body, words):
    (tmp_path / "a.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "b.html").write_text("<html><body><p id='place'></p></body></html>")
    assert faults(tmp_path) == ([words] if words else [])


@pytest.mark.parametrize(
    ("page", "link", "found"),
    [
        ("benchmark", "[it](../CONTRIBUTING.md#add-a-task)", "[it](contributing.md#add-a-task)"),
        ("howto/index", "[it](../../CHANGELOG.md)", "[it](../changelog.md)"),
        ("benchmark", "[it](../benchmarks/results/peers.csv)", "[it](../benchmarks/results/peers.csv)"),
    ],
)
def test_links_to_the_root_lead_to_its_pages_on_the_site(page, link, found):
    source = [link]
    read(None, page, source)
    assert source == [found]


def test_a_page_of_the_root_is_read_with_its_links():
    for name, file in AT_THE_ROOT.items():
        app, source = SimpleNamespace(env=SimpleNamespace(note_dependency=lambda path: None)), [""]
        read(app, name, source)
        assert source[0].splitlines()[0] == (ROOT / file).read_text().splitlines()[0]
        assert "](docs/" not in source[0]


if all(find_spec(name) for name in ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_design")):

    def test_the_configuration_executes_notebooks_offline():
        conf = runpy.run_path(str(DOCS / "conf.py"))
        assert conf["nb_execution_mode"] == "cache"
        assert conf["nb_execution_raise_on_error"]
        assert "://" not in conf["mathjax_path"]
        assert Path(conf["html_static_path"][-1]).is_file()
        assert conf["release"].startswith(sf.__version__.split(".dev")[0])
