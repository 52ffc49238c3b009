"""From training cases to trained networks."""
