"""The demonstration, the paper's studies and the timings of `patrac bench`.

Public: run_demo, run_sine, run_abalone, run_bench, StudyOptions.
"""
