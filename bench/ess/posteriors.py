"""Real posteriors: joint effective draws per gradient and per second, R-hat and the way in, beside other samplers.

`python bench/ess/posteriors.py --out FILE` runs every problem with every side on one core and writes JSON. All sides
start at the same dispersed points and run on the same native density, so that a gradient costs the same; the clock is
processor time. Before efficiencies are printed, means of f are compared with those of the first side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
from ess_measures import LongRun, joint_ess, max_rhat, root_mean_square_z, transient
from ess_problems import Data
from harness import Table, print_about, write_json
from posterior_problems import PROBLEMS, data_of
from posterior_sides import AUTO, BEFORE, BIASED, PLAIN, SIDES, FloatArray, Side, Stretch, joined, make_side

import patrac_native as pn
from patrac_native.studies.tables import number

CHAINS = 4
# Alternating rounds of the sides: the time of a gradient is the median over them.
ROUNDS = 4
PILOT_KEPT, MIN_KEPT, MAX_KEPT, MAX_BYTES = 300, 50, 20_000, 2**27
# The pilot run keeps more than MIN_KEPT states if that takes at most this share of the time of a side.
PILOT_SHARE = 0.25
# A kept state for every fifth of the steps of an effective draw; traces have at most so many states of a chain.
KEPT_PER_DRAW, TRACED = 5, 1000
# Root mean square of the differences of means of f in standard errors that is too large to be chance; sides are held
# to it where both have at least so many effective draws and chains agree.
WRONG, LEAST_ESS, AGREE = 3.0, 100, 1.1
# bde, with a variance of each row and relu, has another posterior: its predictions are compared on this problem.
BDE_PROBLEM = "airfoil-full"
# Gradients of a chain in the warm-up of the samplers of BlackJAX, if none has told it.
DEFAULT_GRADIENTS = 10_000.0


class Measured:
    """A side with its plan from a pilot run, its rounds so far, and their evaluation."""

    def __init__(self, post: pn.Posterior, data: Data, side: Side, seconds: float) -> None:
        self.post, self.data, self.side = post, data, side
        self.pilot = side.advance(MIN_KEPT, 1)
        if self.pilot.seconds * PILOT_KEPT / MIN_KEPT < PILOT_SHARE * seconds:
            self.pilot = joined([self.pilot, side.advance(PILOT_KEPT, 1)])
        pilot_kept = self.pilot.theta.shape[1]
        per_draw = pilot_kept * CHAINS / max(joint_ess(self._watched(self.pilot)), 1.0)
        max_kept = max(MIN_KEPT, min(MAX_KEPT, MAX_BYTES // (CHAINS * post.dim * post.network.dtype.itemsize)))
        of_chain = max(1.0, seconds / (self.pilot.seconds / pilot_kept))
        self.thin = min(max(1, int(per_draw / KEPT_PER_DRAW)), max(1, int(np.ceil(of_chain / max_kept))))
        self._kept = max(MIN_KEPT, min(max_kept, int(of_chain / self.thin)) // ROUNDS)
        self._rounds: list[Stretch] = []

    def run_round(self) -> None:
        """Continue all chains."""
        self._rounds.append(self.side.advance(self._kept, self.thin))

    def evaluate(self) -> None:
        """Find effective draws and traces from all rounds, and the record for the table."""
        self.run = joined(self._rounds)
        self.f = self._watched(self.run)
        self.traces = [self._traces(stretch) for stretch in (self.pilot, self.run)]
        self.ess = joint_ess(self.f)
        of_gradient = statistics.median(part.seconds / part.gradients for part in self._rounds)
        self.record: dict[str, Any] = {
            "ess": self.ess,
            "ess_per_1000_gradients": 1000 * self.ess / self.run.gradients,
            "ess_per_second": self.ess / self.run.gradients / of_gradient,
            "microseconds_per_gradient": 1e6 * of_gradient,
            "max_rhat": max_rhat(self.f),
            "gradients": self.run.gradients,
            "seconds": self.run.seconds,
            "kept": self.f.shape[1],
            "thin": self.thin,
            "warmup_gradients": self.side.warmup_gradients,
            "warmup_seconds": self.side.warmup_seconds,
            **self.side.describe(),
        }

    def _watched(self, run: Stretch) -> FloatArray:
        """Return the watched quantity (chain, draw, points, m)."""
        f = self.post.network.predict(run.theta.reshape(-1, self.post.dim), self.data.grid)
        return next(iter(self.data.watch(f).values())).reshape(*run.theta.shape[:2], *f.shape[1:])

    def _traces(self, run: Stretch) -> dict[str, FloatArray]:
        """Return log-likelihood and held-out NLPD of every some-th draw, (chain, draw)."""
        every = -(-run.theta.shape[1] // TRACED)
        variance = None if run.variance is None else run.variance[:, every - 1 :: every]
        draws = pn.Draws.from_array(self.post, run.theta[:, every - 1 :: every], sampler="a side", variance=variance)
        nlpd = -draws.log_likelihood_rows(self.data.X_test, self.data.y_test).mean(axis=-1)
        return {"log_likelihood": draws.stats["log_likelihood"], "nlpd": nlpd}

    def predictive(self) -> dict[str, float]:
        """Return RMSE and, by the moments of predictions, NLPD of held-out rows, where the noise is sampled."""
        assert self.run.variance is not None
        f = self.post.network.predict(self.run.theta.reshape(-1, self.post.dim), self.data.X_test)[..., 0]
        variance = f.var(axis=0, dtype=np.float64) + self.run.variance.mean()
        error = self.data.y_test.ravel() - f.mean(axis=0, dtype=np.float64)
        nlpd = 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance).mean()
        return {"rmse": float((error**2).mean() ** 0.5), "nlpd": float(nlpd)}

    def transient(self, long_run: LongRun) -> float:
        """Return the gradients of a chain until all chains are where they stay; see `ess_measures.transient`."""
        before = self.side.warmup_gradients
        for stretch, traces in zip((self.pilot, self.run), self.traces, strict=True):
            of_chain = stretch.gradients / CHAINS
            found = transient(traces, of_chain / traces["nlpd"].shape[1], before, long_run)
            if np.isfinite(found):
                return found
            before += of_chain
        return float("inf")


def run_problem(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run all sides on one posterior; return their records, verified against the first side."""
    problem = PROBLEMS[name]
    data = data_of(problem.data, seed)
    post = data.posterior(problem.architecture)
    # The dispersed points at which chains start by default: a step of next to nothing leaves them where they are.
    run: dict[str, Any] = {"chains": CHAINS, "draws": 1, "warmup": None, "seed": seed, "progress": False}
    starts = pn.sample(post, pn.PCN(1e-9), **run).theta[:, 0]
    found: dict[str, Measured] = {}
    failed: dict[str, str] = {}
    gradients = DEFAULT_GRADIENTS if options.warmup == "auto" else float(options.warmup)
    for side in options.sides:
        try:
            warm = make_side(side, post, starts, options.warmup, gradients, seed)
            found[side] = Measured(post, data, warm, options.seconds)
        except FloatingPointError as error:
            failed[side] = str(error)
            continue
        if side == AUTO:
            gradients = warm.warmup_gradients
    for _ in range(ROUNDS):
        for side in list(found):
            try:
                found[side].run_round()
            except FloatingPointError as error:
                failed[side] = str(error)
                del found[side]
    for measured in found.values():
        measured.evaluate()
    reference, first = next(iter(found.items()))
    long_run = LongRun.of(first.traces[1])
    for side, measured in found.items():
        record = measured.record
        record["transient_gradients"] = measured.transient(long_run)
        traces = measured.traces[1]
        record["long_run"] = LongRun.of(traces).mean
        if side == reference:
            continue
        record["z"] = root_mean_square_z(measured.f, first.f, (measured.ess, first.ess))
        sure = all(one.ess >= LEAST_ESS and one.record["max_rhat"] <= AGREE for one in (measured, first))
        record["verified"] = bool(record["z"] <= WRONG) if sure else None
        if record["verified"] is False and side not in BIASED:
            raise AssertionError(f"{name}: f of {side} is {record['z']:.1f} standard errors off that of {reference}")
    sides = {side: measured.record for side, measured in found.items()}
    result = {"seed": seed, "dim": post.dim, "rows": len(post.data.y), "sides": sides, "failed": failed}
    if options.bde and name == BDE_PROBLEM:
        own = first.predictive() | {"seconds": first.side.warmup_seconds + first.pilot.seconds + first.run.seconds}
        result["predictions"] = {reference: own, "bde": bde_scores(options.bde, data, quick=options.bde_quick)}
    return result


