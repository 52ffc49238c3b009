"""The command line: argv → exit status 0 (done), 1 (failed) or 2 (wrong usage). The commands are in `commands/`.

Every command imports what it needs when it runs, so that `scorefold --help` answers at once.
"""

import sys

import typer

from scorefold.app.commands.bench_commands import bench_app
from scorefold.app.commands.check_command import check
from scorefold.app.commands.compare_command import compare
from scorefold.app.commands.diagnose_command import diagnose
from scorefold.app.commands.infer_commands import demo, infer
from scorefold.app.commands.model_commands import evidence, fit, sample
from scorefold.app.commands.refine_command import refine
from scorefold.app.commands.report_command import report
from scorefold.app.commands.simulate_commands import simulate, store_app
from scorefold.app.commands.task_commands import tasks_app
from scorefold.disk.trouble import storage_error
from scorefold.errors import ScorefoldError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Draw from the posterior of a simulator's parameters, given one observation or many thousands.",
)
app.command()(demo)
app.add_typer(tasks_app, name="tasks")
app.command()(infer)
app.command()(simulate)
app.add_typer(store_app, name="store")
app.command()(fit)
app.command()(sample)
app.command()(evidence)
app.command()(check)
app.command()(refine)
app.command()(diagnose)
app.command()(compare)
app.add_typer(bench_app, name="bench")
app.command()(report)


def main() -> None:
    """The entry point: every ScorefoldError is one paragraph on standard error. Ctrl-C is told of in `commands/usage.py`, as
    typer catches it before it gets here.
    """
    try:
        app()
    except ScorefoldError as error:
        print(f"scorefold: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        where = error.filename or "a file"
        print(f"scorefold: {storage_error(error, f'use {where}')}", file=sys.stderr)
        sys.exit(1)
