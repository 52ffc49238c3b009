"""`scorefold` in this process, and what every command that simulates must do with a simulator that hangs."""

import tomllib

from typer.testing import CliRunner

from scorefold.app.cli import app

HANGING = """
import pathlib, time
import numpy as np
def simulate(theta, rng):
    try:
        pathlib.Path({once!r}).touch(exist_ok=False)
        time.sleep(100)
    except FileExistsError:
        pass
    return theta + np.array({sd}) * rng.standard_normal(2)
"""


def call(*argv):
    """The command in this process, on a wide terminal."""
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in argv])


def gives_up_what_hangs(folder, command, argv, own, sd=(1.0, 1.0)):
    """A simulation that hangs is given up after the file's timeout, and its max_failures holds.

    `own` is the TOML file of the model that `argv` names, up to its last section, and `folder` is where commands run.
    """
    module, _ = tomllib.loads(own)["simulator"]["function"].split(":")
    once = folder / "hung"
    (folder / f"hanging_{command}.py").write_text(HANGING.format(once=str(once), sd=list(sd)))
    config = folder / "own.toml"
    config.write_text(own.replace(module, f"hanging_{command}") + "workers = 1\ntimeout = 2.0\n")
    result = call(command, *argv, "--config", config)
    assert result.exit_code == 0, result.output
    once.unlink()
    config.write_text(config.read_text() + "max_failures = 0.0\n")
    result = call(command, *argv, "--config", config)
    assert result.exit_code == 1
    assert "no answer within the timeout of 2 s" in str(result.exception)
