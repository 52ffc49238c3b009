"""The benchmark: a preset → cells → records."""
