"""Check a built site: every link within it leads somewhere, and no page asks another machine for anything.

python docs/_ext/check_site.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

FETCHED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}
KEPT = ("canonical", "next", "prev", "index", "search", "author", "help")
"""Kinds of <link> that a browser does not fetch."""


class Page(HTMLParser):
    """What a page links to, what it fetches, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for every tag."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in FETCHED and FETCHED[tag] in found and found.get("rel", "") not in KEPT:
            self.fetched.append(found[FETCHED[tag]])


def read(path: Path) -> Page:
    """One page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path.resolve(): read(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} fetches {one}" for one in page.fetched if urlparse(one).netloc]
        for link in [*page.links, *page.fetched]:
            if urlparse(link).scheme or link.startswith("//"):
                continue
            target, anchor = urldefrag(link)
            file = (path.parent / unquote(urlparse(target).path)).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                found.append(f"{name} leads to {link}, which is not there")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                found.append(f"{name} leads to {link}, which has no such place")
    return sorted(set(found))


def main() -> None:
    """Print what is wrong; the exit status is 1 if anything is."""
    site = Path(sys.argv[1])
    found = faults(site)
    print("\n".join(found) or f"every link of {len(list(site.rglob('*.html')))} pages leads somewhere, and nothing is fetched")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
