"""Numbers → figures, tables and pages."""
