"""Microseconds of an epoch of training, of all rows by Adam, beside PyTorch's autograd on the same loss.

`python bench/bench_train.py` prints the table. Both sides begin at the same parameters, and their losses are compared
before anything is timed. An epoch of the package is one of `pn.train`, its bookkeeping included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import one_core

# isort: split
import numpy as np
import torch
from harness import Side, Table, script_parser, time_beside_native, write_json

import patrac_native as pn
from patrac_native.studies.tables import number
from patrac_native.training.descent import Descent, Problem

torch.set_num_threads(1)
# (widths, rows) of yacht, concrete, digits and two wider networks.
NETWORKS = {
    "6-50-50-1": 277,
    "8-50-50-1": 927,
    "61-50-50-10": 1257,
    "20-100-100-1": 4000,
    "100-500-500-1": 1000,
}
LEARNING_RATE, L2 = 1e-3, 1.0


def make_problem(sizes: tuple[int, ...], n: int) -> Problem:
    """Return a regression, or of several outputs a classification, of random rows."""
    rng = np.random.default_rng(0)
    X, m = rng.normal(size=(n, sizes[0])), sizes[-1]
    likelihood: pn.Likelihood = pn.Gaussian(0.5) if m == 1 else pn.Categorical()
    y = rng.normal(size=(n, 1)) if m == 1 else rng.integers(0, m, n)
    return Problem(
        sizes,
        "tanh",
        likelihood,
        X,
        likelihood.check_targets(y, n, m),
        np.ones(n),
        optimizer="adam",
        learning_rate=LEARNING_RATE,
        batch_size=n,
        seed=0,
        dtype="float32",
    )


def torch_epoch(problem: Problem, theta: np.ndarray[Any, Any]) -> Callable[[], float]:
    """Return a function that updates a module with the parameters theta once and returns the loss before it."""
    module = problem.network(theta).to_torch(torch.float32)
    X = torch.tensor(problem.inputs, dtype=torch.float32)
    y = torch.tensor(problem.targets, dtype=torch.float32 if problem.sizes[-1] == 1 else torch.int64)
    optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE, fused=True)

    def epoch() -> float:
        optimizer.zero_grad()
        f = module(X)
        if problem.sizes[-1] == 1:
            loss = (y - f).square().sum() + 0.5 * len(X) * float(np.log(np.pi))
        else:
            loss = torch.nn.functional.cross_entropy(f, y, reduction="sum")
        loss = loss + 0.5 * L2 * sum(parameter.square().sum() for parameter in module.parameters())
        loss.backward()
        optimizer.step()
        return loss.item()

    return epoch


def repeated(epoch: Callable[[], Any]) -> Side:
    """Return a side whose steps are epochs."""

    def run(steps: int, seed: int) -> float:
        for _ in range(steps):
            epoch()
        return 1.0

    return Side(run, chunk=10)


def main() -> None:
    """Print the table."""
    parser = script_parser(__doc__, repeats=11)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each timing")
    options = parser.parse_args()
    print(f"core {one_core.CORE}, medians of microseconds of an epoch; torch {torch.__version__}, one thread, float32")
    table, results = Table(["network", "rows", "here", "torch", "ratio"], [16, 8, 10, 10, 8]), {}
    for name, n in NETWORKS.items():
        problem = make_problem(tuple(int(width) for width in name.split("-")), n)
        descent = Descent(problem, L2)
        first = descent.epoch()
        theirs = torch_epoch(problem, first.theta)
        np.testing.assert_allclose([theirs(), theirs()], [first.loss, descent.epoch().loss], rtol=1e-4)
        sides = {"native": repeated(descent.epoch), "torch": repeated(theirs)}
        found = time_beside_native(sides, options.repeats, options.seconds, "cpu")
        results[f"{name}, {n} rows"] = found
        median = found["median"]
        table.row([name, f"{n:,}", number(median["native"]), number(median["torch"]), number(found["ratios"]["torch"])])
    write_json(options.json, results)


if __name__ == "__main__":
    main()
