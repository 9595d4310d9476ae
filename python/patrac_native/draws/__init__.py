"""Draws of posteriors, mixtures of them and the Laplace approximation: predictions, scores, summaries and files."""
