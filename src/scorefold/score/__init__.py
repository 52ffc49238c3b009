"""From training cases to functions: the score network and what surrounds it."""
