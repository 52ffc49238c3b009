"""The page of `scorefold demo`: the story of one epidemic in sentences, with a picture and a few numbers to each chapter."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report.page import Words, escaped, picture, scrolled, table, whole
from scorefold.shown import listed, observations

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
    "right one. The last column is what the draws said of themselves, without knowing the truth: how far off their means "
    "and widths may be, judged by what the networks disagree on."
)
ABOUT_RANKS = (
    "For new epidemics, simulated with rates from the prior, the rank of the true rate among its draws should be "
    "anywhere with the same probability. The shaded band is what chance allows."
)
NEXT = (
    "The same calls work for a simulator of your own: sf.simulate, sf.fit, posterior.sample and sf.diagnose. Start with "
    "README.md; docs/trust.md tells what to do when draws are not to be trusted: simulate more, or spend simulations near the "
    "answer to one data set by posterior.refine, which is not part of this demo."
)


def demo_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, from the demo's summary and its pictures by name."""
    try:
        chapters, settings, seconds = (summary[part] for part in ("chapters", "settings", "seconds"))
        calibration = summary["calibration words"]
    except KeyError as error:
        raise ScorefoldError(f"expected the summary that `scorefold demo` writes; it has no {error}") from None
    many = observations(chapters[-1]["n"])
    done = (
        f"{settings['budget']:,} epidemics were simulated with rates drawn from the prior ({seconds['simulate']:.0f} s), and "
        f"networks were trained on them ({seconds['train']:.0f} s). Nothing was set by hand: sf.fit looked at the simulations "
        f"and chose {settings['why']}. That is done once, and the posterior for any number of observations follows from the "
        f"same networks. Below it is asked for {', '.join(str(one['n']) for one in chapters[:-1])} and {many} of one and the "
        "same disease."
    )
    body = [
        "<h2>The question</h2>", _said(QUESTION),
        "<h2>What was done</h2>", _said(done),
        "<h2>The answer, as observations come in</h2>", _said(_story(chapters)),
        picture("sequence", pictures["sequence"], SEQUENCE),
        scrolled(table(("given", "C2ST", "largest shift", "mean width", "trust"), map(_row, chapters))),
        _said(MEASURE, "quiet"),
        "<h2>Both rates together</h2>", _said(_together(chapters)),
        picture("corner", pictures["corner"], f"The draws (filled) and the true posterior (lines), given {many}."),
        "<h2>Is it right on average?</h2>", _said(calibration), picture("calibration", pictures["calibration"], ABOUT_RANKS),
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
        else "the draws differ visibly from the true posterior"
    )  # fmt: skip
    return (
        f"With {observations(last['n'])} the posterior is {narrower:.1f} times narrower than with {observations(first['n'])}: "
        f"{how} (C2ST {found}). The same networks were used each time."
    )


def _together(chapters: list[dict[str, Any]]) -> str:
    """What the numbers of the last chapter mean, and what the draws said of themselves."""
    last = chapters[-1]
    wide = abs(last["width"] - 1)
    width = "as wide as the true one" if wide < 0.05 else f"{wide:.0%} too {'wide' if last['width'] > 1 else 'narrow'}"
    said = (
        f"Given {observations(last['n'])}, the mean of each rate is at most {last['shift']:.2f} posterior sd off, and the "
        f"posterior is {width}."
    )
    doubted = [str(one["n"]) for one in chapters if one["trust"] == "not to be trusted"]
    if not doubted:
        return said
    return (
        f"{said} Without the truth one would not know: the draws given {listed(doubted)} called themselves not to be trusted, "
        "as the networks disagree by more than good draws allow."
    )
