"""llms.txt: the site for readers that are programs: what there is, and every page's source in plain text."""

from pathlib import Path
from typing import Any

from docutils import nodes

HEAD = """# scorefold

> A Python library and command line for simulation-based inference. You have a simulator whose likelihood nobody can write down,
> a prior, and n independent observations; scorefold draws from the posterior given all of them, for n from one to many
> thousands, by composing the diffusion scores of single observations or of small sets of them.

The usual walk is `sims = sf.simulate(prior, simulator, budget=10_000)`, `posterior = sf.fit(sims)`,
`draws = posterior.sample(x_obs)`, then `draws.trust`, `posterior.check`, `posterior.refine` and `sf.diagnose`. A simulator is a
function `simulator(theta, rng)` that returns one observation as an array. Pages below are the sources of the site, in Markdown.
"""


def write(app: Any, error: Exception | None) -> None:
    """After an HTML build: a line for each page, in the order of the contents."""
    if error is not None or app.builder.format != "html":
        return
    lines = [HEAD, "## Pages", ""]
    for name in _in_order(app.env, app.config.root_doc):
        source = Path(app.env.doc2path(name)).suffix
        title = app.env.titles[name].astext()
        lines.append(f"- [{title}](_sources/{name}{source}.txt): {_first_sentence(app.env.get_doctree(name))}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _in_order(env: Any, name: str) -> list[str]:
    return [name, *(below for child in env.toctree_includes.get(name, []) for below in _in_order(env, child))]


def _first_sentence(tree: nodes.document) -> str:
    for paragraph in tree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section | nodes.document):
            continue
        text = " ".join(paragraph.astext().split())
        return text.split(". ")[0].rstrip(".:") + "."
    return ""


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
