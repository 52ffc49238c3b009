"""What the ranks say, in words.

The rule, for each parameter, with S data sets and the mean and sd of z = Φ⁻¹((rank + ½) / (L + 1)):

1. its p-value, adjusted for the number of quantities, is 5 % or more: "well calibrated";
2. otherwise, what of the following is there:
   - |mean of z| > 2 sd(z) / √S: "shifted up" or "down" "by about … sd" (of the posterior);
   - |log sd of z| > 2 / √(2S): "over-confident by about …%": the posterior's sd is so much too small; or
     "under-confident by about …%": so much too large;
3. and if none of these: "wrong in shape".

Where most true values lie beyond all the draws on one side, the shift is at least what is said, and the width cannot be seen.

The data-dependent quantity has the same p-value, and says whether the draws fit the data better or worse than the truth does.

Over all: where only the data-dependent quantity fails, and no parameter's typical contraction reaches a tenth, the posterior
"returns the prior"; where only it fails otherwise, "the parameters are wrong jointly, or the data are not used rightly". Both
say that each parameter alone looks right, so that what is said of each does not contradict the headline. A good verdict comes
with what S data sets would have shown in four cases out of five: a width that is 3.8 / √(2S) off, or a shift of 3.8 / √S sd.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from scorefold.diagnostics.sbc import SBC
from scorefold.report.p_values import passes
from scorefold.shown import one_line
from scorefold.types import Float

CLEAR_ERRORS = 2.0
"""Standard errors from which on a shift or a width is named."""
SEEN_ERRORS = 3.8
"""Standard errors that are found with probability 0.8, where the band is about 3 wide."""
NARROWEST_SEEN = 1.2
"""Times the least sd ratio that ranks can show, where all of them are 0 or L: below this, only a bound is named."""
LEAST_CONTRACTION = 0.1
ALONE = "each parameter alone looks right, but"
JOINTLY = "the parameters are wrong jointly, or the data are not used rightly"


class Verdict(NamedTuple):
    """What calibration says about one quantity: whether it is good, and in words what is wrong with it and what follows."""

    name: str
    good: bool
    words: str


class Verdicts(NamedTuple):
    """What calibration says about each quantity, and about all of them together, in words. `Diagnosis.verdicts` holds it."""

    each: tuple[Verdict, ...]
    overall: Verdict

    def __str__(self) -> str:
        return "\n".join([self.overall.words, *(f"{one_line(one.name)}: {one.words}" for one in self.each)])


def verdicts(found: SBC, contraction: Float[np.ndarray, " dim"]) -> Verdicts:
    """Put the result of SBC in words.

    Args:
        found: what `sbc` returned.
        contraction: the typical one of each parameter, which tells a posterior that returns the prior.

    Returns:
        `Verdicts`, one on each quantity and one over all; as a string, a line each.
    """
    each = tuple(_one(found, k) for k in range(len(found.names)))
    return Verdicts(each, _overall(found, each, contraction))


def _one(found: SBC, k: int) -> Verdict:
    name, datasets = found.names[k], len(found.ranks)
    if passes(float(found.p_values[k])):
        return Verdict(name, True, "well calibrated")
    if k >= found.parameters:
        return Verdict(
            name, False, f"the draws fit the data {'worse' if found.low_by[k] > 0 else 'better'} than the truth does"
        )
    low_by, ratio = found.low_by[k], found.sd_ratio[k]
    if np.mean(found.ranks[:, k] == (found.draws if low_by > 0 else 0)) > 0.5:
        return Verdict(name, False, f"shifted {'down' if low_by > 0 else 'up'} by {abs(low_by):.1g} sd or more")
    words = []
    if abs(low_by) > CLEAR_ERRORS / (ratio * np.sqrt(datasets)):
        words.append(f"shifted {'down' if low_by > 0 else 'up'} by about {abs(low_by):.1g} sd")
    if abs(np.log(ratio)) > CLEAR_ERRORS / np.sqrt(2 * datasets):
        words.append(_width(ratio, NARROWEST_SEEN / float(stats.norm.isf(0.5 / (found.draws + 1)))))
    return Verdict(name, False, " and ".join(words) or "wrong in shape")


def _width(ratio: float, narrowest: float) -> str:
    off = 5 * max(1, round(20 * abs(1 - ratio)))
    if ratio <= narrowest:
        return f"over-confident by {5 * int(20 * (1 - narrowest))}% or more"
    return f"{'over' if ratio < 1 else 'under'}-confident by about {off}%"


def _overall(found: SBC, each: tuple[Verdict, ...], contraction: Float[np.ndarray, " dim"]) -> Verdict:
    wrong = [one for one in each if not one.good]
    parameters = [one for one in wrong if one.name in found.names[: found.parameters]]
    datasets = len(found.ranks)
    if not wrong:
        width, shift = SEEN_ERRORS / np.sqrt(2 * datasets), SEEN_ERRORS / np.sqrt(datasets)
        limits = f"{datasets} data sets would have shown a width {width:.0%} off, or a shift of {shift:.2f} sd"
        return Verdict("overall", True, f"well calibrated: {limits}")
    if not parameters and contraction.max() < LEAST_CONTRACTION:
        return Verdict("overall", False, f"NOT calibrated: {ALONE} it returns the prior, whatever the data")
    if not parameters:
        return Verdict("overall", False, f"NOT calibrated: {ALONE} {JOINTLY}")
    return Verdict(
        "overall", False, "NOT calibrated: " + "; ".join(f"{one_line(one.name)} is {one.words}" for one in parameters)
    )
