"""The mathematics of the method: architectures, ranking, prior, likelihoods, kernels, network and posterior.

Public: the architectures, `rank_nodes`, TraceClassPrior, the likelihoods, the kernels, PartialNetwork, Posterior and
ExactPosterior.
"""
