"""Where simulations are put: a folder that survives kills, or memory."""
