"""BayesFlow (https://bayesflow.org): compositional diffusion, with its defaults, by adding scores up and with JAC.

    python benchmarks/peers/with_bayesflow.py JOB [JOB …] [--device cuda] [--path FOLDER]

It runs on Keras with JAX. The prior's score is given, since it is known. One observation is nothing to compose: there both ways
are the same.
"""

import os
from typing import Any

import job as peer

os.environ.setdefault("KERAS_BACKEND", "jax")
PACKAGES = ("bayesflow", "keras", "jax", "numpy")
EPOCHS, BATCH, VALIDATION = 100, 64, 0.05


def settings(method: str) -> dict[str, Any]:
    return {
        "training": f"CompositionalWorkflow, DiffusionModel, defaults; {EPOCHS} epochs, batches of {BATCH}, all standardised",
        "drawing": "defaults, given the prior's score; jac: use_jac=True",
        "space": "parameters in the N(0, I) space of the prior",
        "backend": os.environ["KERAS_BACKEND"],
    }


def train(job: peer.Job) -> Any:
    if job.device == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import bayesflow
    import keras

    keras.utils.set_random_seed(job.seed)
    workflow = bayesflow.CompositionalWorkflow(
        inference_network=bayesflow.networks.DiffusionModel(),
        inference_variables="theta",
        inference_conditions="x",
        standardize="all",
    )
    held_out = int(VALIDATION * len(job.theta))
    parts = [{"theta": job.theta[rows], "x": job.x[rows]} for rows in (slice(held_out, None), slice(held_out))]
    workflow.fit_offline(parts[0], epochs=EPOCHS, batch_size=BATCH, validation_data=parts[1], verbose=0)
    return workflow


def draw(workflow: Any, job: peer.Job, cell: dict[str, Any]) -> Any:
    import keras

    keras.utils.set_random_seed(job.seed)
    x_obs = job.observed[cell["observed"]]
    if cell["n"] == 1:
        return workflow.sample(num_samples=job.draws, conditions={"x": x_obs})["theta"][0]
    made = workflow.compositional_sample(
        num_samples=job.draws,
        conditions={"x": x_obs[None]},
        compute_prior_score=lambda given: {"theta": -given["theta"]},
        use_jac=cell["way"] == "jac",
    )
    return made["theta"][0]


if __name__ == "__main__":
    peer.main(__doc__, "bayesflow", train, draw, PACKAGES, settings)
