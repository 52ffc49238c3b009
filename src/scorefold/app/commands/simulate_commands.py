"""`scorefold simulate` and `scorefold store`: fill a store as a file says, and look into one."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.usage import at_work, known

if TYPE_CHECKING:
    from scorefold.simulation.store.store import Store

store_app = typer.Typer(no_args_is_help=True, help="Look into a store of simulations: info, verify, export, accept.")


class Format(StrEnum):
    """What a store can be exported to."""

    parquet = "parquet"
    zarr = "zarr"


def simulate(config: Annotated[Path, typer.Argument(help="A TOML file; see docs/simulating.md.")]) -> None:
    """Simulate into a store, as a TOML file says. Run it again to continue.

    The file names Python code, which is run with all your rights: use only files that you trust.
    """
    from scorefold.app import config as files
    from scorefold.simulation.simulate import simulate as run

    read = known("CONFIG", lambda: files.read(config))
    prior, simulator = known("CONFIG", read.prior), known("CONFIG", read.simulator)
    arguments = known("CONFIG", read.arguments)
    with at_work():
        sims = run(prior, simulator, **arguments, progress=True)
    typer.echo(f"{sims}\nThe store is {read.store}; look into it with `scorefold store info {read.store}`.")


@store_app.command()
def info(path: Annotated[Path, typer.Argument(help="A store.")]) -> None:
    """Show what is in a store."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from scorefold.shown import listed

    store = _open(path)
    about, stop = store.about, store.stop()
    counts = {name: count for name, count in store.counts().items() if count}
    missing = sum(b - a for a, b in store.missing(stop))
    seconds = store.runtimes(0, stop)
    shards = [file.stat().st_size for file in (path / "shards").iterdir()] if stop else []
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("simulations", ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none")
    table.add_row("missing", f"{missing:,} before the last one" if missing else "none before the last one")
    table.add_row("prior", Text(repr(store.prior)))
    table.add_row("simulator", Text(f"{about['simulator']['name']} (code {about['simulator']['sha256'][:12]}…)"))
    table.add_row("seed, set size", f"{about['seed']}, {about['set_size']}")
    named = f" ({listed(store.x_names)})" if store.x_names else ""
    named += f", the last {len(store.input_names)} known inputs" if store.input_names else ""
    table.add_row("observation", Text(("×".join(map(str, store.shape)) or "1 number") + named))
    table.add_row(
        "files", f"{len(shards):,} shards, {sum(shards) / 1e6:,.1f} MB; schema {about['schema']}, by {about['scorefold']}"
    )
    if np.isfinite(seconds).any():
        kept = seconds[np.isfinite(seconds)]
        table.add_row("seconds each", f"median {np.median(kept):.3g}, longest {kept.max():.3g}, all {kept.sum():.3g}")
    Console(soft_wrap=True, highlight=False).print(table)


@store_app.command()
def verify(path: Annotated[Path, typer.Argument(help="A store.")]) -> None:
    """Check every file of a store; the exit status is 1 if something is damaged or missing."""
    store = _open(path)
    stop = store.stop()
    missing = sum(b - a for a, b in store.missing(stop))
    typer.echo(
        f"{stop - missing:,} simulations are whole, {missing:,} before the last one are missing, "
        f"{len(store.quarantined):,} files are damaged and were set aside."
    )
    if missing or store.quarantined:
        raise typer.Exit(1)


@store_app.command()
def export(
    path: Annotated[Path, typer.Argument(help="A store.")],
    to: Annotated[Format, typer.Option(help="The format.")],
    out: Annotated[Path | None, typer.Option(help="File or folder to write; by default beside the store.")] = None,
) -> None:
    """Write the simulations of a store in another format."""
    from scorefold.simulation.store.export import EXPORTS

    store = _open(path)
    target = out or path.resolve().with_suffix(f".{to.value}")
    EXPORTS[to.value](store, target)
    typer.echo(f"{store.stop():,} simulations are in {target}.")


@store_app.command()
def accept(
    path: Annotated[Path, typer.Argument(help="A store.")],
    config: Annotated[Path, typer.Argument(help="The TOML file whose simulator may continue it. Its Python code is run.")],
) -> None:
    """Let a simulator that only looks different continue a store: you vouch that it computes the same."""
    from scorefold.app import config as files
    from scorefold.simulation.store.fingerprint import name

    simulator = known("CONFIG", known("CONFIG", lambda: files.read(config)).simulator)
    store = _open(path)
    before = store.about["simulator"]["name"]
    store.accept(simulator)
    typer.echo(f"The store {path} was begun with {before}, and may now be continued with {name(simulator)}.")


def _open(path: Path) -> "Store":
    from scorefold.simulation.store.store import Store

    with at_work():
        return Store.open(path)
