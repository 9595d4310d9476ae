"""The demonstration, the paper's studies and the timings of `patrac bench`."""
