"""SBC and TARP against independent implementations, on the same draws: sbi's ranks, and the curves of sbi and of tarp.

    python benchmarks/diagnostics_peers.py --peer-python /path/to/an/environment/with/sbi/and/tarp/bin/python

θ ~ N(0, I) in two dimensions, 8 observations x_j ~ N(θ, I): the posterior is known, and given exactly or with a fault. Ranks
must agree to the last draw, and TARP's curves to rounding (sbi's is in single precision). The p-values need not, for the tests
differ: sbi has a Kolmogorov–Smirnov test for each parameter (here times the number of parameters), and none that uses the data.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from scorefold.diagnostics.sbc import sbc
from scorefold.diagnostics.tarp import tarp

DATA_SETS, DRAWS, N, DIM = 1_000, 100, 8, 2
BINS = 37
"""Of their curves; no inner edge falls on a multiple of 1 / DRAWS, where rounding would decide."""
ROUNDING = 1e-5
FAULTS = ("none", "too narrow", "too wide", "shifted", "prior returned", "wrong n")

PEER = """
import sys, numpy as np, torch, tarp
from sbi.diagnostics.sbc import _run_sbc, check_uniformity_frequentist
from sbi.diagnostics.tarp import _run_tarp
with np.load(sys.argv[1]) as file:
    truth, draws, references = file["truth"], np.swapaxes(file["draws"], 0, 1), file["references"]
    bins = int(file["bins"])
as_torch = [torch.from_numpy(v.copy()) for v in (truth, draws, references)]
ranks = _run_sbc(as_torch[0], as_torch[0], as_torch[1], show_progress_bar=False)
p = check_uniformity_frequentist(ranks, draws.shape[0])
curve, at = tarp.get_tarp_coverage(draws, truth, references, num_alpha_bins=bins, norm=False, bootstrap=False)
sbi_curve, sbi_at = _run_tarp(as_torch[1], as_torch[0], as_torch[2], num_bins=bins)
found = {"ranks": ranks, "p": p, "curve": curve, "at": at, "sbi_curve": sbi_curve, "sbi_at": sbi_at}
np.savez(sys.argv[2], **{name: np.asarray(value) for name, value in found.items()})
"""


def world(fault: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True parameters, draws for each data set, and the log-likelihood of the truth (first) and of the draws."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((DATA_SETS, DIM))
    x = truth[:, None] + rng.standard_normal((DATA_SETS, N, DIM))
    seen = x[:, : N // 2] if fault == "wrong n" else x[:, :0] if fault == "prior returned" else x
    precision = 1 + seen.shape[1]
    sd = {"too narrow": 0.7, "too wide": 1.4}.get(fault, 1.0) / np.sqrt(precision)
    centre = seen.sum(axis=1) / precision + (0.5 * sd if fault == "shifted" else 0.0)
    draws = centre[:, None] + sd * rng.standard_normal((DATA_SETS, DRAWS, DIM))
    both = np.concatenate([truth[:, None], draws], axis=1)
    return truth, draws, -0.5 * ((x[:, None] - both[:, :, None]) ** 2).sum(axis=(2, 3))


def compare(fault: str, seed: int, peer: Path, folder: Path) -> str:
    """A line of the table."""
    truth, draws, likelihood = world(fault, seed)
    scale = truth.std(axis=0)  # ours measures distances in these; theirs take what they are given
    truth, draws = truth / scale, draws / scale
    references = np.random.default_rng(seed + 1).uniform(truth.min(axis=0), truth.max(axis=0), truth.shape)
    np.savez(folder / "in.npz", truth=truth, draws=draws, references=references, bins=BINS)
    subprocess.run([peer, "-c", PEER, folder / "in.npz", folder / "out.npz"], check=True, cwd=folder)
    with np.load(folder / "out.npz") as file:
        theirs = dict(file)
    ours = sbc(truth, draws, ("a", "b"), {"log-likelihood": (likelihood[:, 0], likelihood[:, 1:])}, seed)
    ranks = np.abs(ours.ranks[:, :DIM] - theirs["ranks"]).max()
    area = tarp(truth, draws, references, seed)
    gaps = [
        np.abs(_below(area.closer, theirs[at]) - theirs[curve]).max()
        for at, curve in (("at", "curve"), ("sbi_at", "sbi_curve"))
    ]
    if ranks > 0 or max(gaps) > ROUNDING:
        raise SystemExit(f"{fault}: ranks differ by up to {ranks:.0f}, the curves by up to {max(gaps):.1e}")
    least = min(1.0, DIM * float(theirs["p"].min()))
    shown = (ours.p_values[:DIM].min(), ours.p_values[DIM], area.p_value, least)
    return f"{fault:16s}{ranks:8.0f}{gaps[0]:10.0e}{gaps[1]:10.0e}" + "".join(f"{p:12.3f}" for p in shown)


def _below(closer: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Our curve at the edges of their bins, which hold their lower edge; the last also its upper one."""
    shares = (closer[None] < at[:, None]).mean(axis=1)
    shares[-1] = 1.0
    return shares


def main() -> None:
    """The table, and an error where ranks or curves differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer-python", type=Path, required=True, help="interpreter with sbi and tarp")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(f"{'difference of':>44s}{'p, ours':>12s}{'p, sbi':>36s}")
    columns = ("parameters", "likelihood", "TARP", "parameters")
    print(f"{'fault':16s}{'ranks':>8s}{'tarp':>10s}{'sbi TARP':>10s}" + "".join(f"{name:>12s}" for name in columns))
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            print(compare(fault, chosen.seed, chosen.peer_python.absolute(), Path(folder)), flush=True)


if __name__ == "__main__":
    main()
