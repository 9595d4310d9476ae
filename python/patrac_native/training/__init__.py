"""Training of the network that is then made partially Bayesian. Public: train, train_many."""
