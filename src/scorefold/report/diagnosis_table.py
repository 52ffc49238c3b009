"""A diagnosis as a table: what each parameter's calibration is, in numbers and in words."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

LEVEL = 0.05


def table(found: Any) -> Group:
    """Parameters, joint tests, what was left out, and the observed data set where there is one."""
    parts: list[Any] = [_verdict(found), _parameters(found), _tests(found)]
    if found.observed is not None:
        parts += ["", _observed(found.observed)]
    return Group(*parts)


def _verdict(found: Any) -> Text:
    words = found.verdicts.overall.words
    left_out = [f"{count} {why}" for count, why in ((found.failed, "with failed simulations were left out"),
                (found.diverged, "diverged and were left out"), (found.unconverged, "did not converge")) if count]  # fmt: skip
    text = f"{words[0].upper()}{words[1:]}.\n{len(found.truth)} data sets of {found.n} observations"
    text += f", {found.draws.shape[1]} draws each" + "".join(f"; {part}" for part in left_out) + ".\n"
    return Text(text, style="bold" if found.good else "bold red")


def _parameters(found: Any) -> Table:
    grid = Table(
        "parameter", "verdict", "p", "sd, times the right one", "centre, in sd", "90 % interval holds", "contraction",
        box=None, pad_edge=False, header_style="bold",
    )  # fmt: skip
    held = dict(zip(found.coverage.names, found.coverage.at(0.9), strict=True))
    for k, one in enumerate(found.verdicts.each):
        row: list[Any] = [_marked(one.words, one.good), _p(found.sbc.p_values[k])]
        if k < found.sbc.parameters:
            row += [f"{found.sbc.sd_ratio[k]:.2f}", f"{-found.sbc.low_by[k]:+.2f}", f"{held[one.name]:.0%}",
                    f"{found.contraction.typical[k]:.2f}"]  # fmt: skip
        grid.add_row(one.name, *row)
    return grid


def _tests(found: Any) -> Table:
    grid = Table("\njoint test", "\np", "\n", box=None, pad_edge=False, header_style="bold")
    rows = (
        ("all ranks (SBC)", found.sbc.p_value),
        ("central intervals and ellipsoid", found.coverage.uniformity.p_value),
        ("highest-density regions and ellipsoid", found.highest_density.uniformity.p_value),
        ("TARP, points near the data's prediction", found.tarp.p_value),
    )
    for name, p in rows:
        grid.add_row(name, _p(p), _marked("passed" if p >= LEVEL else "FAILED", p >= LEVEL))
    return grid


def _observed(observed: Any) -> Table:
    grid = Table("the observed data set", "p", "", box=None, pad_edge=False, header_style="bold")
    strange = observed.misspecification
    grid.add_row("like anything simulated?", _p(strange.p_value), _marked(strange.words, strange.p_value >= LEVEL))
    local = observed.local.p_value
    words = "right, as far as can be told" if local >= LEVEL else "WRONG here, whatever it is elsewhere"
    grid.add_row("is its posterior right (local C2ST)?", _p(local), _marked(words, local >= LEVEL))
    check = observed.posterior_predictive
    words = "posterior simulations look like it" if check.p_value >= LEVEL else "posterior simulations do NOT look like it"
    grid.add_row("posterior predictive", _p(check.p_value), _marked(words, check.p_value >= LEVEL))
    if observed.influence is not None:
        first = observed.influence.order[:3]
        moves = ", ".join(f"{j} ({observed.influence.distance[j]:.2f} sd)" for j in first)
        grid.add_row("observations that move it most", "", moves)
    return grid


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0015 else "≤0.001"


def _marked(words: str, good: bool) -> Text:
    return Text(words, style="" if good else "red")
