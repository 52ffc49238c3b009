"""Simulations where the posterior of one data set is."""
