"""Flows, likelihoods and ratios: the densities of NPE, NLE and NRE, each with its loss."""
