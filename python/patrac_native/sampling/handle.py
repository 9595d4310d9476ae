"""The handle of a run that goes on in a thread of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from patrac_native.draws.draws import Draws
from patrac_native.draws.run_folder import Checkpoint, RunFolder
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.progress import Report
from patrac_native.sampling.stretches import Kept, Outcome, whole_steps
from patrac_native.validation.notes import Note

# The end of the interpreter waits at most so long for runs to end, as the core does.
_PATIENCE = 5.0


@dataclass(frozen=True)
class Progress:
    """How far a run is; its string is a line.

    Attributes
    ----------
    phase : str
        "starting", "warm-up", "sampling" or "paused"; at the end "completed", "stopped", "cancelled" or "failed".
    steps, total_steps : int
        Steps of all chains that are done, and those of the whole run, fewer once a warm-up has ended early.
    steps_per_second : float
        Of all chains, since the run began or last went on after a pause; NaN before the first report.
    draws, total_draws : int
        Draws of each chain so far, and those that were asked for.
    acceptance_rate : float
        Of all steps so far; NaN before the first report.
    kill_costs : int or None
        With a store, the draws of each chain that `kill -9` or a power cut would cost at most, those that the run makes
        up to its next checkpoint, 0 once it has ended; None without a store, where it costs all.
    until : str or None
        The `state` of the function `until`, if it has one, as `EnoughDraws` has.
    """

    phase: str
    steps: int
    total_steps: int
    steps_per_second: float
    draws: int
    total_draws: int
    acceptance_rate: float
    kill_costs: int | None
    until: str | None

    def __str__(self) -> str:
        words = f"{self.phase}: {self.draws} of {self.total_draws} draws of each chain, {self.steps} of "
        words += f"{self.total_steps} steps, {self.steps_per_second:.3g} steps/s, acceptance {self.acceptance_rate:.2f}"
        if self.kill_costs is not None:
            words += f", a kill costs at most {self.kill_costs} draws of each"
        return words if self.until is None else f"{words}; {self.until}"


class Run:
    """A run that goes on in the background; `patrac_native.start` returns it, and `resume` with `wait=False`.

    As a context manager it stops the run, if it still goes on, at the end of the `with` block. The end of the
    interpreter stops it too; what is in its store stays. Methods may be called from any thread; those that wait for the
    end of the run, not from functions that the run itself calls.
    """

    def __init__(
        self,
        run: PreparedRun,
        folder: RunFolder | None,
        carry_out: Callable[[Run], Outcome],
        *,
        resumed: Checkpoint | None = None,
    ) -> None:
        self._run, self._folder, self._is_resumed = run, folder, resumed is not None
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._holds, self._is_paused = False, False
        self._end: str | None = None  # how the run is to end before its last draw: "stop" or "cancel"
        self._kept: Kept | None = None
        # Steps done, all steps and acceptance rate at the last report, and its time.
        at = resumed or Checkpoint()
        before = len(run.start) * at.step
        self._report: tuple[int, int, float] = (before, whole_steps(run, at), float("nan"))
        self._at = time.monotonic()
        self._since = (self._at, before)  # time and steps done at the beginning or after a pause
        self._draws: Draws | TargetDraws | None = None
        self._notes: list[Note] = []
        self._error: BaseException | None = None
        self._over = threading.Event()
        # Notes of `until` go to the collectors of the caller, whose context the thread gets.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._work, carry_out), name="patrac_native run", daemon=True
        )
        _RUNS.add(self)
        self._thread.start()

    # -- what the user calls ----------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the run has ended: completed, stopped, cancelled or failed."""
        return self._over.is_set()

    @property
    def progress(self) -> Progress:
        """How far the run is, as of the last 0.05 seconds."""
        settings, chains = self._run.settings, len(self._run.start)
        steps, total, rate = self._report
        began, before = self._since
        sampling = chains * settings.draws * settings.thin
        draws, kept = self._draws, self._kept  # once: another thread may cancel
        n_draws = max(0, steps - (total - sampling)) // (chains * settings.thin) if draws is None else draws.n_draws
        costs = None if kept is None else kept.kill_costs  # after the draws, which may go on
        return Progress(
            phase=self._phase(),
            steps=steps,
            total_steps=total,
            steps_per_second=(steps - before) / (self._at - began) if self._at > began else float("nan"),
            draws=n_draws,
            total_draws=settings.draws,
            acceptance_rate=rate,
            kill_costs=0 if self.done and costs is not None else costs,
            until=getattr(settings.until, "state", None),
        )

    def _phase(self) -> str:
        """Return the word for what the run does."""
        if self.done:
            draws = self._draws  # before `_end`, which `cancel` sets first
            if self._end == "cancel":
                return "cancelled"
            if draws is None:
                return "failed"
            return "completed" if draws.settings["completed"] else "stopped"
        steps, total, _ = self._report
        settings = self._run.settings
        if self._is_paused:
            return "paused"
        if steps == 0:
            return "starting"
        return "warm-up" if steps < total - len(self._run.start) * settings.draws * settings.thin else "sampling"

    def pause(self) -> None:
        """Ask the run to hold, which it does after about half a second, with a store two seconds, or one long step.

        It then takes no processor time, and `progress.phase` is "paused". The draws do not change.

        Raises
        ------
        ValueError
            If the run is on a device.
        RuntimeError
            In a forked process, whose copy of the handle has no run.
        """
        self._check("pause")
        with self._changed:
            self._holds = True

    def resume(self) -> None:
        """Let a paused run go on.

        Raises
        ------
        ValueError, RuntimeError
            As `pause`.
        """
        self._check("resume")
        with self._changed:
            self._holds = False
            self._changed.notify_all()

    def peek(self) -> Draws | TargetDraws | None:
        """Return the draws so far, while the run goes on; None before the first.

        They are those of about half a second ago, or of the last checkpoint of a store. Without a store their arrays
        are those of the run, not a copy: do not write to them.

        Returns
        -------
        Draws or, of a Target, TargetDraws, or None
            `settings["completed"]` is False.

        Raises
        ------
        ValueError, RuntimeError
            As `pause`; also RuntimeError if the run was cancelled.
        """
        self._check("peek")
        if self._end == "cancel":
            self._refuse_cancelled()
        draws, kept = self._draws, self._kept  # once: another thread may cancel
        if draws is not None:
            return draws
        return None if kept is None else kept.peek()

    def wait(self, timeout: float | None = None) -> Draws | TargetDraws:
        """Wait for the end of the run, and return its draws; Ctrl-C ends the waiting, not the run.

        Parameters
        ----------
        timeout : float, optional
            The longest time to wait, in seconds; by default there is none.

        Returns
        -------
        Draws or, of a Target, TargetDraws
            Those of `sample`; after `stop`, the draws so far.

        Raises
        ------
        TimeoutError
            If the run goes on after `timeout` seconds.
        RuntimeError
            If the run was cancelled; in a forked process or a function that the run calls.
        Exception
            Whatever `sample` would have raised.

        Warns
        -----
        UserWarning
            As `sample`, at the first call after the end of the run.
        """
        return self._result(timeout)

    def stop(self) -> Draws | TargetDraws:
        """End the run, and return the draws so far, those of all chains.

        Without a store it ends at the next step, with one after at most about two seconds, or one step, of work that
        are kept: `patrac_native.resume` goes on from there.

        Returns
        -------
        Draws or, of a Target, TargetDraws
            All draws if the run had ended. None of them if its warm-up was not over.

        Raises
        ------
        RuntimeError, Exception
            As `wait`.
        """
        self._ask("stop")
        return self._result(None)

    def cancel(self) -> None:
        """End the run and discard its draws; a store is removed, but that of a resumed run stays.

        It stays with the draws that were confirmed, those since the resume included.

        Raises
        ------
        RuntimeError
            In a forked process, or a function that the run calls.
        """
        self._ask("cancel")
        self._join(None)
        self._draws, self._notes, self._kept = None, [], None
        if self._folder is not None and not self._is_resumed:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.done:
            self._ask("stop")
            self._join(None)

    def __repr__(self) -> str:
        return f"Run({self.progress})"

    # -- what the run calls, in its thread --------------------------------------------------------------------------

    @property
    def is_in_stretches(self) -> bool:
        """Whether the run has borders at which it can hold."""
        return self._run.choice.device == "cpu"

    def watch(self, report: Report | None) -> Report:
        """Return a progress callback that also tells the handle, and ends the run at its next step."""

        def watched(done: int, total: int, rate: float) -> None:
            self._report, self._at = (done, total, rate), time.monotonic()
            # With a store, a stopped run ends at the end of a stretch, so that a checkpoint has its draws.
            if self._end == "cancel" or (self._end is not None and self._folder is None):
                raise KeyboardInterrupt
            if report is not None:
                report(done, total, rate)

        return watched

    def border_of(self, kept: Kept) -> Callable[[], None]:
        """Return what is called between stretches: it holds a paused run, and raises KeyboardInterrupt to end one."""
        self._kept = kept

        def border() -> None:
            with self._changed:
                while self._holds and self._end is None:
                    self._is_paused = True
                    self._changed.wait()
                if self._is_paused:
                    self._is_paused, self._since = False, (time.monotonic(), self._report[0])
            if self._end is not None:
                raise KeyboardInterrupt

        return border

    def _work(self, carry_out: Callable[[Run], Outcome]) -> None:
        """Execute the run."""
        try:
            self._draws, self._notes = carry_out(self)
        except BaseException as error:
            self._error = error
        self._over.set()

    # -- what both do -----------------------------------------------------------------------------------------------

    def _check(self, what: str) -> None:
        """Raise for calls that the run does not support."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"{what}: the run goes on in process {self._process}, of which this one is a fork; use it there."
            )
        if what in ("pause", "resume", "peek") and not self.is_in_stretches:
            raise ValueError(
                f'{what} needs device="cpu": {self._run.choice.device} makes all draws in one launch. There are '
                "`progress`, `stop`, `cancel` and `wait`."
            )

    def _ask(self, end: str) -> None:
        """Ask the run to end, if it has not ended."""
        self._check(end)
        with self._changed:
            if end == "cancel" or not self.done:
                self._end = "cancel" if self._end == "cancel" else end
            self._changed.notify_all()

    def _join(self, timeout: float | None) -> None:
        """Wait for the end of the run."""
        self._check("wait")
        if threading.current_thread() is self._thread:
            raise RuntimeError("the run cannot wait for its own end: `until` ends it by returning True.")
        if not self._over.wait(timeout):
            raise TimeoutError(f"the run goes on after {timeout:g} seconds: {self.progress}.")
        self._thread.join()

    def _result(self, timeout: float | None) -> Draws | TargetDraws:
        """Return what the run returned, with its notes at the line of the caller's caller, or raise what it raised."""
        self._join(timeout)
        if self._end == "cancel":
            self._refuse_cancelled()
        if self._draws is None:
            assert self._error is not None
            raise self._error
        notes, self._notes = self._notes, []
        for note in notes:
            # Who stopped the run knows that.
            if not (self._end == "stop" and note.kind == "interrupted" and self._draws.n_draws):
                note.give(stacklevel=3)
        return self._draws

    def _refuse_cancelled(self) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError("the run was cancelled, which discards its draws; `stop` keeps them.")


_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()


def _end_runs() -> None:
    """Stop the runs of this process at the end of the interpreter, before the core ends their calls."""
    end = time.monotonic() + _PATIENCE
    runs = [run for run in _RUNS if run._process == os.getpid() and not run.done]
    for run in runs:
        run._ask("stop")
    for run in runs:
        run._thread.join(max(0.0, end - time.monotonic()))


atexit.register(_end_runs)
