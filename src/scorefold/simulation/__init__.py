"""From a prior and a simulator to training cases."""
