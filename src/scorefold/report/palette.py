"""The colours of all figures, after Okabe and Ito's palette, which colour-blind readers can tell apart."""

BLUE, BLUE_MID, BLUE_LIGHT = "#0072B2", "#64A9D3", "#C3DFEF"
"""The draws."""
BLUE_RAMP = ("#A9CFE5", BLUE, "#002B44")
"""Few observations to many."""
ORANGE = "#D55E00"
"""The truth, and what needs attention."""
INK, GREY, FRAME, BAND, GRID = "#1A1A1A", "#8C8C8C", "#B0B0B0", "#E4E4E4", "#EBEBEB"
RED = "#C1121F"

METHOD_COLOURS = {"f-npse": BLUE, "pf-npse": ORANGE, "npse": "#009E73", "npe": "#CC79A7", "nle": "#8A6A00", "nre": "#56B4E9"}
OTHER_COLOUR = "#555555"
"""Of a method that has none of its own."""
