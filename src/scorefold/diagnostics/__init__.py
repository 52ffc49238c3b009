"""From draws to a number that says how right they are."""
