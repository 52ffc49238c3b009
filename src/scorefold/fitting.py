"""Simulations → a posterior."""

from collections.abc import Sequence
from importlib import metadata
from platform import python_version

from scorefold import methods
from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.posterior import Made, Posterior, check_count
from scorefold.simulation.cases import Simulations


def fit(sims: Simulations, method: str | Method = "f-npse", seed: int = 0, progress: bool = False) -> Posterior:
    """Train on simulations, and get a posterior for any observations from the same simulator."""
    return fit_many([sims], method, [seed], progress)[0]


def fit_many(
    sims: Sequence[Simulations], method: str | Method = "f-npse", seeds: Sequence[int] = (0,), progress: bool = False
) -> list[Posterior]:
    """Several trainings of one method as one compiled program, for simulations of one shape: repetitions cost little more."""
    for one in sims:
        if not isinstance(one, Simulations):
            raise ScorefoldError(f"expected the Simulations that sf.simulate returns; got {type(one).__name__}")
    for seed in seeds:
        check_count("seed", seed, 0)
    chosen = methods.get(method)
    shapes = {(one.prior.dim, one.shape, one.set_size, one.prior.gaussian) for one in sims}
    if len(shapes) != 1 or len(sims) != len(seeds):
        raise ScorefoldError(
            f"expected simulations of one shape, and a seed each; got {len(sims)} in {len(shapes)} shapes, {len(seeds)} seeds"
        )
    trained = list(chosen.train(sims, seeds, progress))
    for posterior, one, seed in zip(trained, sims, seeds, strict=True):
        # Posteriors are frozen, and where they come from is not the method's affair.
        object.__setattr__(posterior, "made", Made(int(seed), int(one.seed), int(one.budget), int(one.failed), _packages()))
    return trained


def _packages() -> dict[str, str]:
    versions = {"python": python_version()}
    for name in ("scorefold", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
