"""What to do next, in words, at the end of a page: by what was found."""

from collections.abc import Mapping
from typing import Any

from scorefold.report.p_values import passes

NOT_SETTLED = (
    "The sampler did not follow what was learned. Take the default rule and sampler if you had chosen others; then train "
    "longer or simulate more. Until then look at nothing else on this page."
)
BY_TRUST = {
    "good": "The draws think well of themselves. Before you rely on them, check the calibration: scorefold diagnose, or "
    "sf.diagnose.",
    "usable": "For means within a fraction of an sd this is enough. For more, measure the error (posterior.check) and subtract "
    "it (posterior.corrected), or simulate where the posterior is: --rounds 4 here, posterior.refine in Python.",
    "not to be trusted": "Do not use these draws yet. Where the posterior is much narrower than the prior, simulate where it "
    "is: --rounds 4 here, posterior.refine in Python. Otherwise simulate more, or train longer.",
    "not known": "This method says nothing about its own error. Check the calibration: scorefold diagnose, or sf.diagnose.",
}
CALIBRATED = (
    "Nothing wrong was found, on average over the prior and for data sets of this size. For your own data, pass them "
    "(--observations, or x_obs=), look at draws.trust, and diagnose again if you use another number of observations."
)
MISCALIBRATED = (
    "Where a posterior is over-confident or shifted, simulate more or train longer and diagnose again; where it is shifted for "
    "many observations only, its scores' errors add up, and posterior.check and posterior.refine mend them for one data set. "
    "Where the data-dependent quantity alone fails, data are ignored: look at summaries and embedding. Compare "
    "with another method by scorefold compare."
)
UNLIKE = (
    "The observed data set is unlike what the simulator makes. First suspect units, columns and their order; then the model. "
    "Draws given such data mean little, however well calibrated."
)


def after_inference(summary: Mapping[str, Any]) -> str:
    """For the page of `infer`."""
    if not summary["converged"]:
        return NOT_SETTLED
    told = summary.get("trust") or {"verdict": "not known"}
    return BY_TRUST.get(told["verdict"], BY_TRUST["not known"])


def after_diagnosis(summary: Mapping[str, Any]) -> str:
    """For the page of `diagnose`."""
    like = "observed" not in summary or passes(summary["observed"]["p"]["misspecification"])
    return " ".join([*([] if like else [UNLIKE]), CALIBRATED if summary["good"] else MISCALIBRATED])
