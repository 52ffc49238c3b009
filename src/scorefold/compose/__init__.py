"""Rules that make one score out of many sets' scores."""
