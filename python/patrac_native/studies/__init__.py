"""The demonstration, the paper's studies and the timings of `patrac bench`.

Public: run_demo, run_sine, run_abalone, run_cifar10, run_k, run_uci, run_bench, StudyOptions.
"""
