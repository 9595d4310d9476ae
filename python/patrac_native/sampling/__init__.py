"""Running Markov chains on a posterior: warm-up, settings, execution.

Public: sample, sample_many, Warmup, Phase, default_warmup, paper_warmup, transient_warmup.
"""
