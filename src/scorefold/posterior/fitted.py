"""What `sf.fit` leaves, apart from draws: where it comes from, which observations it takes, how it is printed and kept."""

import math
import os
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scorefold import settings
from scorefold.disk import folder as model
from scorefold.disk.trouble import told
from scorefold.errors import ModelError, ScorefoldError, ScorefoldWarning
from scorefold.posterior import saved
from scorefold.posterior.made import UNFINISHED, Made
from scorefold.posterior.observations import with_inputs
from scorefold.posterior.versions import FORMAT
from scorefold.prior import Prior
from scorefold.shown import html_table, listed
from scorefold.types import single_precision


class Fitted:
    """Something that was fitted to simulations, and that can be printed, saved and loaded. `Posterior` is one of these.

    For those who add a method: each has a final class of its own, a frozen dataclass with `made` as its last field. It can be
    saved as it stands: `posterior/saved.py` writes its fields by their annotations, which may be numbers, words, tuples,
    dictionaries, NamedTuples, NumPy arrays with named axes, a `Prior`, settings (`Any`) and other posteriors. To make it
    savable,

    - give it a `kind`, its name in files, and a line in `POSTERIORS` of `methods/load.py`, and its settings one in `SETTINGS`;
    - name the fields that are networks in `networks`, and write `blank`, which gives them as trees of shapes and types;
    - if its numbers must obey more than the annotations say, write `fault`.
    """

    prior: Prior
    method: Any
    history: Any
    """How training went."""
    shape: tuple[int, ...]
    """Of one observation."""
    kind: ClassVar[str] = ""
    """Its name in files."""
    networks: ClassVar[tuple[str, ...]] = ()
    """The fields that are networks: trees of JAX arrays."""
    made: Made | None = None
    """Where it comes from; `fit` says so."""

    @property
    def missing(self) -> bool:
        """Whether numbers of an observation may be missing (NaN), as where simulations were made with `missing=True`."""
        return getattr(self.method, "missing", False)

    @property
    def x_names(self) -> tuple[str, ...]:
        """The names of the numbers of an observation, inputs last, if they were given to `sf.simulate`; else none."""
        return () if self.made is None or self.made.seen is None else self.made.seen.names

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the known inputs, the last numbers of an observation; none where it has none."""
        return () if self.made is None or self.made.seen is None else self.made.seen.input_names

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The names of the other numbers."""
        return self.x_names[: len(self.x_names) - len(self.input_names)]

    def inputs_of(self, x: np.ndarray) -> np.ndarray | None:
        """The known inputs of observations.

        Args:
            x: (n, features), observations with their inputs behind the outcomes.

        Returns:
            (n, inputs), or None where observations have none.
        """
        return x[:, -len(self.input_names) :] if self.input_names else None

    def simulated_inputs(self, count: int, seed: int) -> np.ndarray | None:
        """Known inputs for observations to be simulated, drawn from those that the simulations had.

        Args:
            count: How many observations.
            seed: Of the choice.

        Returns:
            (count, inputs), or None where observations have none.
        """
        table = None if self.made is None or self.made.seen is None else self.made.seen.inputs
        return None if table is None else table[np.random.default_rng([seed, 29]).integers(len(table), size=count)]

    @classmethod
    def blank(cls, about: saved.About) -> tuple[Any, ...]:
        """The fields named in `networks`, as trees of shapes and types: what a file must hold to be read as this posterior.

        Args:
            about: What their sizes follow from. It comes from a file and is not to be trusted, so call `about.fits` first.

        Returns:
            One tree for each name in `networks`.
        """
        return ()

    def fault(self) -> str:
        """What is wrong with the numbers of one that comes from a file, besides their types; nothing where all is right."""
        return ""

    def facts(self) -> list[tuple[str, str]]:
        """What matters of it, as labels and values: what `print` and notebooks show."""
        names = f" ({listed(self.outcome_names)})" if self.x_names else ""
        shape = f"{'×'.join(map(str, self.shape)) or 1} {'number' if math.prod(self.shape) == 1 else 'numbers'}{names}"
        if self.input_names:
            shape = f"{listed(self.outcome_names)}, given the inputs {listed(self.input_names)}"
        found = [
            ("method", type(self.method).__name__),
            ("parameters", listed(self.prior.names)),
            ("one observation", shape),
        ]
        if self.made is not None and (kinds := self.made.recognised()):
            found.append(("recognised", listed(kinds)))
        if hasattr(self, "largest_set"):
            found.append(("sets", f"of up to {self.largest_set:,}"))
        if (history := getattr(self, "history", None)) is not None:
            kept, rounds = history.kept.tolist(), history.train.shape[1]
            found.append(("networks", f"{len(kept)}, kept after {listed(kept)} of {rounds} rounds of training"))
        if self.made is not None:
            found.append(("trained on", self.made.trained_on()))
        return found

    def __repr__(self) -> str:
        return "\n".join([type(self).__name__, *(f"  {label:<15} {value}" for label, value in self.facts())])

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, (), self.facts())

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write a folder that `sf.load` reads: config.json and weights.safetensors, whole or not at all.

        Args:
            folder: Where; folders above it are made if they are not there.
            overwrite: Whether a model that is there already is replaced; anything else never is. Default False.

        Returns:
            The folder's path.

        Raises:
            ModelError: There is something already, or the model is too large for a file.
            StorageError: The disk is full, can only be read, or is not for you; nothing is half-written.

        `docs/training.md` has an example that the tests run.
        """
        path = settings.folder(folder)
        if not isinstance(overwrite, bool):
            raise ScorefoldError(f"expected overwrite to be True or False; got {overwrite!r:.60}")
        if path.is_symlink() or path.exists():
            ours = model.holds(path, FORMAT)
            if not ours or not overwrite:
                why = "a model. Write save(folder, overwrite=True) to replace it" if ours else "something else, which is kept"
                raise ModelError(f"expected a new folder; at {path} there is {why}.")
        with single_precision():
            config, arrays = saved.parts(self)
        with told(f"write the model to {path}", "Nothing is half-written."):
            model.write(path, FORMAT, {"kind": self.kind, "posterior": config}, arrays)
        return path

    def say_if_unfinished(self) -> None:
        """A ScorefoldWarning for the best so far of a training that was stopped."""
        if self.made is not None and not self.made.finished:
            warnings.warn(UNFINISHED, ScorefoldWarning, stacklevel=3)

    def checked(self, x_obs: Any, inputs: Any = None) -> np.ndarray:
        """Observations as somebody has them, in the form that methods take.

        Args:
            x_obs: (n, *shape), an array, or a table with columns of the simulations' names.
            inputs: Their known inputs (n, inputs), where these are not the last numbers or columns of `x_obs`.

        Returns:
            (n, features) float64, inputs last.

        Raises:
            ScorefoldError: They have another shape or other names than the simulations, or are not finite.
        """
        return with_inputs(x_obs, inputs, self.shape, self.x_names, self.input_names, self.missing)
