"""Test RMSE of the mean of one chain in a deep narrow network: airfoil, homoscedastic.

`python bench/ess/one_chain.py` trains five networks 5-16-16-16-16-1 and runs one chain of each by `kernel="auto"` and
`warmup="auto"`, and one by the kernel that `"auto"` means in other networks. It prints the RMSE on held-out rows after
45,000 and 150,000 gradients, warm-up included. Rows and training are those of `posteriors.py`; `--split` selects other
rows and `--default-training` leaves penalty and epochs to `train`. One core.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
from posterior_problems import AIRFOIL_L2, EPOCHS, HIDDEN, VALIDATION, airfoil_rows
from tables import write_json

import patrac_native as pn
from patrac_native.studies.uci_sets import StandardisedRows

GRADIENTS = (45_000, 150_000)
THIN = 50
OTHER = pn.MGrad(collapse=True, metric="inputs", persistence=0.9)
PRIORS: dict[str, Any] = {"gaussian": lambda net: pn.GaussianPrior(), "trace": pn.TraceClassPrior.fit}


def one_chain(net: pn.Network, rows: StandardisedRows, prior: str, kernel: Any, seed: int) -> dict[str, Any]:
    """Return the RMSE at each number of gradients, the steps of the warm-up and the seconds of a chain."""
    started = time.process_time()
    post = pn.Posterior(net, pn.Full(), PRIORS[prior](net), pn.Gaussian("sampled"), rows.X, rows.y)
    draws = pn.sample(
        post, kernel, chains=1, draws=GRADIENTS[-1] // THIN, thin=THIN, seed=seed, threads=1, progress=False
    )
    seconds = time.process_time() - started
    warmup, y = draws.settings["warmup_steps"], rows.y_test.ravel()
    f = draws.predict(rows.X_test)[0, :, :, 0]
    rmse = {}
    for gradients in GRADIENTS:
        kept = (gradients - warmup) // THIN
        # No draw is left where the warm-up took all gradients.
        rmse[gradients] = float(np.sqrt(((f[:kept].mean(axis=0) - y) ** 2).mean())) if kept > 0 else float("nan")
    return {"rmse": rmse, "warmup_steps": warmup, "kernel": draws.settings["kernel"], "seconds": seconds}


def main() -> None:
    """Parse the options and run all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--networks", type=int, default=5, help="trained networks; default 5")
    add(
        "--hidden", type=int, nargs="+", default=HIDDEN, metavar="N", help="nodes of hidden layers; default 16 16 16 16"
    )
    add("--split", type=int, default=0, help="seed of the split; default 0")
    add("--seed", type=int, default=0, help="of the first chain; default 0")
    add("--prior", choices=list(PRIORS), default="gaussian", help="N(0, 1) or the trace-class prior; default gaussian")
    add("--default-training", action="store_true", help="leave penalty and epochs to train")
    add("--out", type=Path, help="JSON file of all figures")
    options = parser.parse_args()
    rows = airfoil_rows(options.split)
    training: dict[str, Any] = {"l2": AIRFOIL_L2, "max_epochs": EPOCHS, "validation_fraction": VALIDATION}
    if options.default_training:
        training = {}
    found: dict[str, list[dict[str, Any]]] = {"auto": [], "other": []}
    for network in range(options.networks):
        sizes, likelihood = [rows.X.shape[1], *options.hidden, 1], pn.Gaussian("sampled")
        net = pn.train(sizes, rows.X, rows.y, likelihood=likelihood, seed=network, progress=False, **training)
        for side, kernel in (("auto", "auto"), ("other", OTHER)):
            record = one_chain(net, rows, options.prior, kernel, options.seed + network)
            found[side].append(record)
            shown = ", ".join(f"{rmse:.4f} at {gradients:,}" for gradients, rmse in record["rmse"].items())
            text = (
                f"network {network}  {side:<6} {shown}; warm-up {record['warmup_steps']:,}, {record['seconds']:.0f} s"
            )
            print(text, flush=True)
    for side, records in found.items():
        means = {gradients: float(np.mean([one["rmse"][gradients] for one in records])) for gradients in GRADIENTS}
        print(f"{side}, mean: " + ", ".join(f"{rmse:.4f} at {gradients:,}" for gradients, rmse in means.items()))
    write_json(options.out, found)


if __name__ == "__main__":
    main()
