"""`scorefold report`: one page about a folder of results, whichever command wrote it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from scorefold.app.commands.bench_commands import records_in
from scorefold.app.commands.usage import known


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `bench run`, `infer`, `diagnose`, `compare` or `check` wrote.")],
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the folder.")] = None,
) -> None:
    """Write one self-contained HTML page about a folder of results."""
    from scorefold.report.results_folder import PAGE, write_page

    text, target = _page(folder), out or folder / PAGE
    known("--out", lambda: write_page(target, text))
    typer.echo(f"The page is {target}; {len(text.encode()) / 1e6:.2f} MB, open it in any browser.")


def _page(folder: Path) -> str:
    from scorefold.app.bench.bench_page import bench_page
    from scorefold.app.bench.drive import history
    from scorefold.app.bench.record import RECORDS
    from scorefold.report.check_page import check_page
    from scorefold.report.comparison_page import comparison_page
    from scorefold.report.diagnosis_page import diagnosis_page
    from scorefold.report.infer_page import infer_page
    from scorefold.report.results_folder import CHECK, COMPARISON, DIAGNOSIS, SUMMARY

    if (folder / RECORDS).exists():
        return bench_page(records_in(folder), history(folder))
    pages = {SUMMARY: infer_page, DIAGNOSIS: diagnosis_page, COMPARISON: comparison_page, CHECK: check_page}
    for name, page in pages.items():
        if (folder / name).exists():
            return page(_summary(folder / name), {path.stem: path.read_bytes() for path in sorted(folder.glob("*.png"))})
    raise typer.BadParameter(
        f"expected a folder with {RECORDS} (of `scorefold bench run`), {SUMMARY} (of `scorefold infer`), {DIAGNOSIS} (of "
        f"`scorefold diagnose`), {COMPARISON} (of `scorefold compare`) or {CHECK} (of `scorefold check`); got {folder}",
        param_hint="FOLDER",
    )


def _summary(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="FOLDER") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"expected an object in {path}; got {type(found).__name__}", param_hint="FOLDER")
    return found
