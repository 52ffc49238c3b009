"""How well likelihoods tell which parameters a data set came from: a proper score of what n added terms say.

Of places u_1 … u_L, all drawn alike, the first K get a data set X_k of m observations each. A likelihood q says how probable it
is that X_k came from u_l,

    w_kl = ∏_j q(x_kj|u_l) / Σ_i ∏_j q(x_kj|u_i),

and of all q the true one has the least mean of -log w_kk: the places are exchangeable, so that with it w_k is the posterior
over them. Errors that are alike for all observations count m times, as they do in the answer; modes that lie far apart are
weighed against each other; and no derivative is taken, which a few observations near an edge would rule. With m < n
observations the places have to lie √(n/m) times as far apart.

The same weights say how far q's posteriors are off. With v_k the mean and V the mean variance of u under w_k, the residuals
u_k - v_k have the mean 0 and the variance V if q is right. Where the places themselves vary by R, a posterior that knew nothing
of them would be off by 1 / √(1 - V/R) times as many of its sd.

References: "Representation learning with contrastive predictive coding", van den Oord, Li and Vinyals, 2018; "On contrastive
learning for likelihood-free inference", Durkan, Murray and Papamakarios, 2020.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold.types import Float

CAP = 20.0
"""The largest -log w_kk: a data set that a likelihood calls impossible says no more than that."""
LEAST_UNKNOWN = 0.2
"""Of R, at least so much is taken for more than V."""


@runtime_checkable
class Summable(Protocol):
    """A learned term for every observation."""

    def each_term(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The terms of observations x (n, features) at places u (places, dim), (places, n)."""


class Told(NamedTuple):
    """How well a likelihood tells the places apart."""

    loss: Float[np.ndarray, " sets"]
    """-log w_kk of every data set; infinite where the likelihood is no number."""
    shift: Float[np.ndarray, " dim"]
    """How far its posterior's mean is too high, in posterior sd."""
    shift_error: Float[np.ndarray, " dim"]
    """The standard error."""
    log_width: Float[np.ndarray, " dim"]
    """Log ratio of its posterior's sd to the right one."""
    log_width_error: Float[np.ndarray, " dim"]


def summed_terms(posterior: Summable, x: Float[np.ndarray, "sets obs features"], u: np.ndarray) -> np.ndarray:
    """(sets, places), up to a constant for each data set."""
    sets, size, features = x.shape
    terms = posterior.each_term(x.reshape(-1, features), u)
    summed: np.ndarray = terms.reshape(len(u), sets, size).sum(axis=2).T
    return summed


def told(terms: Float[np.ndarray, "sets places"], u: Float[np.ndarray, "places dim"]) -> Told:
    """From summed terms of data sets that came from the first places."""
    sets, dim = len(terms), u.shape[1]
    if not np.isfinite(terms.max(axis=1)).all():
        unknown = np.full(dim, np.inf)
        return Told(np.full(sets, np.inf), unknown, np.zeros(dim), unknown, np.zeros(dim))
    weights = np.exp(terms - terms.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    own = np.diagonal(weights[:, :sets])
    loss = -np.log(np.maximum(own, np.exp(-CAP)))
    mean = weights @ u
    within = np.maximum((weights @ u**2 - mean**2).mean(axis=0), 1e-12)
    residual = u[:sets] - mean
    free = np.clip(1 - within / np.maximum(u.var(axis=0), 1e-12), LEAST_UNKNOWN, 1.0)
    unit = np.sqrt(within * free)
    squares = residual**2
    expected = np.maximum(squares.mean(axis=0), 1e-12)
    return Told(
        loss=loss,
        shift=-residual.mean(axis=0) / unit,
        shift_error=residual.std(axis=0, ddof=1) / np.sqrt(sets) / unit,
        log_width=np.log(within / expected) / 2,
        log_width_error=squares.std(axis=0, ddof=1) / np.sqrt(sets) / expected / 2,
    )
