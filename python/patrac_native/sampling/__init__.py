"""Running Markov chains on a posterior: warm-up, settings, execution.

Public: sample, start, resume, sample_many, EnoughDraws, Run, Warmup and paper_warmup.
"""
