"""Progress of a run: bars for the chains of each posterior, which name the stage that the chains are in, or lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from patrac_native.plots.progress import progress_bar, shows_progress
from patrac_native.sampling.preparation import PreparedRun

# A progress callback: called with the steps done, the total number of steps and the acceptance rate so far.
Report = Callable[[int, int, float], None]
# What a handle makes of a callback, to learn of the progress too.
Watch = Callable[[Report | None], Report]
# Seconds between two lines of a log.
_LINE_SECONDS = 10.0
# With more posteriors than this, one bar counts the steps of all: as many bars as a study has replicates fill a screen.
_MOST_BARS = 8


class ProgressBars:
    """A context that shows the progress of runs that are executed in one call, and gives their callbacks.

    Terminals and notebooks show bars; elsewhere, such as in the log of a job, there are lines.
    """

    def __init__(self, runs: Sequence[PreparedRun], watch: Watch | None = None, before: int = 0) -> None:
        """Show runs of which `before` steps were done earlier, which are no part of their speed."""
        self._runs, self._watch, self._before = runs, watch, before
        progress = runs[0].settings.progress
        self._is_bar = shows_progress(None)
        self._is_shown = sys.stderr is not None and (progress is None or bool(progress))
        # The last line of a short run is for those who asked for it.
        self._ends_with_line = bool(progress)
        self._lock = threading.Lock()
        self._bars: dict[int | None, _ProgressBar | _ProgressLines] = {}
        self._latest: dict[int, tuple[int, int, float]] = {}

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def reports(self, *, together: bool) -> list[Report | None]:
        """Return the callback of each run, for one thread, or one of all together; None where there is none."""
        shown: Sequence[Report | None]
        if not self._is_shown:
            shown = [None] * len(self._runs)
        elif together:
            shown = [self._bar(None)._report]
        else:
            shown = [self._of_run(index) for index in range(len(self._runs))]
        return list(shown) if self._watch is None else [self._watch(report) for report in shown]

    def _of_run(self, index: int) -> Report:
        """Return the callback of run `index`."""
        if len(self._runs) <= (_MOST_BARS if self._is_bar else 1):

            def update(done: int, total: int, rate: float) -> None:
                with self._lock:
                    self._bar(index)._report(done, total, rate)
        else:

            def update(done: int, total: int, rate: float) -> None:
                with self._lock:
                    self._latest[index] = (done, total, rate)
                    begun = self._latest.values()
                    # Runs that have not begun are taken to be as long as the others.
                    of_all = sum(latest[1] for latest in begun) * len(self._runs) // len(begun)
                    mean_rate = sum(latest[2] for latest in begun) / len(begun)
                    self._bar(None)._report(sum(latest[0] for latest in begun), of_all, mean_rate)

        return update

    def _bar(self, index: int | None) -> _ProgressBar | _ProgressLines:
        """Return the bar of a run, or of all; it appears when it is first asked for, so that none stands still."""
        if index not in self._bars:
            runs = self._runs if index is None else [self._runs[index]]
            settings = runs[0].settings
            count = len(runs[0].start)
            chains = f"{count} chain" + ("s" if count > 1 else "")
            if len(runs) > 1:
                chains = f"{len(runs)} x {chains}"
            elif len(self._runs) > 1 and index is not None:
                chains = f"posterior {index + 1} of {len(self._runs)}, {chains}"
            kept = len(runs) * count * settings.draws * settings.thin
            self._bars[index] = (
                _ProgressBar(sum(run.steps for run in runs), kept, chains, self._before)
                if self._is_bar
                else _ProgressLines(kept, chains, self._before, ends_with_line=self._ends_with_line)
            )
        return self._bars[index]


class _ProgressBar:
    """The bar of chains that run together."""

    def __init__(self, total: int, kept: int, chains: str, before: int = 0) -> None:
        self._chains, self._kept = chains, kept
        self._bar: Any = progress_bar(total=total, initial=before, unit="step", unit_scale=True, mininterval=0.2)

    def _report(self, steps_done: int, steps_total: int, acceptance_rate: float) -> None:
        self._bar.total = steps_total  # decreases when the warm-up ends early
        stage = "warm-up" if steps_done < steps_total - self._kept else "sampling"
        self._bar.set_description(f"{stage}, {self._chains}", refresh=False)
        self._bar.set_postfix(acceptance=f"{acceptance_rate:.2f}", refresh=False)
        self._bar.update(steps_done - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()


class _ProgressLines:
    """Lines on standard error, at most one in ten seconds, and one at the end of a run that had any or was to have."""

    def __init__(self, kept: int, chains: str, before: int = 0, *, ends_with_line: bool) -> None:
        self._chains, self._kept, self._before, self._ends_with_line = chains, kept, before, ends_with_line
        self._began = self._last = time.monotonic()
        self._latest = ""

    def _report(self, steps_done: int, steps_total: int, acceptance_rate: float) -> None:
        now = time.monotonic()
        seconds = now - self._began
        stage = "warm-up" if steps_done < steps_total - self._kept else "sampling"
        speed = f"{(steps_done - self._before) / seconds:.3g} steps/s" if seconds > 0 else ""
        self._latest = (
            f"{stage}, {self._chains}: {steps_done / max(1, steps_total):.0%} of {steps_total} steps after "
            f"{seconds:.0f} s, {speed}, acceptance={acceptance_rate:.2f}"
        )
        if now >= self._last + _LINE_SECONDS:
            self._last, self._ends_with_line = now, True
            self._say()

    def _say(self) -> None:
        print(self._latest, file=sys.stderr, flush=True)
        self._latest = ""

    def close(self) -> None:
        """Write how the run ended."""
        if self._ends_with_line and self._latest:
            self._say()
