"""The mathematics of the method: architectures, ranking, priors, likelihoods, kernels, network and posterior.

Public: the architectures, `rank_nodes`, the priors, the likelihoods, the kernels, PartialNetwork, Posterior and
ExactPosterior.
"""
