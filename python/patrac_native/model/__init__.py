"""The mathematics: architectures, ranking, priors, likelihoods, kernels, the partial network and the posterior.

Public: the architectures, `rank_nodes`, TraceClassPrior, the likelihoods, the kernels, PartialNetwork, Posterior and
ExactPosterior.
"""
