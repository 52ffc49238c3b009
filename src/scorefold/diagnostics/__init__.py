"""Draws → numbers and words that say how far they can be trusted. The verb is in `diagnose.py`; the others take arrays."""
