"""A run written down as a TOML file.

    [prior]                                    # a SciPy distribution (or NumPyro's, capitalised) for each parameter
    beta = { distribution = "lognorm", s = 0.5, scale = 0.4 }
    gamma = { distribution = "Uniform", low = 0.0, high = 2.0 }

    [simulator]
    function = "my_model:simulate"             # module:function, looked for beside this file first

    [simulate]
    budget = 10_000
    set_size = 6                               # the rest may be left out
    seed = 0
    store = "simulations"                      # a folder, beside this file; by default named after it
    workers = 8
    timeout = 60.0                             # seconds
    memory = 2_000_000_000                     # bytes
    max_failures = 0.2
    x_names = ["rt", "choice"]                 # of the numbers that the simulator returns
    inputs = "coherences.csv"                  # known inputs: a table beside this file, or module:function
    input_names = ["coherence"]                # where the table has no header
    missing = true                             # NaN that the simulator returns are numbers that were not observed

A multivariate normal is written as `[prior]` with `distribution = "multivariate_normal"`, `names`, `mean` and `cov`; a prior
from draws with `distribution = "draws"`, `names`, `file` (.npy) and perhaps `bounds`. Keys that are not known are refused.
"""

import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefold.errors import ScorefoldError, closest
from scorefold.settings import whole

if TYPE_CHECKING:
    from scorefold.prior import Prior

REQUIRED = {
    "prior": "a distribution for each parameter",
    "simulator": 'function = "module:function"',
    "simulate": "a budget, such as budget = 10_000, at least",
}
"""The tables, and what each must hold."""
TABLE_NAMES = tuple(REQUIRED)
SIMULATE: dict[str, tuple[type, ...]] = {
    "budget": (int,),
    "set_size": (int,),
    "seed": (int,),
    "store": (str,),
    "workers": (int,),
    "timeout": (int, float),
    "memory": (int,),
    "max_failures": (int, float),
    "x_names": (list,),
    "inputs": (str,),
    "input_names": (list,),
    "missing": (bool,),
}
"""The arguments of `sf.simulate` and of `sf.Workers` that a file may set."""
TYPES_IN_WORDS = {int: "a whole number", str: "text in quotes", list: "a list of names", bool: "true or false"}
WORKERS = {"workers": "count", "timeout": "timeout", "memory": "memory", "max_failures": "max_failures"}
"""Those that are settings of `sf.Workers`, with their names there."""


@dataclass(frozen=True)
class Config:
    """What stands in a TOML file of prior, simulator and settings, read and checked: unknown keys and wrong types were refused.
    `prior` and `simulator` make the objects of it.
    """

    path: Path
    prior_table: Mapping[str, Any]
    function: str
    simulate: Mapping[str, Any]

    @property
    def store(self) -> Path:
        """Where simulations go."""
        return self.path.parent / self.simulate.get("store", f"{self.path.stem}-simulations")

    def arguments(self) -> dict[str, Any]:
        """What `sf.simulate` takes besides the prior and the simulator."""
        from scorefold.simulation.workers import Workers

        own = {key: value for key, value in self.simulate.items() if key not in WORKERS}
        if "inputs" in own:
            own["inputs"] = self.inputs()
        workers = Workers(**{WORKERS[key]: value for key, value in self.simulate.items() if key in WORKERS})
        return {**own, "store": self.store, "workers": workers}

    def prior(self) -> "Prior":
        """The prior."""
        return read_prior(self.prior_table, self.path.parent)

    def inputs(self) -> Any:
        """Where known inputs come from: a table in a file beside this one, or a function."""
        from scorefold.app.commands.observation_files import OBSERVATION_FORMATS, read_numbers

        given = self.simulate["inputs"]
        if Path(given).suffix in OBSERVATION_FORMATS:
            return read_numbers(self.path.parent / given)
        return self._function(given, "inputs of [simulate]")

    def simulator(self) -> Callable[..., Any]:
        """The simulator, imported."""
        return self._function(self.function, "[simulator]")

    def _function(self, function: str, where: str) -> Callable[..., Any]:
        """A function as module:function, looked for beside the file first."""
        module_name, _, name = function.partition(":")
        folder = str(self.path.parent.resolve())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            module = import_module(module_name)
        except Exception as error:
            raise ScorefoldError(
                f"{where} in {self.path}: expected a module {module_name!r} that can be imported, beside the file or "
                f"installed; got {type(error).__name__}: {error}"
            ) from error
        if not callable(found := getattr(module, name, None)):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise ScorefoldError(
                f"{where} in {self.path}: expected a function {name!r} in module {module_name!r}. {closest(name, known)}"
            )
        return found


