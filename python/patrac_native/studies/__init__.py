"""The demonstration, the paper's studies and the timings of `patrac bench`, on public names of the package alone."""
