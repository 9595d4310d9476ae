"""Effective draws per second of HeteroscedasticGaussian with and without its means' output weights integrated out.

`python bench/ess/heteroscedastic.py --data FOLDER` runs both kernels in alternating rounds from the same dispersed
starting points, each with step sizes that its own warm-up found. FOLDER holds uci/. Effective draws are joint ones of
the mean and of the log-variance at some inputs, over four chains (joint_measures.py); time is processor time.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
import numpy.typing as npt
from joint_measures import joint_ess, max_rhat
from tables import print_about, write_json

import patrac_native as pn
from patrac_native.studies.uci_sets import load_split

FloatArray = npt.NDArray[Any]
ARCHITECTURES = {"Full": pn.Full(), "Mix(5)": pn.Mix(5), "Sep(5)": pn.Sep(5), "Out(45)": pn.Out(45)}
PLAIN = pn.MGrad(persistence=0.9)
KERNELS = {"plain": PLAIN, "collapsed": replace(PLAIN, collapse=True)}
CHAINS, ROUNDS, KEPT, WATCHED = 4, 3, 500, 20


def sine() -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Return a sine whose noise deviation rises from 0.05 to 0.5, 100 rows, and hidden layers of 50 nodes each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (100, 1))
    return X, np.sin(2 * X[:, 0]) + 0.05 * 10 ** ((X[:, 0] + 2) / 4) * rng.standard_normal(100), (50, 50)


def uci(data: Path, name: str) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Return the standardised training rows of the first split of a set, and one hidden layer of 50 nodes."""
    split = load_split(data / "uci", name, 0)
    X, y = split.X, split.y
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std(), (50,)


class Side:
    """Chains of one kernel that have warmed up."""

    def __init__(self, post: pn.Posterior, kernel: pn.MGrad, warmup: int) -> None:
        self.post, self.calls, self.seconds = post, 0, 0.0
        self.kept: list[FloatArray] = []
        draws = self._run(kernel, chains=CHAINS, draws=1, thin=1, warmup=warmup, seed=1)
        self.kernels = [replace(kernel, delta=float(size)) for size in draws.stats["step_size"][:, -1]]
        self.states = draws.theta[:, -1]

    def _run(self, kernel: pn.MGrad, **arguments: Any) -> pn.Draws:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return pn.sample(self.post, kernel, threads=1, progress=False, **arguments)

    def advance(self, steps: int, watched: FloatArray) -> None:
        """Continue all chains for a number of steps, of which KEPT are kept."""
        outputs = []
        for chain, kernel in enumerate(self.kernels):
            self.calls += 1
            started = time.process_time()
            draws = self._run(
                kernel, chains=1, draws=KEPT, thin=max(1, steps // KEPT), warmup=None, init=self.states[chain][None],
                seed=1000 + self.calls,
            )  # fmt: skip
            self.seconds += time.process_time() - started
            self.states[chain] = draws.theta[0, -1]
            outputs.append(np.asarray(draws.predict_outputs(watched), dtype=np.float64)[0])
        self.kept.append(np.array(outputs))


def measure(post: pn.Posterior, watched: FloatArray, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of both kernels."""
    sides = {name: Side(post, kernel, options.warmup) for name, kernel in KERNELS.items()}
    for _ in range(ROUNDS):
        for side in sides.values():
            side.advance(options.steps // ROUNDS, watched)
    found: dict[str, Any] = {}
    for name, side in sides.items():
        outputs = np.concatenate(side.kept, axis=1)  # (chain, draw, inputs, 2)
        steps = CHAINS * ROUNDS * KEPT * max(1, options.steps // ROUNDS // KEPT)
        found[name] = {
            "microseconds": 1e6 * side.seconds / steps,
            "rhat": max_rhat(outputs),
            **{f"ess_{part}": joint_ess(outputs[..., c]) for c, part in enumerate(("mean", "log_variance"))},
        }
        for part in ("mean", "log_variance"):
            found[name][f"ess_{part}_per_second"] = found[name][f"ess_{part}"] / side.seconds
    return found


def main() -> None:
    """Print a line for each problem, architecture and kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="the folder that holds uci/")
    add("--problems", nargs="+", default=["sine", "yacht", "concrete"])
    add("--architectures", nargs="+", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    add("--steps", type=int, default=30_000, help="of a chain after the warm-up")
    add("--warmup", type=int, default=10_000)
    add("--out", type=Path, metavar="FILE", help="write everything here as JSON")
    options = parser.parse_args()
    print_about()
    results: dict[str, Any] = {}
    for problem in options.problems:
        X, y, hidden = sine() if problem == "sine" else uci(options.data, problem)
        likelihood = pn.HeteroscedasticGaussian()
        sizes = (X.shape[1], *hidden, 2)
        net = pn.train(sizes, X, y, likelihood=likelihood, l2=0.3, max_epochs=2000, seed=0, progress=False)
        for name in options.architectures:
            post = pn.Posterior(net, ARCHITECTURES[name], pn.TraceClassPrior.fit(net), likelihood, X, y)
            found = measure(post, X[:: max(1, len(X) // WATCHED)], options)
            results[f"{problem} {name}"] = found
            for kernel, of in found.items():
                print(
                    f"{problem:9} {name:8} {kernel:10} {of['microseconds']:8.1f} us  R-hat {of['rhat']:.2f}  effective "
                    f"draws a second: mean {of['ess_mean_per_second']:9.1f}, log-variance "
                    f"{of['ess_log_variance_per_second']:9.1f}  (of all draws {of['ess_mean']:.0f}, "
                    f"{of['ess_log_variance']:.0f})",
                    flush=True,
                )
    if options.out:
        write_json(options.out, results)


if __name__ == "__main__":
    main()