def read(path: str | Path) -> Config:
    """Read a TOML file that says what to simulate.

    Args:
        path: The file.

    Returns:
        What stands in it.

    Raises:
        ScorefoldError: It cannot be read, or something in it is wrong; the message says what and where.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ScorefoldError(f"expected a TOML file at {path}; got {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScorefoldError(f"expected TOML in {path}; got {error}") from error
    _keys(content, TABLE_NAMES, f"{path}", "table")
    for name in TABLE_NAMES:
        if not isinstance(content.get(name), dict):
            found = f"got {content[name]!r:.60}" if name in content else "there is none"
            raise ScorefoldError(f"{path}: expected a table [{name}], with {REQUIRED[name]}; {found}")
    _keys(content["simulator"], ("function",), f"[simulator] in {path}", "key")
    function = content["simulator"].get("function")
    if not isinstance(function, str) or not all(part for part in (*function.partition(":")[::2],)):
        raise ScorefoldError(f'[simulator] in {path}: expected function = "module:function"; got {function!r}')
    settings = content["simulate"]
    _keys(settings, tuple(SIMULATE), f"[simulate] in {path}", "key")
    settings = {key: whole(value) if SIMULATE[key] == (int,) else value for key, value in settings.items()}
    for key, value in settings.items():
        if not isinstance(value, SIMULATE[key]) or isinstance(value, bool) is not (SIMULATE[key] == (bool,)):
            kind = TYPES_IN_WORDS.get(SIMULATE[key][-1], "a number")
            raise ScorefoldError(f"[simulate] in {path}: expected {key} to be {kind}; got {value!r}")
    if "budget" not in settings:
        raise ScorefoldError(f"[simulate] in {path}: expected a budget, the number of simulator calls; got none")
    return Config(path, content["prior"], function, settings)


def read_prior_alone(path: str | Path) -> "Prior":
    """The prior of a TOML file, whatever else it holds."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            table = tomllib.load(file).get("prior")
    except OSError as error:
        raise ScorefoldError(f"expected a TOML file at {path}; got {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScorefoldError(f"expected TOML in {path}; got {error}") from error
    if not isinstance(table, dict):
        raise ScorefoldError(f"{path}: expected a table [prior]; got {table!r:.60}")
    return read_prior(table, path.parent)


def read_prior(table: Mapping[str, Any], folder: Path) -> "Prior":
    """The prior that a table describes."""
    import numpy as np
    from scipy import stats

    from scorefold.prior import Prior

    kind = table.get("distribution")
    if not isinstance(kind, str):
        return Prior({name: _marginal(name, law) for name, law in table.items()})
    if kind == "multivariate_normal":
        _keys(table, ("distribution", "names", "mean", "cov"), "[prior]", "key")
        try:
            law = stats.multivariate_normal(table.get("mean"), table.get("cov"), allow_singular=True)
        except (ValueError, TypeError) as error:
            raise ScorefoldError(f"[prior]: expected mean and cov of a multivariate normal; got {error}") from error
        return Prior(law, names=table.get("names"))
    if kind == "draws":
        _keys(table, ("distribution", "names", "file", "bounds"), "[prior]", "key")
        try:
            draws = np.load(folder / str(table.get("file")), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ScorefoldError(f"[prior]: expected file to be a .npy file of draws (count, dim); got {error}") from error
        return Prior.from_draws(draws, names=table.get("names"), bounds=table.get("bounds"))
    raise ScorefoldError(
        '[prior]: expected a distribution for each parameter, as in beta = { distribution = "norm", loc = 0, scale = 1 }, or '
        f'distribution = "multivariate_normal" or "draws" for all of them; got {kind!r}'
    )


def _marginal(name: str, law: Any) -> Any:
    """A SciPy distribution by name and parameters; NumPyro's names are capitalised."""
    from scipy import stats

    from scorefold.prior.codec import LAWS
    from scorefold.prior.marginals import NUMPYRO

    where = f"{name} in [prior]"
    if not isinstance(law, dict) or not isinstance(law.get("distribution"), str):
        raise ScorefoldError(
            f'{where}: expected a table such as {{ distribution = "norm", loc = 0.0, scale = 1.0 }}; got {law!r:.100}'
        )
    kind, given = law["distribution"], {key: value for key, value in law.items() if key != "distribution"}
    if kind not in LAWS and kind not in NUMPYRO:
        known = list(NUMPYRO) if kind[:1].isupper() else LAWS
        raise ScorefoldError(f"{where}: expected a known distribution; got {kind!r}. {closest(kind, known)}")
    for key, value in given.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ScorefoldError(f"{where}: expected {key} to be a number; got {value!r:.60}")
    if kind in NUMPYRO:
        code = NUMPYRO[kind].__code__
        words = code.co_varnames[: code.co_argcount]
        needed = words[: len(words) - len(NUMPYRO[kind].__defaults__ or ())]
        make = NUMPYRO[kind]
    else:
        needed = tuple((getattr(stats, kind).shapes or "").replace(",", " ").split())
        words, make = (*needed, "loc", "scale"), getattr(stats, kind)
    _keys(given, words, where, "parameter")
    if missing := [key for key in needed if key not in given]:
        raise ScorefoldError(f"{where}: expected the parameters {', '.join(words)} of {kind}; {', '.join(missing)} is missing")
    return make(**{key: float(value) for key, value in given.items()})


def _keys(table: Mapping[str, Any], known: tuple[str, ...], where: str, what: str) -> None:
    for key in table:
        if key not in known:
            raise ScorefoldError(f"{where}: {key!r} is not a known {what}. {closest(key, list(known))}")
