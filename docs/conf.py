"""How Sphinx builds the site: `make docs`, without a network.

Tutorials are MyST notebooks, text in the repository, executed when the site is built and kept in a cache, so that only what has
changed runs again. MathJax comes from a package and is copied into the site; nothing is fetched by a reader either.
"""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "scorefold"
author = "The scorefold authors"
copyright = "2026, the scorefold authors"
release = metadata.version("scorefold")
version = release

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "command_reference",
    "plain_docstrings",
    "plain_index",
    "root_pages",
]
exclude_patterns = ["_build", "_ext", "tutorials/data/README.md"]
templates_path: list[str] = []

# Markdown and notebooks
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto"]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "docs-cache")
nb_execution_timeout = 3_600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # the changelog, which is included, starts at its own level

# The reference, from docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autoclass_content = "class"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_admonition_for_examples = False
default_role = "code"  # docstrings write `this` for code
highlight_language = "none"
smartquotes = False  # options of commands keep their two hyphens

# The page
html_theme = "pydata_sphinx_theme"
html_title = "scorefold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Nothing lies below these pages, or they need the room.
ROOMY = ("index", "mathematics", "gallery", "accuracy", "promises", "coming_from/*")
html_sidebars: dict[str, list[str]] = {page: [] for page in ROOMY}
html_show_sourcelink = False
html_copy_source = True
html_sourcelink_suffix = ".txt"
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}

# MathJax as one file that draws its own letters and asks for nothing else.
mathjax_path = "tex-svg.js"
mathjax3_config = {
    "options": {"enableMenu": False},
    "tex": {"macros": {"E": r"\mathbb{E}", "R": r"\mathbb{R}", "N": r"\mathcal{N}", "given": r"\,|\,", "d": r"\mathrm{d}"}},
}


def _mathjax() -> Path:
    """The file of the installed package, wherever that is."""
    for file in metadata.files("sphinx-mathjax-offline") or []:
        if file.name == mathjax_path:
            return Path(str(file.locate()))
    raise FileNotFoundError(f"expected {mathjax_path} in sphinx-mathjax-offline: pip install 'scorefold[docs]'")


html_static_path.append(str(_mathjax()))
