"""Records as the benchmark writes them, with numbers made up by a formula: for what reads records."""

import numpy as np

from scorefold.app.bench.bench_plan import cells
from scorefold.app.bench.record import described


def compared(record) -> dict:
    """What is the same in every run of a cell."""
    return {name: value for name, value in record.items() if name not in ("seconds", "memory", "device")}


def pretended(preset: str, only: str = "") -> list[dict]:
    """One record for each cell; better with the budget and in our setting, worse with n."""
    return [pretend(cell) for cell in cells(preset, only)]


def pretend(cell) -> dict:
    rng = np.random.default_rng(int(cell.key[:8], 16))
    error = (0.25 if cell.setting == "paper" else 0.08) * (1_000 / cell.budget) ** 0.35 * cell.n**0.25
    error *= {"f-npse": 1.2, "npse": 1.4}.get(cell.method, 1.0) * (1 + 0.1 * abs(np.log(cell.m / 5)))
    error *= 1.3 if cell.sampler == "transitions" else 1.0
    error *= float(np.exp(0.2 * rng.normal()))
    measures = {"c2st": min(0.5 + error, 1.0), "mmd2": error**2, "shift": error, "sd_ratio": 1 - error / 2}
    common = np.random.default_rng([int(cell.group.key[:8], 16), cell.training])
    record = described(cell) | {
        "truth": rng.normal(size=2).tolist(),
        "training": {"learning_rate": 1e-3, "validation": float(common.normal())},
        "converged": bool(error < 0.4),
        "diverged": False,
        "measures": measures,
        "seconds": {"simulate": 0.1, "train": 20.0, "draw": float(common.exponential())},
        "device": "cpu",
    }
    if cell.task in ("bimodal", "weinberg"):
        record["draws"] = (rng.uniform(0.2, 1.8, size=(50, 2 if cell.task == "bimodal" else 1))).tolist()
    return record
