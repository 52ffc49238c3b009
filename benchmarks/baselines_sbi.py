"""One training of NPE, NLE, NRE or NPSE by sbi, and draws for several n; run by baselines.py and speed.py with the Python of an
environment that has sbi.

    python baselines_sbi.py METHOD cell.npz OUT DRAWS SEED

cell.npz holds θ in the N(0, I) space (cases, dim), x (cases, set, x) padded with NaN, and x_obs_N for every N. Draws for N go
to OUT/N.npz as soon as they are made, with the seconds of training and drawing. Everything not said here is sbi's default.
"""

import sys
import time
from pathlib import Path

import numpy as np
import sbi.inference
import torch
from sbi.neural_nets import posterior_nn
from sbi.neural_nets.embedding_nets import FCEmbedding, PermutationInvariantEmbedding


def main() -> None:
    method, cell, out, draws, seed = sys.argv[1], np.load(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    torch.manual_seed(seed)
    theta, x = (torch.as_tensor(cell[name], dtype=torch.float32) for name in ("theta", "x"))
    observed = {int(name.removeprefix("x_obs_")): cell[name] for name in cell.files if name.startswith("x_obs_")}
    dim, largest, features = theta.shape[1], x.shape[1], x.shape[2]
    prior = torch.distributions.MultivariateNormal(torch.zeros(dim), torch.eye(dim))
    started = time.perf_counter()
    if method == "npe" and largest > 1:
        trial = FCEmbedding(features, output_dim=20)
        pooled = PermutationInvariantEmbedding(trial, trial_net_output_dim=20, aggregation_fn="mean", output_dim=20)
        network = posterior_nn("maf", z_score_x="none", embedding_net=pooled)
        scale = x.reshape(-1, features)
        scale = scale[torch.isfinite(scale).all(1)]
        centre, width = scale.mean(0), scale.std(0)  # sbi does not z-score sets
        trainer = sbi.inference.NPE(prior, network, show_progress_bars=False)
        trainer.append_simulations(theta, (x - centre) / width, exclude_invalid_x=False)
    else:
        trainer = getattr(sbi.inference, method.upper())(prior, show_progress_bars=False)
        trainer.append_simulations(theta, x[:, 0])
        centre, width = torch.zeros(features), torch.ones(features)
    estimator = trainer.train()
    posterior = trainer.build_posterior()
    trained = time.perf_counter() - started
    for n, x_obs in observed.items():
        x_obs = (torch.as_tensor(x_obs, dtype=torch.float32) - centre) / width
        if method == "npe" and largest > 1:
            x_obs = torch.cat([x_obs, torch.full((largest - n, features), torch.nan)])[None]
        started = time.perf_counter()
        if method == "npe" and largest > 1:  # the posterior itself refuses padded sets; its estimator draws the same
            made = estimator.sample((draws,), condition=x_obs)[:, 0].detach()
        else:
            how = {"iid_method": "gauss"} if method == "npse" and n > 1 else {}
            made = posterior.sample((draws,), x=x_obs, show_progress_bars=False, **how)
        drawn = time.perf_counter() - started
        np.savez(out / f"{n}.npz", u=made.numpy(), train_s=trained, draw_s=drawn)


if __name__ == "__main__":
    main()
