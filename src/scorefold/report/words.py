"""Words that several pages and tables use."""

TASK_LABELS = {
    "gaussian": "Gaussian", "mixture": "Gaussian mixture", "sir": "SIR", "lotka_volterra": "Lotka–Volterra",
    "bimodal": "Bimodal", "weinberg": "Weinberg", "correlated": "Correlated", "slcp": "SLCP", "two_moons": "Two moons",
    "mixture_uniform": "Gaussian mixture, flat prior", "bernoulli_glm": "Bernoulli GLM", "drift_diffusion": "Drift diffusion",
}  # fmt: skip


def observations(n: int) -> str:
    """So many of them, in words.

    >>> observations(1), observations(2_000)
    ('1 observation', '2,000 observations')
    """
    return "1 observation" if n == 1 else f"{n:,} observations"


def health(converged: bool, diverged: bool) -> str:
    """How the sampler's run went, by its own checks; it says nothing about the networks."""
    return "converged" if converged else "diverged" if diverged else "not converged"
