"""Letters that a figure can show: those of the fonts that Matplotlib is told to use, which draws an empty box for any other."""

import warnings
from functools import cache

from matplotlib import rcParams
from matplotlib.font_manager import FontProperties, findfont, get_font

from scorefold.errors import ScorefoldWarning


def drawn(text: str) -> str:
    """The text as a figure shows it: letters that its fonts lack are written as Python writes them, so that names differ.

    A ScorefoldWarning says which, and how to have them.
    """
    fonts = _fonts()
    lacking = sorted({one for one in text if not any(ord(one) in _letters(font) for font in fonts)})
    if not lacking:
        return text
    warnings.warn(
        f"the font of figures lacks {' '.join(lacking)}, written there as {' '.join(map(_written, lacking))}. Name a font that "
        "has them behind the first: matplotlib.rcParams['font.family'] = ['DejaVu Sans', 'Noto Sans CJK SC'].",
        ScorefoldWarning,
        stacklevel=4,
    )
    return "".join(_written(one) if one in lacking else one for one in text)


def _written(letter: str) -> str:
    return ascii(letter)[1:-1]


def _fonts() -> list[str]:
    """The files of the fonts that letters are looked for in, one after the other."""
    found = []
    for family in rcParams["font.family"]:
        try:
            found.append(str(findfont(FontProperties(family=[family]), fallback_to_default=False)))
        except ValueError:  # there is none of this name
            continue
    return found or [str(findfont(FontProperties()))]


@cache
def _letters(font: str) -> frozenset[int]:
    return frozenset(get_font(font).get_charmap())
