"""Running Markov chains on a posterior: warm-up, settings, execution.

Public: sample, sample_many, Warmup and paper_warmup.
"""
