"""The posterior of a partially Bayesian network, and the exact last layer: the mathematics of the method."""
