"""Progress bars of a run: one for the chains of each posterior, which name the stage that the chains are in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from patrac_native.plots.progress import progress_bar, shows_progress
from patrac_native.sampling.preparation import PreparedRun

# A progress callback: called with the steps done, the total number of steps and the acceptance rate so far.
Report = Callable[[int, int, float], None]
# With more posteriors than this, one bar counts the steps of all: as many bars as a study has replicates fill a screen.
_MOST_BARS = 8


class ProgressBars:
    """A context that shows bars for runs that are executed in one call, and gives their callbacks."""

    def __init__(self, runs: Sequence[PreparedRun]) -> None:
        self._runs = runs
        self._is_shown = shows_progress(runs[0].settings.progress)
        self._lock = threading.Lock()
        self._bars: dict[int | None, _ProgressBar] = {}
        self._latest: dict[int, tuple[int, int, float]] = {}

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def reports(self, *, together: bool) -> list[Report | None]:
        """Return the callback of each run, for one thread, or one of all together; None where no bar is shown."""
        if not self._is_shown:
            return [None] * len(self._runs)
        return [self._bar(None)._report] if together else [self._of_run(index) for index in range(len(self._runs))]

    def _of_run(self, index: int) -> Report:
        """Return the callback of run `index`."""
        if len(self._runs) <= _MOST_BARS:

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

    def _bar(self, index: int | None) -> _ProgressBar:
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
            self._bars[index] = _ProgressBar(sum(run.steps for run in runs), kept, chains)
        return self._bars[index]


class _ProgressBar:
    """The bar of chains that run together."""

    def __init__(self, total: int, kept: int, chains: str) -> None:
        self._chains, self._kept = chains, kept
        self._bar: Any = progress_bar(total=total, unit="step", unit_scale=True, mininterval=0.2)

    def _report(self, steps_done: int, steps_total: int, acceptance_rate: float) -> None:
        self._bar.total = steps_total  # decreases when the warm-up ends early
        stage = "warm-up" if steps_done < steps_total - self._kept else "sampling"
        self._bar.set_description(f"{stage}, {self._chains}", refresh=False)
        self._bar.set_postfix(acceptance=f"{acceptance_rate:.2f}", refresh=False)
        self._bar.update(steps_done - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()
