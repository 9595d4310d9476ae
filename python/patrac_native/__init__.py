"""patrac_native: Markov chain Monte Carlo for partially Bayesian multilayer perceptrons."""
