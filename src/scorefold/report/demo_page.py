"""The page of `scorefold demo`: the story of one epidemic in sentences, with a picture and a few numbers to each chapter."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report.page import Words, escaped, picture, scrolled, table, whole
from scorefold.shown import observations

CLOSE, ROUGH = 0.65, 0.8
"""Of C2ST: below the first a classifier hardly tells the draws from the true posterior, above the second easily."""
QUESTION = (
    "An epidemic spreads through a population. At ten times 1,000 people are tested, and the infected among them "
    "counted. How fast did the disease spread (beta), and how fast did people recover (gamma)? The simulator is easy "
    "to run, but how likely its counts are is not something that one can write down and compute quickly for every "
    "epidemic, which is what scorefold is for. For this simulator the true posterior can be had all the same, by long "
    "computation, so we can see how good the answer is."
)
SEQUENCE = (
    "Each colour is a number of observations of epidemics with the same two rates. Solid lines are scorefold's draws, "
    "dotted lines the true posterior, and the orange line the rates that the data were simulated with."
)
MEASURE = (
    "C2ST is how often a classifier can tell scorefold's draws from draws of the true posterior: 0.5 is perfect, 1 is "
    "hopeless. The shift is how far the mean is off, in sd of the true posterior; the width is the draws' sd over the "
    "right one. The last column is what the draws said of themselves, without knowing the truth."
)
CALIBRATION = (
    "For new epidemics, simulated with rates from the prior, the rank of the true rate among its draws should be "
    "anywhere with the same probability. The shaded band is what chance allows."
)
NEXT = (
    "The same four calls work for a simulator of your own: sf.simulate, sf.fit, posterior.sample and, for data that "
    "matter, posterior.refine. Start with README.md; docs/trust.md tells what to do when draws are not to be trusted."
)


def demo_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """From the demo's summary, and its pictures by name."""
    try:
        chapters, settings, seconds = (summary[part] for part in ("chapters", "settings", "seconds"))
        calibration = summary["calibration words"]
    except KeyError as error:
        raise ScorefoldError(f"expected the summary that `scorefold demo` writes; it has no {error}") from None
    *amortised, refined = chapters
    many = observations(refined["n"])
    done = (
        f"{settings['budget']:,} epidemics were simulated with rates drawn from the prior ({seconds['simulate']:.0f} s), and "
        f"networks were trained on them ({seconds['train']:.0f} s). That is done once: the posterior for any number of "
        f"observations then takes seconds. Below it is asked for {', '.join(str(one['n']) for one in amortised[:-1])} and "
        f"{observations(amortised[-1]['n'])} of one and the same disease."
    )
    near = (
        f"For these {many}, {settings['refine_budget']:,} more epidemics were simulated near the answer and a posterior fitted "
        f"for these data alone ({seconds['refine']:.0f} s). C2ST went from {amortised[-1]['c2st']:.2f} to "
        f"{refined['c2st']:.2f}."
    )
    body = [
        "<h2>The question</h2>", _said(QUESTION),
        "<h2>What was done</h2>", _said(done),
        "<h2>The answer, as observations come in</h2>", _said(_story(amortised)),
        picture("sequence", pictures["sequence"], SEQUENCE),
        scrolled(table(("given", "C2ST", "largest shift", "mean width", "trust"), map(_row, chapters))),
        _said(MEASURE, "quiet"),
        "<h2>More simulations where they matter</h2>", _said(near),
        picture("corner", pictures["corner"], f"The refined draws (filled) and the true posterior (lines), given {many}."),
        "<h2>Is it right on average?</h2>", _said(calibration), picture("calibration", pictures["calibration"], CALIBRATION),
        "<h2>How training went</h2>",
        picture("training", pictures["training"], "The loss, round by round. Circles mark the weights that were kept."),
        "<h2>What next</h2>", _said(NEXT),
    ]  # fmt: skip
    return whole("One epidemic, 1 to 14 observations", body, {"kind": "demo", "summary": summary})


def _said(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escaped(text)}</p>"


def _row(one: dict[str, Any]) -> tuple[str | Words, ...]:
    numbers = f"{one['c2st']:.2f}", f"{one['shift']:.2f} sd", f"{one['width']:.2f}"
    return (one["label"], *numbers, Words(one["trust"], one["trust"] != "not to be trusted"))


def _story(chapters: list[dict[str, Any]]) -> str:
    """What the picture shows, in words."""
    first, last = chapters[0], chapters[-1]
    narrower = first["sd"] / last["sd"]
    worst, found = max(one["c2st"] for one in chapters), ", ".join(f"{one['c2st']:.2f}" for one in chapters)
    how = (
        "a classifier can hardly tell the draws from the true posterior" if worst <= CLOSE
        else "the draws are near the true posterior, but can be told from it" if worst <= ROUGH
        else "the draws differ visibly from the true posterior, and the next chapter mends that"
    )  # fmt: skip
    return (
        f"With {observations(last['n'])} the posterior is {narrower:.1f} times narrower than with {observations(first['n'])}: "
        f"{how} (C2ST {found}). The same networks were used each time."
    )
