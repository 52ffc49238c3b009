"""How refined draws say what came before them."""

import numpy as np
from untrained import refined

from scorefold.methods.refine.refined import Refinement
from scorefold.methods.refine.region import Fit


def test_it_is_printed_in_words_and_without_arrays():
    made = refined("refined")
    fit = Fit(0.0, 0.0, (0.3, 0.3))
    said = repr(Refinement("smc", made.rounds, 1_234, False, 0.3, 1.1, fit))
    assert said.startswith("Refinement by 1,234 simulations; of its rounds the last two do not agree yet\nround 1: ")
    assert len(said.splitlines()) == 1 + len(made.rounds)
    assert not any(word in said for word in ("array(", "dtype", repr(np.float32(0))))
