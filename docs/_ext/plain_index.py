"""llms.txt: the site for readers that are programs: what there is, and every page's source in plain text."""

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from root_pages import PAGES, ROOT

SHORT = 60
HEAD = """# scorefold

> A Python library and command line for simulation-based inference. You have a simulator whose likelihood nobody can write down,
> a prior, and n independent observations; scorefold draws from the posterior given all of them, for n from one to many
> thousands, by adding up a learned likelihood, or by composing the diffusion scores of single observations or of small sets.

The usual walk is `sims = sf.simulate(prior, simulator, budget=10_000)`, `posterior = sf.fit(sims)`,
`draws = posterior.sample(x_obs)`, then `draws.trust`, `posterior.check`, `posterior.refine` and `sf.diagnose`. A simulator is a
function `simulator(theta, rng)` that returns one observation as an array. Pages below are the
sources of the site, in Markdown, but for the reference.
"""


def write(app: Any, error: Exception | None) -> None:
    """After an HTML build: a line for each page, in the order of the contents."""
    if error is not None or app.builder.format != "html":
        return
    lines = [HEAD, "## Pages", ""]
    for name in _in_order(app.env, app.config.root_doc):
        source = Path(app.env.doc2path(name)).suffix
        place = f"_sources/{name}{source}.txt" if source == ".md" else f"{name}.html"  # the reference is made of docstrings
        lines.append(f"- [{app.env.titles[name].astext()}]({place}): {_beginning(app.env.get_doctree(name))}")
    for name, file in PAGES.items():
        shutil.copyfile(ROOT / file, Path(app.outdir) / "_sources" / f"{name}.md.txt")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _in_order(env: Any, name: str) -> list[str]:
    return [name, *(below for child in env.toctree_includes.get(name, []) for below in _in_order(env, child))]


def _beginning(tree: nodes.document) -> str:
    """The first sentence, and those after it while all are short."""
    paragraphs = [one for one in tree.findall(nodes.paragraph) if isinstance(one.parent, nodes.section | nodes.document)]
    text = ""
    for sentence in " ".join(" ".join(one.astext().split()) for one in paragraphs[:2]).split(". "):
        text += sentence.rstrip(".:,") + ". "
        if len(text) >= SHORT:
            break
    return text.strip()


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
