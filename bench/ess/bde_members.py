"""Fits sklearn-contrib-bde to the rows of a file and prints its scores, by the Python of an environment that has it.

By default four members of 20,000 warm-up steps and 10,000 steps, of which every tenth is kept; `--quick` shows whether
it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np
from bde import BdeRegressor

FULL = {"epochs": 1000, "n_thinning": 10}
QUICK = {"n_members": 2, "epochs": 20, "warmup_steps": 20, "n_samples": 20, "n_thinning": 2}


def main() -> None:
    """Print RMSE, negative log density by moments and processor seconds as JSON, in the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", help="an .npz file with X, y, X_test and y_test")
    parser.add_argument("hidden", nargs="+", type=int)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="default 0, bde's own")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows = {name: values.astype(np.float32) for name, values in np.load(options.rows).items()}
    started = time.process_time()
    sizes = {"n_members": options.members, "warmup_steps": options.warmup, "n_samples": options.samples}
    model = BdeRegressor(hidden_layers=options.hidden, seed=options.seed, **(QUICK if options.quick else FULL | sizes))
    model.fit(rows["X"], rows["y"].ravel())
    seconds = time.process_time() - started
    mean, sd = (np.asarray(part, np.float64).ravel() for part in model.predict(rows["X_test"], mean_and_std=True))
    error = rows["y_test"].ravel() - mean
    nlpd = 0.5 * float((np.log(2 * np.pi * sd**2) + (error / sd) ** 2).mean())
    print("\n" + json.dumps({"rmse": float((error**2).mean() ** 0.5), "nlpd": nlpd, "seconds": seconds}))


if __name__ == "__main__":
    main()
