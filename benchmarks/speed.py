"""How long do fitting, drawing and refining take, how much of that is compilation, and how fast could the machine be?

    python benchmarks/speed.py > speed.jsonl                          # everything, as lines of JSON
    python benchmarks/speed.py --parts compile fit --methods nle
    python benchmarks/speed.py --parts draws --n 30 --draws 100000    # as on an accelerator
    python benchmarks/speed.py --picture speed.jsonl time_against_n.png
    python benchmarks/speed.py --parts sbi --methods nle --tasks two_moons     # where networks have to learn
    python benchmarks/speed.py --rules diffused damped --n 1 10 100 1000   # a table: 1,000 draws by rule, and peak memory

The gaussian task, unless others are named. Every line is a process of its own. Seconds are of CPU time (`cpu_s`) and by the
clock (`wall_s`); on a busy machine the first are the ones to compare, and ratios of one run are better still:

- peak: products of 1,024 × 1,024 matrices, GFLOP/s.
- compile: programs compiled in a first fit and in the first draws, with the CPU seconds of it: first call less a second one.
- fit: a first fit, a second in the same process, and a second process with `sf.cache`; the share of the measured peak that the
  products of the training steps make use of.
- draws: 1,000 draws (--draws) for n observations, first and second call.
- refine: a refinement by 2,000 simulations, against the fit it starts from.
- sbi: for each method, its training and 1,000 draws for n = 1 and 30 by sbi on the same simulations, where .peers/ is an
  environment that has sbi, and then ours: a first fit, another process with `sf.cache`, draws; with the C2ST of both. NPSE
  composes by `gauss`. What takes sbi more than 5 minutes is left out. Ratios are of seconds by the clock.
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

LONG, SBI_LIMIT = 120.0, 300.0
PARTS = ("peak", "compile", "fit", "draws", "refine", "sbi")
METHODS = ("f-npse", "nle")
OF_SBI = ("f-npse", "nle", "npe", "nre")
BRIEF = 50
"""Steps of training where only the time to draw or to compile is wanted; it does not depend on how well."""
PEERS = Path(__file__).parents[1] / ".peers" / "bin" / "python"


def clocked(what: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What it gives, and its CPU time and time by the clock."""
    used, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    made = what()
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return made, {"cpu_s": round(cpu, 2), "wall_s": round(time.perf_counter() - started, 2)}


def simulated(chosen: argparse.Namespace) -> tuple[Any, Any]:
    """The task, and so many simulations."""
    from scorefold import tasks
    from scorefold.simulation.simulate import simulate

    task = tasks.get(chosen.tasks[0])
    return task, simulate(task.prior, task.simulator, chosen.budget)


def method_of(name: str, steps: int | None = None) -> Any:
    """The method of that name, with at most so many steps."""
    from scorefold import methods

    method: Any = methods.get(name)
    return method if steps is None else replace(method, training=replace(method.training, steps=steps))


def peak(chosen: argparse.Namespace) -> dict[str, Any]:
    """The rate of large products of matrices."""
    import jax
    import jax.numpy as jnp

    size, times = 1_024, 20
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: jax.lax.fori_loop(0, times, lambda _, b: a @ b / size, a))
    jax.block_until_ready(product(a))
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        jax.block_until_ready(product(a))
        rates.append(times * 2 * size**3 / (time.perf_counter() - started))
    return {"gflops": round(max(rates) / 1e9, 1), "device": jax.devices()[0].device_kind}


