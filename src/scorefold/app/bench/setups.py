"""A method as a cell configures it.

Score methods come in two settings, so that reproduction and improvement stand side by side:

- `paper`: one network without Gaussian base or correction, levels with linear β, no averaging of weights and no weight decay,
  the learning rate of {10⁻³, 10⁻⁴} with the lower validation loss; drawn by Algorithm 1 with a = 0.3, L = 5, T = 400 and the
  tempered prior ("Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih, 2023). NPSE
  has one set only and is drawn by the standard reversal of a diffusion, as there.
- `default`: what `sf.fit` does unless told otherwise.
- `refined`: the same on 40 % of the budget; the rest is spent by `posterior.refine`, for each data set anew.

`tiny` is for tests of the machinery: its numbers say nothing of the method. Other methods have
`default` and `refined` alone. `peer` is the setting of other packages, which `make peers` runs.
"""

from dataclasses import replace

from scorefold import methods
from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.methods.npse import NPSE
from scorefold.sample import Langevin, Sampler, Transitions
from scorefold.train.training import Training

BENCH_SETTINGS = ("paper", "default", "refined", "tiny")
FROM_PRIOR = 0.4
"""Share of the budget that a posterior which is then refined is trained on."""
STUDY_SAMPLERS: dict[str, Sampler] = {
    **{f"langevin a={a} L={L}": Langevin(a, L) for a, L in ((0.1, 5), (0.5, 5), (0.3, 2), (0.3, 10))},
    "transitions": Transitions(),
}
"""Those of the study of samplers: Algorithm 1 with other parameters than the setting's a = 0.3, L = 5, and Algorithm 2."""


def simulated_before(budget: int, setting: str) -> int:
    """Simulator calls of the budget before the observations are known."""
    return int(FROM_PRIOR * budget) if setting == "refined" else budget


def configured(name: str, setting: str, m: int, steps: int, conservative: bool) -> Method:
    """The method of this name in a setting, for sets of up to m, trained for at most so many steps (0: its own number)."""
    if setting == "peer":
        raise ScorefoldError(f"{name} is another package's, in an environment of its own. Run `make peers`.")
    method = methods.get(name)
    if setting not in BENCH_SETTINGS:
        raise ScorefoldError(f"unknown setting {setting!r}. Known: {', '.join(BENCH_SETTINGS)}.")
    if not isinstance(method, NPSE):
        if setting not in ("default", "refined") or conservative or steps:
            raise ScorefoldError(
                f"expected the setting default or refined for {name}, which is no score method; got {setting!r}"
            )
        return method
    method = replace(method, conservative=conservative, set_size=m)
    if setting == "paper":
        method = replace(
            method, base=False, correction=False, schedule="linear-beta", T=400, rule="tempered",
            sampler="langevin" if method.composes else "ancestral",
            training=Training(members=1, learning_rates=(1e-3, 1e-4), steps=20_000, weight_decay=0.0, average=0.0, patience=40),
        )  # fmt: skip
    elif setting == "tiny":
        method = replace(method, width=16, depth=1, correction=False, T=50, training=Training(members=2, steps=150))
    return replace(method, training=replace(method.training, steps=steps)) if steps else method
