"""sbi (https://sbi-dev.github.io/sbi/): NPSE with each way of composing observations, NLE and NRE, with its defaults.

    python benchmarks/peers/with_sbi.py JOB [JOB …] [--device cuda] [--draw-on cuda] [--path FOLDER]

NPSE draws by its stochastic differential equation in 500 steps, which its way of composing needs. NLE and NRE draw with sbi's
vectorised slice sampler.
"""

from typing import Any

import job as peer

PACKAGES = ("sbi", "torch", "numpy")


def settings(method: str) -> dict[str, Any]:
    drawn = "sde, 500 steps" if method == "sbi-npse" else "slice_np_vectorized, sbi's defaults"
    return {"training": "sbi's defaults", "drawing": drawn, "space": "parameters in the N(0, I) space of the prior"}


def prior_on(job: peer.Job, device: str) -> Any:
    import torch

    dim = job.theta.shape[1]
    return torch.distributions.MultivariateNormal(
        torch.zeros(dim, device=device), torch.eye(dim, device=device), validate_args=False
    )


def train(job: peer.Job) -> Any:
    import sbi.inference
    import torch

    torch.manual_seed(job.seed)
    kinds = {"sbi-npse": "NPSE", "sbi-nle": "NLE", "sbi-nre": "NRE"}
    trainer = getattr(sbi.inference, kinds[job.method])(prior_on(job, job.device), device=job.device, show_progress_bars=False)
    trainer.append_simulations(torch.as_tensor(job.theta), torch.as_tensor(job.x))
    return trainer, trainer.train()


def draw(trained: tuple[Any, Any], job: peer.Job, cell: dict[str, Any]) -> Any:
    device = peer.place(job, cell["n"])
    try:
        return drawn_on(device, trained, job, cell)
    except RuntimeError as error:
        if device == job.device or "device" not in str(error):
            raise
        print(f"{device}: {error}", flush=True)
        job.about["stays"] = True
        return drawn_on(job.device, trained, job, cell)


def drawn_on(device: str, trained: tuple[Any, Any], job: peer.Job, cell: dict[str, Any]) -> Any:
    import torch

    torch.manual_seed(job.seed)
    trainer, estimator = trained
    score = job.method == "sbi-npse"
    posterior = trainer.build_posterior(
        estimator.to(device), prior=prior_on(job, device), **({"sample_with": "sde"} if score else {})
    )
    x_obs = torch.as_tensor(job.observed[cell["observed"]], device=device)
    how = {"iid_method": cell["way"]} if score and cell["n"] > 1 else {}
    return posterior.sample((job.draws,), x=x_obs, show_progress_bars=False, **how).detach().cpu().numpy()


if __name__ == "__main__":
    peer.main(__doc__, "sbi-", train, draw, PACKAGES, settings)