def bde_scores(python: str, data: Data, *, quick: bool) -> dict[str, Any]:
    """Return the scores of sklearn-contrib-bde on the same rows, run by the Python of an environment that has it."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, X=data.X, y=data.y, X_test=data.X_test, y_test=data.y_test)
        script, hidden = Path(__file__).with_name("bde_members.py"), map(str, data.net.layer_sizes[1:-1])
        command = [python, str(script), str(rows), *hidden, *["--quick"] * quick]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    scores: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return scores


def print_problem(name: str, found: dict[str, Any]) -> None:
    """Print how the moments agree, then the efficiencies."""
    print(f"\n{name}, data seed {found['seed']}: {found['rows']} rows, {found['dim']} parameters")
    for side, record in found["sides"].items():
        if "z" in record:
            said = {True: "agree", False: "DIFFER", None: "too few effective draws or R-hat too high to tell"}
            print(f"  f of {side}: {record['z']:.2f} standard errors (root mean square): {said[record['verified']]}")
    headers = ["", "per 1000 grad.", "ESS/s", "us/grad.", "R-hat", "ESS", "warm-up", "transient", "held-out NLPD"]
    table = Table(headers, [26, 14, 9, 9, 7, 7, 9, 10, 14])
    for side, record in found["sides"].items():
        table.row(
            [
                side,
                number(record["ess_per_1000_gradients"]),
                number(record["ess_per_second"]),
                number(record["microseconds_per_gradient"]),
                f"{record['max_rhat']:.2f}",
                f"{record['ess']:.0f}",
                f"{record['warmup_gradients']:.0f}",
                f"{record['transient_gradients']:.0f}",
                f"{record['long_run']['nlpd']:.3f}",
            ]
        )
    for side, scores in found.get("predictions", {}).items():
        print(
            f"{side}: RMSE {scores['rmse']:.4f} and NLPD {scores['nlpd']:.3f} of held-out rows by moments, "
            f"{scores['seconds']:.0f} s of processor time, compilation included"
        )
    for side, error in found["failed"].items():
        print(f"{side}: {error}")


def ratios(seeds: Sequence[dict[str, Any]], of: str) -> list[float]:
    """Return the ratio of `auto` to that with the metric of the prior for each seed."""
    return [found["sides"][AUTO][of] / found["sides"][BEFORE][of] for found in seeds]


def print_ratios(name: str, seeds: Sequence[dict[str, Any]]) -> None:
    """Print the ratios of all seeds, their mean and its standard error."""
    for of, words in (("ess_per_second", "ESS/s"), ("ess_per_1000_gradients", "ESS per gradient")):
        values = ratios(seeds, of)
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        listed = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}: {words}, {AUTO} / {BEFORE}: {statistics.mean(values):.2f} +- {error:.2f} ({listed})")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    add("--sides", nargs="+", choices=SIDES, default=[side for side in SIDES if side != PLAIN])
    add("--seeds", nargs="+", type=int, default=[0], metavar="SEED", help="of data and chains; default: 0")
    add("--seconds", type=float, default=20.0, help="processor time of the chains of a side after the warm-up")
    add("--warmup", default="auto", help='steps, or "auto", the default; BlackJAX gets as many gradients')
    add("--bde", metavar="PYTHON", help=f"of an environment with sklearn-contrib-bde, for {BDE_PROBLEM}; minutes")
    add("--bde-quick", action="store_true", help="see whether it runs")
    add("--out", type=Path, metavar="FILE", help="write everything here as JSON")
    options = parser.parse_args()
    options.warmup = options.warmup if options.warmup == "auto" else int(options.warmup)
    return options


def main() -> None:
    """Print a table for each posterior, then ratios over the seeds."""
    options = parse()
    started = time.process_time()
    print_about()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in options.problems}
    for seed in options.seeds:
        for name in options.problems:
            results[name].append(run_problem(name, seed, options))
            print_problem(name, results[name][-1])
            write_json(options.out, results, warmup=options.warmup, seconds=options.seconds)
    print()
    for name, seeds in results.items():
        if {AUTO, BEFORE} <= set(seeds[0]["sides"]):
            print_ratios(name, seeds)
    print(f"{(time.process_time() - started) / 60:.1f} minutes of processor time")


if __name__ == "__main__":
    main()
