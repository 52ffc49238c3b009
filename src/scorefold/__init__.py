"""Posteriors over many observations from a simulator, by composing diffusion scores."""
