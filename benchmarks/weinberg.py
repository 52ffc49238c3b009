"""The paper's demonstration: the Fermi constant from five scattering angles.

    python benchmarks/weinberg.py --out FOLDER       # trains F-NPSE and writes FOLDER/weinberg.png

For θ* = 0.3 and 1.7: the posteriors given each of five observations in black, given all five in red, and the exact ones
over them, dashed. Printed: C2ST and squared MMD of each against exact draws; 0.5 and 0 are perfect.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import gaussian_kde

import scorefold as sf
from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.mmd import squared_mmd
from scorefold.tasks import weinberg

INK, RED = "#1A1A1A", "#C1121F"
GRID = np.linspace(0, 2, 401)


def observe(theta: float, n: int, seed: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(seed), n)
    return np.asarray(tasks.get("weinberg").simulator(jnp.full((n, 1), theta, jnp.float32), keys), np.float64)


def smoothed(theta: np.ndarray) -> np.ndarray:
    """A density estimate, reflected at the prior's bounds."""
    kernel = gaussian_kde(np.concatenate([-theta, theta, 4 - theta]), bw_method=0.06)
    return 3 * kernel(GRID)


def exact(x_obs: np.ndarray) -> np.ndarray:
    log_p = weinberg.log_posterior(GRID, x_obs[:, 0])
    p = np.exp(log_p - log_p.max())
    return p / np.trapezoid(p, GRID)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("weinberg"))
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    task = tasks.get("weinberg")
    sims = sf.simulate(task.prior, task.simulator, chosen.budget, seed=chosen.seed)
    posterior = sf.fit(sims, method="f-npse", seed=chosen.seed)

    figure = Figure((9.6, 3.6), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    print("θ*    given       C2ST    MMD²     converged")
    for panel, theta in zip(figure.subplots(1, 2, sharey=True), (0.3, 1.7), strict=True):
        x_obs = observe(theta, 5, chosen.seed + 1)
        for part, colour, what in [*((x_obs[[j]], INK, f"x_{j + 1}") for j in range(5)), (x_obs, RED, "x_1 … x_5")]:
            drawn = posterior.sample(part, draws=chosen.draws, seed=chosen.seed)
            truth = task.reference(part, chosen.draws, chosen.seed)
            joint = len(part) > 1
            panel.plot(GRID, smoothed(drawn.theta[:, 0]), color=colour, lw=2.2 if joint else 1.0, alpha=1 if joint else 0.75)
            panel.plot(GRID, exact(part), color=colour, lw=1.4 if joint else 0.8, ls=(0, (3, 2)))
            measures = f"{c2st(drawn.theta, truth):.3f}   {squared_mmd(drawn.theta, truth):.4f}"
            print(f"{theta:3.1f}   {what:10s}  {measures}   {drawn.info.converged}", flush=True)
        panel.axvline(theta, color="#8C8C8C", lw=1.0, zorder=0)
        panel.set(title=f"θ* = {theta}", xlabel="G", xlim=(0, 2))
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("density")
    lines = [(INK, "-", "one observation"), (RED, "-", "all five"), (INK, (0, (3, 2)), "exact"), ("#8C8C8C", "-", "θ*")]
    handles = [Line2D([], [], color=colour, ls=style, label=label) for colour, style, label in lines]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    chosen.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(chosen.out / "weinberg.png", dpi=150)
    print(f"{chosen.out / 'weinberg.png'}; {chosen.budget:,} simulator calls, {jax.devices()[0].device_kind}")


if __name__ == "__main__":
    main()
