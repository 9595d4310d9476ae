"""Microseconds of an epoch of training, of all rows by Adam, beside PyTorch's autograd on the same loss.

`python bench/bench_train.py` prints the table. Both sides begin at the same parameters, and their losses are compared
before anything is timed. The package's epochs are those of `pn.train`, all its bookkeeping included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import one_core

# isort: split
import numpy as np
import numpy.typing as npt
import torch
from harness import Side, Table, script_parser, time_beside_native, write_json

import patrac_native as pn
from patrac_native.studies.tables import number

torch.set_num_threads(1)
# Widths and rows of yacht, concrete, digits and two wider networks.
NETWORKS = {
    (6, 50, 50, 1): 277,
    (8, 50, 50, 1): 927,
    (61, 50, 50, 10): 1257,
    (20, 100, 100, 1): 4000,
    (100, 500, 500, 1): 1000,
}
LEARNING_RATE, L2, VARIANCE = 1e-3, 1.0, 0.5
Array = npt.NDArray[Any]


def train(widths: tuple[int, ...], X: Array, y: Array, epochs: int) -> pn.Network:
    """Train a regression, or of several outputs a classification."""
    likelihood: pn.Likelihood = pn.Gaussian(VARIANCE) if widths[-1] == 1 else pn.Categorical()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="train: the fit is poor")
        return pn.train(
            widths,
            X,
            y,
            likelihood=likelihood,
            learning_rate=LEARNING_RATE,
            l2=L2,
            max_epochs=epochs,
            patience=epochs,
            validation_fraction=0,
            progress=False,
        )


def torch_epoch(net: pn.Network, X: Array, y: Array) -> Callable[[], float]:
    """Return a function that updates a copy of a network once and returns the loss before it."""
    module, inputs = net.to_torch(torch.float32), torch.tensor(X, dtype=torch.float32)
    is_class = y.dtype.kind == "i"
    targets = torch.tensor(y) if is_class else torch.tensor(y, dtype=torch.float32)[:, None]
    constant = 0.5 * len(y) * float(np.log(2 * np.pi * VARIANCE))
    optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE, fused=True)

    def epoch() -> float:
        optimizer.zero_grad()
        f = module(inputs)
        if is_class:
            loss = torch.nn.functional.cross_entropy(f, targets, reduction="sum")
        else:
            loss = (targets - f).square().sum() / (2 * VARIANCE) + constant
        loss = loss + 0.5 * L2 * torch.stack([part.square().sum() for part in module.parameters()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        return loss.item()

    return epoch


def main() -> None:
    """Print the table."""
    parser = script_parser(__doc__, repeats=11)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each timing; default 0.3")
    options = parser.parse_args()
    print(f"core {one_core.CORE}, medians of microseconds of an epoch; torch {torch.__version__}, one thread, float32")
    table, results = Table(["network", "rows", "here", "torch", "ratio"], [16, 8, 10, 10, 8]), {}
    for widths, n in NETWORKS.items():
        rng = np.random.default_rng(0)
        X, m = rng.normal(size=(n, widths[0])), widths[-1]
        y = rng.normal(size=n) if m == 1 else rng.integers(0, m, n)
        theirs = torch_epoch(train(widths, X, y, 1), X, y)
        history = train(widths, X, y, 3).history
        assert history is not None
        np.testing.assert_allclose([theirs() for _ in range(3)], history.loss, rtol=1e-4)

        def native(epochs: int, seed: int, data: Any = (widths, X, y)) -> float:
            train(*data, epochs)
            return 1.0

        def peer(epochs: int, seed: int, epoch: Callable[[], float] = theirs) -> float:
            for _ in range(epochs):
                epoch()
            return 1.0

        sides = {"native": Side(native, chunk=50), "torch": Side(peer, chunk=10)}
        found = time_beside_native(sides, options.repeats, options.seconds, "cpu")
        results["-".join(map(str, widths)) + f", {n} rows"] = found
        median = found["median"]
        cells = [number(median["native"]), number(median["torch"]), number(found["ratios"]["torch"])]
        table.row(["-".join(map(str, widths)), f"{n:,}", *cells])
    write_json(options.json, results)


if __name__ == "__main__":
    main()
