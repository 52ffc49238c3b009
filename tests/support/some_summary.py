"""The summary of a diagnosis, as far as words are made of it."""

import copy

RIGHT = {
    "verdict": "well calibrated: 300 data sets would have shown a width 16% off",
    "good": True,
    "n": 20,
    "draws": 100,
    "data sets": {"simulated": 300, "used": 300, "failed": 0, "diverged": 0, "not converged": 0},
    "p": {"SBC": 0.5, "coverage": 0.5, "highest density": 0.5, "TARP": 0.5},
    "quantities": {"a": {"good": False}, "b": {"good": True}},
    "contraction": {"a": 0.5, "b": 0.5},
    "settings": {"method": "NPSE", "trained on": "10,000 simulator calls"},
}
OBSERVED = {"misspecification": 0.5, "local C2ST": 0.5, "prior predictive": 0.5, "posterior predictive": 0.5}


def summary(good=True, observed=None, **data_sets):
    made = copy.deepcopy(RIGHT) | {"good": good}
    made["data sets"] |= data_sets
    return made if observed is None else made | {"observed": {"p": OBSERVED | observed}}
