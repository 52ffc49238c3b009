"""Pages that lie at the root of the repository, and links between them and the others, as they are on the site."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}


def read(app: Any, docname: str, source: list[str]) -> None:
    """Put the file of the root in the place of the stub that names it, and lead links of other pages to the stub."""
    if docname not in PAGES:
        for name, file in PAGES.items():
            source[0] = source[0].replace(f"../{file}", f"{name}.md")
        return
    app.env.note_dependency(str(ROOT / PAGES[docname]))
    text = (ROOT / PAGES[docname]).read_text(encoding="utf-8")
    for name, file in PAGES.items():
        text = text.replace(f"]({file}", f"]({name}.md")
    source[0] = text.replace("](docs/", "](")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
