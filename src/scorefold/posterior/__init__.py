"""What users hold: a trained posterior, ready to draw given any observations."""
