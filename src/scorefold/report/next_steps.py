"""What to do next, in words, at the end of a page: by what was found."""

from collections.abc import Mapping
from typing import Any

from scorefold.report.p_values import beyond_chance, passes
from scorefold.shown import observations

NOT_SETTLED = (
    "The sampler did not follow what was learned. Take the default rule and sampler if you had chosen others; then train "
    "longer or simulate more. Until then look at nothing else on this page."
)
BY_TRUST = {
    "good": "The draws think well of themselves. Before you rely on them, check the calibration: scorefold diagnose, or "
    "sf.diagnose.",
    "usable": "For means within a fraction of an sd this is enough. For more, measure the error (posterior.check) and "
    "subtract it (posterior.corrected), or simulate where the posterior is: --rounds 4 here, posterior.refine "
    "in Python.",
    "not to be trusted": "Do not use these draws yet. Where the posterior is much narrower than the prior, simulate where it "
    "is: --rounds 4 here, posterior.refine in Python. Otherwise simulate more, or train longer.",
    "not known": "This method says nothing about its own error. Check the calibration: scorefold diagnose, or sf.diagnose.",
}
BY_CHECK = {
    "good": "These draws can be used, within the standard errors above; four times as many simulator calls halve them.",
    "limited": "Nothing was found that forbids using these draws, but so few simulator calls would not show it: four times as "
    "many halve the standard errors (--sims, or sims=). Until then do not count on more than the verdict says.",
    "else": "The errors that were found can be taken away: scorefold check --save, or "
    "posterior.corrected(check). Simulations where the posterior is remove their cause: scorefold refine, or posterior.refine.",
}
FEW = 0.1
"""The share of data sets that may be left out, or unsettled, without a word on what to do."""
UNLIKE = (
    "First find out why the observed data set is not like simulated ones: units, columns and their order, or something that "
    "the simulator leaves out. Draws given it mean little until then, however well calibrated."
)
MORE_DATA_SETS = (
    "Diagnose again with four times as many data sets (sims=, or --sims), which show what is wrong with which parameter. Until "
    "then do not count on the intervals."
)
DATA_IGNORED = "The data are not used rightly: look at what the simulator returns, at summaries and at the embedding."
LEFT_OUT = "Many data sets were left out, and nothing here holds for such data: find out what they have in common."
OFTEN_NOT_SETTLED = "The sampler often did not settle: look at sf.plots.sampler(draws), or take another rule or sampler."
OFTEN_NOT_CONVERGED = (
    "The sampler often did not settle: print(draws.info) of some draws says why. Take more draws, or another sampler."
)
REFINABLE = ("NPSE", "NLE")
CHECKABLE = (*REFINABLE, "NRE")


def after_inference(summary: Mapping[str, Any]) -> str:
    """What to do next, on the page of `infer`."""
    if not summary["converged"]:
        return NOT_SETTLED
    told = summary.get("trust") or {"verdict": "not known"}
    return BY_TRUST.get(told["verdict"], BY_TRUST["not known"])


def after_check(summary: Mapping[str, Any]) -> str:
    """What to do next, on the page of `check`."""
    return BY_CHECK["limited" if summary.get("limited") else "good" if summary["verdict"] == "good" else "else"]


def after_diagnosis(summary: Mapping[str, Any]) -> list[str]:
    """For the page and the table of `diagnose`: what to do about what was found, a sentence or two each."""
    steps = []
    found, at_observed = summary["data sets"], summary.get("observed", {}).get("p", {})
    method = summary["settings"].get("method", "")
    if any(not passes(at_observed.get(name, 1.0)) for name in ("misspecification", "posterior predictive")):
        steps.append(UNLIKE)
    if not summary["good"] and all(summary["quantities"][name]["good"] for name in summary["contraction"]):
        steps.append(DATA_IGNORED)
    if summary["good"] and beyond_chance(summary["p"]):
        steps.append(MORE_DATA_SETS)
    if not summary["good"] or not passes(at_observed.get("local C2ST", 1.0)):
        trained = summary["settings"].get("trained on")
        now = f" (now {trained})" if trained else ""
        longer = "" if method == "ABC" else " or train longer"
        steps += [
            _for_one(method),
            f"For all data sets: simulate more{now}{longer}, and diagnose again; or compare another method, or other set "
            "sizes, with sf.compare.",
        ]
    if found["failed"] + found["diverged"] > FEW * found["simulated"]:
        steps.append(LEFT_OUT)
    if found["not converged"] > FEW * found["used"]:
        steps.append(OFTEN_NOT_SETTLED if method == "NPSE" else OFTEN_NOT_CONVERGED)
    return steps or [_use(summary, bool(at_observed))]


def _use(summary: Mapping[str, Any], observed: bool) -> str:
    size = observations(summary["n"])
    found = "Nothing wrong was found." if all(map(passes, summary["p"].values())) else "Little was found."
    words = f"{found} Use it for data sets of about {size}; for others, diagnose with their n."
    own = " Give your own data set (x_obs=, or --observations) to have it looked at, too."
    return words + ("" if observed else own)


def _for_one(method: str) -> str:
    """What a method can do about one data set."""
    check = "For one data set: posterior.check(x_obs, simulator) measures how far its means and widths are off"
    if method in REFINABLE:
        return f"{check}, and posterior.refine(x_obs, simulator) simulates where its posterior is."
    if method in CHECKABLE:
        return f"{check}."
    return (
        "For one data set: fit with method='nle' or 'f-npse', whose posterior can be checked by simulations at its draws and "
        "refined."
    )
