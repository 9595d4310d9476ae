"""Executes prepared runs on the CPU, one after the other or several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from patrac_native.engine import _core
from patrac_native.model.posterior import Posterior
from patrac_native.sampling.preparation import PreparedRun

# A progress callback: called with the steps done, the total number of steps and the acceptance rate so far.
Report = Callable[[int, int, float], None]


def run_in_turn(runs: Sequence[PreparedRun], report: Report | None) -> list[dict[str, Any]]:
    """Execute runs one after the other, each on all its threads; the list ends with the first that is interrupted."""
    results: list[dict[str, Any]] = []
    for index, run in enumerate(runs):
        results.append(_run(run, _report_of_run(report, index, len(runs))))
        if not results[-1]["completed"]:
            break
    return results


def _report_of_run(report: Report | None, index: int, count: int) -> Report | None:
    """Return the progress callback of run `index` of `count` runs of equal length, which are executed in turn."""
    if report is None:
        return None
    return lambda done, total, rate: report(index * total + done, count * total, rate)


def run_side_by_side(runs: Sequence[PreparedRun], workers: int, report: Report | None) -> list[dict[str, Any]]:
    """Execute runs, `workers` of them at a time, which share the threads; draws do not depend on that.

    Ctrl-C ends the runs that have begun, with their draws so far, and leaves out the others.

    Parameters
    ----------
    runs : sequence of PreparedRun
    workers : int
        At least 1, and at most the number of threads of a run.
    report : callable, optional
        Progress callback, see `Report`; it is called by one run at a time.

    Returns
    -------
    list of dict
        What the core returned for each run, up to the last that had begun.
    """
    threads = runs[0].threads // workers
    progress = _SharedProgress(len(runs), report)

    def run_one(index: int) -> dict[str, Any] | None:
        if progress.is_interrupted.is_set():
            return None
        return _run(replace(runs[index], threads=threads), progress.of_run(index))

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_one, index) for index in range(len(runs))]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:  # reaches the waiting thread only
            progress.is_interrupted.set()
        except BaseException:
            progress.is_interrupted.set()
            raise
    results: list[dict[str, Any]] = []
    for future in futures:
        result = future.result()
        if result is None:
            break
        results.append(result)
    return results


class _SharedProgress:
    """The progress of runs on several threads, which also tells them to stop.

    Attributes
    ----------
    is_interrupted : threading.Event
        Set to end all runs.
    """

    def __init__(self, count: int, report: Report | None) -> None:
        self.is_interrupted = threading.Event()
        self._lock = threading.Lock()
        self._report = report
        self._latest: list[tuple[int, int, float] | None] = [None] * count

    def of_run(self, index: int) -> Report:
        """Return the progress callback of one run."""

        def update(done: int, total: int, rate: float) -> None:
            if self.is_interrupted.is_set():
                raise KeyboardInterrupt
            if self._report is None:
                return
            with self._lock:
                self._latest[index] = (done, total, rate)
                begun = [latest for latest in self._latest if latest is not None]
                # Runs that have not begun are taken to be as long as the others.
                of_all = sum(latest[1] for latest in begun) * len(self._latest) // len(begun)
                try:
                    self._report(
                        sum(latest[0] for latest in begun), of_all, sum(latest[2] for latest in begun) / len(begun)
                    )
                except KeyboardInterrupt:
                    self.is_interrupted.set()
                    raise

        return update


def _run(run: PreparedRun, report: Report | None) -> dict[str, Any]:
    """Execute one run on the CPU: on sufficient statistics if the log-likelihood is quadratic, else on the data."""
    post, config, start = run.post, run.config, run.start
    form = post.quadratic
    if form is None:
        rotation = {"rotation": list(run.rotation)} if run.rotation else {}
        return dict(
            run.compiled.host.sample(config, run.chain_start, post.prior_variance, report, run.step_factor, **rotation)
        )
    assert isinstance(post, Posterior)  # other densities have no quadratic form
    native: Any = _core.sample_quadratic32 if post.dtype == np.float32 else _core.sample_quadratic64
    common = {
        "constant": form.constant,
        "terms": post.gaussian_terms,
        "variance": np.ascontiguousarray(post.starting_variances),
        "output": form.output,
        "prior_variance": post.prior_variance,
        "config": config,
        "progress": report,
        "level": post.level,
    }
    if not run.kernel.is_rotation_invariant or post.scale_names:  # no basis is whitened for every scale
        plain = form.plain
        return dict(native(slope=plain.slope, matrix=plain.hessian, to_theta=np.empty((0, 0)), init=start, **common))
    return dict(
        native(
            slope=form.slope,
            matrix=form.curvature,
            to_theta=np.ascontiguousarray(form.to_theta),
            init=form.whitened(start),
            **common,
        )
    )
