"""How training went, and how healthy the sampler was."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterMathtext, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from scorefold.errors import ScorefoldError
from scorefold.report.canvas import figure_of, finite_array, hold_within, plain
from scorefold.report.palette import BAND, BLUE, ORANGE

ALLOWED = 0.1
"""How far the identities may be from their right values, chance aside, as `sample/health.py` judges them."""


def training_curve(
    train: np.ndarray, validation: np.ndarray, kept: np.ndarray, epochs_a_round: int = 1, title: str = ""
) -> Figure:
    """Loss against epoch: each member faint, their mean strong, the weights that were kept circled.

    `train` is (members, rounds); `validation`, (members, rounds + 1), starts before training; `kept` indexes the latter.
    """
    train = finite_array("train", train, (None, None))
    members, rounds = train.shape
    validation = finite_array("validation", validation, (members, rounds + 1))
    kept = finite_array("kept", kept, (members,)).astype(int)
    if kept.min() < 0 or kept.max() > rounds:
        raise ScorefoldError(f"expected kept rounds as indices from 0 to {rounds}; got {kept.tolist()}")
    figure = figure_of(5.6, 3.5)
    axes = figure.add_subplot()
    epoch = epochs_a_round * np.arange(rounds + 1)
    lines = ((epoch[1:], train, BLUE, "training"), (epoch, validation, ORANGE, "validation"))
    for x, loss, colour, label in lines:
        if members > 1:
            axes.plot(x, loss.T, color=colour, lw=0.7, alpha=0.3)
        axes.plot(x, loss.mean(0), color=colour, lw=1.8, label=label + (", mean" if members > 1 else ""))
    best = validation[np.arange(members), kept]
    axes.plot(epoch[kept], best, "o", ms=5, mfc="white", mec=ORANGE, mew=1.3, label="kept", zorder=5)
    axes.set(xlabel="epoch", ylabel="loss", ylim=_loss_limits(np.concatenate([train, validation[:, 1:]])))
    axes.set_ylim(top=max(axes.get_ylim()[1], best.max()))
    axes.set_xlim(-0.02 * epoch[-1], 1.02 * epoch[-1])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(frameon=False, fontsize=9)
    plain(axes, title)
    return figure


def sampler_health(
    gamma: np.ndarray, step: np.ndarray, q: np.ndarray, stein: np.ndarray, drift: np.ndarray, title: str = ""
) -> Figure:
    """Step size, information identity q, Stein identity and drift at each level, in the order the sampler runs.

    The horizontal axis is the noise in units of the signal, √(1-γ)/√γ, falling from left to right. Where the draws follow the
    score, Stein's identity is 1 and the drift 0, up to a tenth (the bands, and a little more for chance); q is 1 for a single
    Gaussian mode, and larger for several.
    """
    gamma = finite_array("gamma", gamma, (None,))
    given = {"step": step, "q": q, "stein": stein, "drift": drift}
    step, q, stein, drift = (finite_array(name, values, gamma.shape) for name, values in given.items())
    if not ((gamma > 0) & (gamma < 1)).all():
        raise ScorefoldError(f"expected 0 < gamma < 1; got {gamma.min():g} to {gamma.max():g}")
    noise = 0.5 * np.log10((1 - gamma) / gamma)
    order = np.argsort(-noise)
    figure = figure_of(5.6, 6.4)
    panels = figure.subplots(4, 1, sharex=True)
    rows = (("step size", step), ("information\nidentity q", q), ("Stein\nidentity", stein), ("drift\nin sd", drift))
    for axes, (label, values) in zip(panels, rows, strict=True):
        axes.plot(noise[order], values[order], color=BLUE, lw=1.4, marker="o", ms=2.5)
        axes.set_ylabel(label)
        plain(axes, title if axes is panels[0] else "")
    for axes, right in zip(panels[1:], (1.0, 1.0, 0.0), strict=True):
        axes.axhline(right, color=ORANGE, lw=1.0, ls=(0, (4, 3)), zorder=1)
        axes.axhspan(max(right - ALLOWED, 0.0), right + ALLOWED, color=BAND, lw=0, zorder=0)
    _log_axis(panels[0], step)
    _log_axis(panels[1], q, about=1.0)
    for axes, values, right in ((panels[2], stein, 1.0), (panels[3], drift, 0.0)):
        _about(axes, noise, values, right)
    panels[3].set_xlabel(r"$\log_{10}$ of the noise level $\sqrt{1-\gamma}\,/\sqrt{\gamma}$")
    panels[3].invert_xaxis()
    figure.align_ylabels(panels)
    return figure


def _about(axes: Axes, noise: np.ndarray, values: np.ndarray, right: float) -> None:
    """A plain axis around the right value, as wide as nearly all others ask for; the few beyond are marked at its edge."""
    low, high = np.quantile(values, [0.03, 0.97], method="nearest")
    low, high = min(right - ALLOWED, low), max(right + ALLOWED, high)
    room = 0.15 * (high - low)
    hold_within(axes, noise, values, max(low - room, 0.0) if right == 0 else low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _loss_limits(loss: np.ndarray) -> tuple[float, float]:
    """All losses, except that the fall over the first tenth of the epochs may leave through the top."""
    late = loss[:, loss.shape[1] // 10 :]
    low = float(loss.min())
    high = min(float(loss.max()), float(late.max()) + float(late.max() - low))
    margin = max(0.05 * (high - low), 1e-6 * abs(low), 1e-12)
    return low - margin, high + margin


def _log_axis(axes: Axes, values: np.ndarray, about: float | None = None) -> None:
    """A logarithmic axis, a factor of 2 about a value at least; what is not positive falls out below."""
    positive = values[values > 0]
    if positive.size == 0:
        return
    about = float(np.median(positive)) if about is None else about
    low, high = 0.8 * min(about / 2, positive.min()), 1.25 * max(about * 2, positive.max())
    wide = high / low > 100
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=[1.0] if wide else [1.0, 2.0, 5.0], numticks=6))
    axes.yaxis.set_major_formatter(LogFormatterMathtext() if wide else StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
