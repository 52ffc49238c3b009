"""sbi (https://sbi-dev.github.io/sbi/): NPSE with each way of composing observations, NLE and NRE, with its defaults.

    python benchmarks/peers/with_sbi.py JOB [JOB …] [--device cuda] [--path FOLDER]

NPSE draws by its stochastic differential equation in 500 steps, which its way of composing needs. NLE and NRE draw with sbi's
vectorised slice sampler.
"""

from typing import Any

import job as peer

PACKAGES = ("sbi", "torch", "numpy")


def settings(method: str) -> dict[str, Any]:
    drawn = "sde, 500 steps" if method == "sbi-npse" else "slice_np_vectorized, sbi's defaults"
    return {"training": "sbi's defaults", "drawing": drawn, "space": "parameters in the N(0, I) space of the prior"}


def train(job: peer.Job) -> Any:
    import sbi.inference
    import torch

    torch.manual_seed(job.seed)
    dim = job.theta.shape[1]
    prior = torch.distributions.MultivariateNormal(
        torch.zeros(dim, device=job.device), torch.eye(dim, device=job.device), validate_args=False
    )
    kinds = {"sbi-npse": "NPSE", "sbi-nle": "NLE", "sbi-nre": "NRE"}
    trainer = getattr(sbi.inference, kinds[job.method])(prior, device=job.device, show_progress_bars=False)
    trainer.append_simulations(torch.as_tensor(job.theta), torch.as_tensor(job.x))
    trainer.train()
    return trainer.build_posterior(sample_with="sde") if job.method == "sbi-npse" else trainer.build_posterior()


def draw(posterior: Any, job: peer.Job, cell: dict[str, Any]) -> Any:
    import torch

    torch.manual_seed(job.seed)
    x_obs = torch.as_tensor(job.observed[cell["observed"]], device=job.device)
    how = {"iid_method": cell["way"]} if job.method == "sbi-npse" and cell["n"] > 1 else {}
    return posterior.sample((job.draws,), x=x_obs, show_progress_bars=False, **how).detach().cpu().numpy()


if __name__ == "__main__":
    peer.main(__doc__, "sbi-", train, draw, PACKAGES, settings)
