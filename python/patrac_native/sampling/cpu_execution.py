"""Executes prepared runs on the CPU, one after the other or several at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from patrac_native.engine import _core
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.progress import ProgressBars, Report
from patrac_native.sampling.results import build_draws, draws_so_far


def run_in_turn(runs: Sequence[PreparedRun], bars: ProgressBars) -> list[dict[str, Any]]:
    """Execute runs one after the other, each on all its threads; the list ends with the first that is interrupted."""
    results: list[dict[str, Any]] = []
    for index, run in enumerate(runs):
        results.append(_run(run, bars.of_run(index)))
        if not results[-1]["completed"]:
            break
    return results


def run_side_by_side(runs: Sequence[PreparedRun], workers: int, bars: ProgressBars) -> list[dict[str, Any]]:
    """Execute runs, `workers` of them at a time, which share the threads; draws do not depend on that.

    Ctrl-C ends the runs that have begun, with their draws so far, and leaves out the others.

    Parameters
    ----------
    runs : sequence of PreparedRun
    workers : int
        At least 1, and at most the number of threads of a run.
    bars : ProgressBars
        Gives the progress callback of each run.

    Returns
    -------
    list of dict
        What the core returned for each run, up to the last that had begun.
    """
    threads = runs[0].threads // workers
    is_interrupted = threading.Event()

    def report_of(index: int) -> Report:
        shown = bars.of_run(index)

        def report(done: int, total: int, rate: float) -> None:
            if is_interrupted.is_set():
                raise KeyboardInterrupt
            if shown is None:
                return
            try:
                shown(done, total, rate)
            except KeyboardInterrupt:
                is_interrupted.set()
                raise

        return report

    def run_one(index: int) -> dict[str, Any] | None:
        if is_interrupted.is_set():
            return None
        return _run(replace(runs[index], threads=threads), report_of(index))

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_one, index) for index in range(len(runs))]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:  # reaches the waiting thread only
            is_interrupted.set()
        except BaseException:
            is_interrupted.set()
            raise
    results: list[dict[str, Any]] = []
    for future in futures:
        result = future.result()
        if result is None:
            break
        results.append(result)
    return results


def _run(run: PreparedRun, report: Report | None) -> dict[str, Any]:
    """Execute one run on the CPU: on sufficient statistics if the log-likelihood is quadratic, else on the data."""
    density, config, start = run.density, run.config, run.start
    clock, stop_when = time.perf_counter(), run.settings.stop_when

    def is_enough(result: dict[str, Any]) -> bool:
        assert stop_when is not None
        draws, _ = build_draws(run, run.choice, draws_so_far(result), time.perf_counter() - clock)
        return bool(stop_when(draws))

    ask = None if stop_when is None else is_enough
    form = density.quadratic
    if form is None:
        rotation = {"rotation": list(run.rotation)} if run.rotation else {}
        return dict(
            run.compiled.host.sample(
                config, run.chain_start, density.prior_variance, report, ask, run.step_factor, **rotation
            )
        )
    native: Any = _core.sample_quadratic32 if density.dtype == np.float32 else _core.sample_quadratic64
    common = {
        "constant": form.constant,
        "terms": form.terms,
        "variance": form.variance,
        "output": form.output,
        "prior_variance": density.prior_variance,
        "config": config,
        "progress": report,
        "is_enough": ask,
        "level": density.level,
    }
    if not run.kernel.is_rotation_invariant or density.scales is not None:  # no basis is whitened for every scale
        plain = form.plain
        return dict(native(slope=plain.slope, matrix=plain.hessian, to_theta=np.empty((0, 0)), init=start, **common))
    return dict(
        native(
            slope=form.slope,
            matrix=form.curvature,
            to_theta=form.to_theta,
            init=form.whitened(start),
            **common,
        )
    )