def compile_(chosen: argparse.Namespace) -> dict[str, Any]:
    """Programs, and CPU seconds of a first call less those of a second."""
    import jax

    import scorefold as sf

    task, sims = simulated(chosen)
    _, x_obs = task.observe(30, seed=1)
    programs: list[str] = []

    def note(event: str, _: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            programs.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    method, found = method_of(chosen.method, BRIEF), {}

    def twice(name: str, what: Callable[[], Any]) -> Any:
        for call in (0, 1):
            before = len(programs)
            made, seconds = clocked(what)
            found[name, call] = len(programs) - before, seconds["cpu_s"]
        return made

    posterior = twice("fit", lambda: sf.fit(sims, method))
    twice("sample", lambda: posterior.sample(x_obs))
    return {
        f"{name}_{what}": value
        for name in ("fit", "sample")
        for what, value in (
            ("programs", found[name, 0][0]),
            ("programs_again", found[name, 1][0]),
            ("compile_cpu_s", round(found[name, 0][1] - found[name, 1][1], 2)),
        )
    }


def fit(chosen: argparse.Namespace) -> dict[str, Any]:
    """One fit, or two, in this process; with a folder for compiled programs if there is one."""
    import scorefold as sf

    if chosen.cache:
        sf.cache(chosen.cache)
    _, sims = simulated(chosen)
    posterior, first = clocked(lambda: sf.fit(sims, chosen.method))
    line: dict[str, Any] = {"first": first, "cached": bool(chosen.cache)}
    if not chosen.cache:
        posterior, line["second"] = clocked(lambda: sf.fit(sims, chosen.method, seed=1))
        rounds = posterior.history.train.shape[1]
        rate = rounds * flops_of_a_round(posterior, sims) / line["second"]["wall_s"]
        line |= {"rounds": rounds, "training_gflops": round(rate / 1e9, 1)}
    return line


def flops_of_a_round(posterior: Any, sims: Any) -> float:
    """Three times (forward, and backward by weights and by inputs) the products of all members in a round, both noises."""
    import jax
    import numpy as np

    from scorefold.train.training import pace_of
    from scorefold.train.training_set import FOLDS

    training = posterior.method.training
    pace = pace_of(training, len(sims.theta) * (FOLDS - 1) // FOLDS, False)
    trained = getattr(posterior, "ensemble", None) or posterior.terms
    numbers = sum(np.size(v) for v in jax.tree.leaves(trained.network) if np.ndim(v) == 3)
    noises = 2 if hasattr(posterior, "ensemble") else 1
    return float(3 * 2 * numbers * noises * pace.batch * pace.steps * pace.epochs)


def draws(chosen: argparse.Namespace) -> dict[str, Any]:
    """Draws, twice."""
    import scorefold as sf

    task, sims = simulated(chosen)
    posterior = sf.fit(sims, method_of(chosen.method, BRIEF))
    _, x_obs = task.observe(chosen.n[0], seed=1)
    _, first = clocked(lambda: posterior.sample(x_obs, chosen.draws))
    line: dict[str, Any] = {"n": chosen.n[0], "draws": chosen.draws, "first": first}
    if first["wall_s"] < LONG:
        line["second"] = clocked(lambda: posterior.sample(x_obs, chosen.draws, seed=1))[1]
    return line


def refine(chosen: argparse.Namespace) -> dict[str, Any]:
    """A refinement beside the fit it starts from."""
    import scorefold as sf

    task, sims = simulated(chosen)
    posterior, fitted = clocked(lambda: sf.fit(sims, chosen.method))
    _, x_obs = task.observe(30, seed=1)
    _, refined = clocked(lambda: posterior.refine(x_obs, task.simulator, budget=2_000))
    return {"fit": fitted, "refine": refined, "ratio": round(refined["cpu_s"] / fitted["cpu_s"], 2)}


def sbi(chosen: argparse.Namespace) -> dict[str, Any]:
    """sbi's method on the same simulations, by `baselines_sbi.py`, and ours."""
    import numpy as np

    import scorefold as sf
    from scorefold.diagnostics.c2st import c2st

    if not PEERS.exists():
        return {"skipped": "there is no environment .peers with sbi"}
    task, sims = simulated(chosen)
    x_obs = {n: task.observe(n, seed=1)[1] for n in (1, 30)}
    reference = {n: task.reference(x, 1_000, 0) for n, x in x_obs.items()}
    with tempfile.TemporaryDirectory() as folder:
        u, x = sims.prior.to_normal(sims.theta), sims.x.reshape(*sims.x.shape[:2], -1)
        wanted = {n: x for n, x in x_obs.items() if n == 1 or chosen.method != "npe"}  # of one set size, which is 1 here
        np.savez(Path(folder) / "cell.npz", theta=u, x=x, **{f"x_obs_{n}": x for n, x in wanted.items()})
        script = str(Path(__file__).with_name("baselines_sbi.py"))
        command = [str(PEERS), script, chosen.method.removeprefix("f-"), f"{folder}/cell.npz", folder, "1000", "0"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=True, capture_output=True, timeout=SBI_LIMIT)
        made = {n: np.load(Path(folder) / f"{n}.npz") for n in wanted if (Path(folder) / f"{n}.npz").exists()}
        theirs: dict[str, Any] = {"train_s": round(float(made[1]["train_s"]), 2)} if made else {"train_s": None}
        for n, one in made.items():
            accuracy = round(c2st(sims.prior.from_normal(one["u"].astype(float)), reference[n]), 3)
            theirs |= {f"draw_s_{n}": round(float(one["draw_s"]), 2), f"c2st_{n}": accuracy}
    ours = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("train_s", "next_process_s"):
            more = ("--budget", str(chosen.budget), "--tasks", *chosen.tasks, "--cache", folder)
            line = in_a_process("fit", chosen.method, chosen.limit, *more)
            ours[name] = line["first"]["wall_s"] if "first" in line else None
    posterior = sf.fit(sims, chosen.method)
    for n, x in wanted.items():
        posterior.sample(x)
        draws, seconds = clocked(lambda x=x: posterior.sample(x, seed=1))
        ours |= {f"draw_s_{n}": seconds["wall_s"], f"c2st_{n}": round(c2st(draws.theta, reference[n]), 3)}
    seconds = {name: value for name, value in theirs.items() if "_s" in name and value is not None}
    ratios = {name: round(value / ours[name], 2) for name, value in seconds.items() if ours.get(name)}
    return {"sbi": theirs, "ours": ours, "sbi_to_ours": ratios}


RUN = {"peak": peak, "compile": compile_, "fit": fit, "draws": draws, "refine": refine, "sbi": sbi}


def in_a_process(part: str, method: str, limit: float, *more: str) -> dict[str, Any]:
    """The line that a process of its own makes."""
    command = [sys.executable, __file__, "--here", part, "--methods", method, *more]
    try:
        made = subprocess.run(command, timeout=limit, capture_output=True, text=True, check=True)
    except subprocess.TimeoutExpired:
        return {"part": part, "method": method, "over_s": limit, "asked": list(more)}
    except subprocess.CalledProcessError as error:
        return {"part": part, "method": method, "failed": error.stderr.strip().splitlines()[-1:], "asked": list(more)}
    line: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return line


def everything(chosen: argparse.Namespace) -> None:
    """One line after the other, and the ratios of a run in the last."""
    budget, lines = ("--budget", str(chosen.budget)), []

    def say(line: dict[str, Any]) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)

    for part in chosen.parts:
        if part == "peak":
            say(in_a_process(part, "nle", chosen.limit, *budget))
            continue
        for method in chosen.methods:
            if part == "sbi":
                for task in chosen.tasks:
                    say(in_a_process(part, method, chosen.limit + SBI_LIMIT, *budget, "--tasks", task))
                continue
            if method not in METHODS:
                continue
            if part == "draws":
                for n in chosen.n:
                    say(in_a_process(part, method, chosen.limit, *budget, "--n", str(n), "--draws", str(chosen.draws)))
                continue
            say(in_a_process(part, method, chosen.limit, *budget))
            if part == "fit":
                with tempfile.TemporaryDirectory() as folder:
                    for _ in range(2):  # the first fills the folder
                        say(in_a_process(part, method, chosen.limit, *budget, "--cache", folder))
    say({"part": "ratios", **ratios(lines)})


def ratios(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Of times in one run, by which machines and days can be compared."""
    found = {}
    top = next((line["gflops"] for line in lines if line["part"] == "peak" and "gflops" in line), None)
    for method in METHODS:
        fits = [line for line in lines if line["part"] == "fit" and line["method"] == method and "first" in line]
        plain, cached = ([line for line in fits if line["cached"] is kept] for kept in (False, True))
        if plain:
            second = plain[0]["second"]["cpu_s"]
            found[f"{method}: first fit / second"] = round(plain[0]["first"]["cpu_s"] / second, 2)
            if len(cached) == 2:
                found[f"{method}: second process with cache / second fit"] = round(cached[1]["first"]["cpu_s"] / second, 2)
            if top:
                found[f"{method}: training, share of peak"] = round(plain[0]["training_gflops"] / top, 3)
        drawn = {line["n"]: line["second"]["cpu_s"] for line in lines if line.get("method") == method and _drew(line)}
        first = min(drawn, default=0)
        found |= {f"{method}: draws n = {n} / n = {first}": round(s / drawn[first], 2) for n, s in drawn.items() if n > first}
    return found


def _drew(line: dict[str, Any]) -> bool:
    return line["part"] == "draws" and "second" in line


def picture(source: Path, target: Path) -> None:
    """Seconds of 1,000 draws against n."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [json.loads(line) for line in source.read_text().splitlines()]
    figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
    for method in METHODS:
        points = sorted((line["n"], line["second"]["wall_s"]) for line in lines if line.get("method") == method and _drew(line))
        axes.plot(*zip(*points, strict=True), marker="o", label=method) if points else None
    for line in lines:
        if line["part"] == "sbi" and line["task"] == "gaussian" and "draw_s_30" in line.get("sbi", {}):
            drawn = [line["sbi"][f"draw_s_{n}"] for n in (1, 30)]
            axes.plot([1, 30], drawn, marker="s", label=f"sbi, {line['method'].removeprefix('f-').upper()}")
    axes.set(xscale="log", yscale="log", xlabel="observations n", ylabel="seconds for 1,000 draws, second call")
    axes.legend(frameon=False)
    figure.savefig(target, dpi=150)


def by_rule(rule: str, n: int) -> None:
    """Train briefly, draw once or twice, print a row of the table."""
    import scorefold as sf

    method = replace(method_of("pf-npse", BRIEF), rule=rule, sampler=sf.samplers.SelfTuned())
    task, sims = simulated(argparse.Namespace(tasks=["gaussian"], budget=2_000))
    posterior = sf.fit(sims, method)
    _, x_obs = task.observe(n, seed=1)
    first, second = posterior.sample(x_obs).seconds, float("nan")
    if first < LONG:
        second = clocked(lambda: posterior.sample(x_obs, seed=1))[1]["wall_s"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{rule:12s} {n:6d}   {first:7.1f}    {second:7.2f}    {memory:6.0f}", flush=True)


def table(chosen: argparse.Namespace) -> None:
    """Each rule and n in a process of its own, so that its peak memory is its own."""
    print("rule              n   first s   second s   peak MB", flush=True)
    for rule in chosen.rules:
        for n in chosen.n:
            command = [sys.executable, __file__, "--here", "rule", "--rules", rule, "--n", str(n)]
            try:
                subprocess.run(command, check=True, timeout=chosen.limit)
            except subprocess.TimeoutExpired:
                print(f"{rule:12s} {n:6d}   over {chosen.limit:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--methods", nargs="+", choices=OF_SBI, default=METHODS)
    parser.add_argument("--tasks", nargs="+", default=["gaussian"], help="several for sbi; other parts take the first")
    parser.add_argument("--n", nargs="+", type=int, default=[1, 30, 300, 1_000, 10_000])
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--budget", type=int, default=10_000, help="simulations to fit to")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one process")
    parser.add_argument("--picture", nargs=2, type=Path, metavar=("LINES", "PNG"), help="draw the picture of a run")
    parser.add_argument("--rules", nargs="+", help="a table by rule instead")
    parser.add_argument("--here", choices=(*PARTS, "rule"), help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.picture:
        return picture(*chosen.picture)
    if chosen.here:
        import warnings

        warnings.simplefilter("ignore")
        if chosen.here == "rule":
            return by_rule(chosen.rules[0], chosen.n[0])
        chosen.method = chosen.methods[0]
        about = {"part": chosen.here, "method": chosen.method, "task": chosen.tasks[0], "budget": chosen.budget}
        print(json.dumps({**about, **RUN[chosen.here](chosen)}))
        return None
    return table(chosen) if chosen.rules else everything(chosen)


if __name__ == "__main__":
    main()
