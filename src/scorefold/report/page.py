"""What every page is made of: one self-contained HTML file, with its style, script, data and pictures.

Its own content policy forbids any request. `bench_page`, `infer_page` and `diagnosis_page` say what stands on it.
"""

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from scorefold.errors import ScorefoldError
from scorefold.shown import one_line

WIDE = 2.2
"""Times as wide as high: such a figure has a row of its own."""
LARGEST_PAGE = 3_000_000
"""Bytes."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Words(NamedTuple):
    """A cell of a table that holds words, which may be bad news."""

    text: str
    good: bool = True


Row = Sequence[str | Words]


def whole(title: str, body: Iterable[str], payload: dict[str, Any]) -> str:
    """The file, with the data that its script reads."""
    style, script = (files("scorefold.report").joinpath("assets", name).read_text("utf-8") for name in ("page.css", "page.js"))
    data = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">',
        f"<title>{escaped(title)} · scorefold</title><style>{style}</style></head><body>",
        f'<header><h1>{escaped(title)}</h1><button id="theme" type="button" class="needs-js">Dark</button></header><main>',
        *body,
        "</main><footer>Made by scorefold. This page is one file and makes no request.</footer>",
        f'<script id="data" type="application/json">{data}</script><script>{script}</script></body></html>',
    ])  # fmt: skip
    if len(page.encode()) > LARGEST_PAGE:
        raise ScorefoldError(
            f"the page would have {len(page.encode()):,} bytes, more than {LARGEST_PAGE:,}. Report fewer records (run with "
            "--only into another folder), or take some of the pictures out of the folder."
        )
    return page


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Rows of text, the first of each its name; columns of words are set as such."""
    rows = list(rows)
    wordy = {k for row in rows for k, cell in enumerate(row) if isinstance(cell, Words)}
    top = "".join(f"<th scope=col{' class=words' if k in wordy else ''}>{escaped(text)}</th>" for k, text in enumerate(head))
    body = "".join(
        f"<tr><th scope=row>{escaped(one_line(first))}</th>{''.join(map(_cell, rest))}</tr>" for first, *rest in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: str | Words) -> str:
    if isinstance(cell, Words):
        return f'<td class="words{"" if cell.good else " bad"}">{escaped(cell.text)}</td>'
    return f"<td>{escaped(cell)}</td>"


def scrolled(inner: str) -> str:
    """Something wide, in a box that scrolls sideways on a narrow screen."""
    return f'<div class="scroll">{inner}</div>'


def settings_table(settings: Mapping[str, Any]) -> str:
    """The settings of a run, as a table."""
    return table(("setting", "value"), [(name.replace("_", " "), shown(value)) for name, value in settings.items()])


def gallery(pictures: Mapping[str, bytes], captions: Mapping[str, str]) -> list[str]:
    """Figures, those with a caption first and in the captions' order."""
    ordered = [name for name in captions if name in pictures] + sorted(set(pictures) - set(captions))
    return [picture(name, pictures[name], captions.get(name, name)) for name in ordered]


def picture(name: str, png: bytes, caption: str) -> str:
    """One figure; a wide one has a row of its own."""
    small = _smaller(png)
    data = base64.b64encode(small).decode()
    width, height = (int.from_bytes(small[at : at + 4], "big") for at in (16, 20))  # of a PNG's header
    kind = ' class="wide"' if width > WIDE * height else ""
    return (
        f'<figure{kind}><img alt="{escaped(name)}: {escaped(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escaped(caption)}</figcaption></figure>"
    )


def _smaller(png: bytes) -> bytes:
    """The same picture with a palette, where that is shorter: plots have few colours."""
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(png)).convert("RGB")
    except OSError as error:
        raise ScorefoldError(f"expected a PNG picture; got something else ({error})") from None
    target = io.BytesIO()
    image.quantize(128).save(target, "PNG", optimize=True)
    return min(target.getvalue(), png, key=len)


def shown(setting: Any) -> str:
    """A setting as a person would write it."""
    return "default" if setting is None else f"{setting:,}" if isinstance(setting, int) else str(setting)


def escaped(text: Any) -> str:
    """Text as HTML holds it."""
    return html.escape(str(text), quote=True)
