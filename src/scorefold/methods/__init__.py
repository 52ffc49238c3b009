"""Methods by name."""

from scorefold.methods.npse import NPSE

METHODS = {"f-npse": NPSE()}
