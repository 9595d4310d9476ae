"""Builds the draws of a run, and the warnings about it, from what the core returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import PER_DRAW, Draws
from patrac_native.engine.device_array import DeviceArray
from patrac_native.model.device_choice import DeviceChoice
from patrac_native.sampling.preparation import PreparedRun


def build_draws(
    run: PreparedRun, choice: DeviceChoice, result: dict[str, Any], seconds: float
) -> tuple[Draws, list[str]]:
    """Build the draws of a run.

    Parameters
    ----------
    run : PreparedRun
    choice : DeviceChoice
        The device on which it ran, and the reason.
    result : dict
        What the core returned for this run.
    seconds : float
        Wall-clock time of the whole call.

    Returns
    -------
    draws : Draws
        Up to the last draw that all chains reached.
    notes : list of str
        Warnings about the run: interruption, non-finite proposals, an unstable warm-up.
    """
    kept = int(result["draws_done"].min())
    stable = _stability(result["warmup_stable"])
    whole = result["theta"]
    theta = whole.part(0, len(run.start), kept) if isinstance(whole, DeviceArray) else whole[:, :kept]
    stats = {name: result[name][:, :kept] for name in PER_DRAW if name in result}
    if "prior_scales" in stats:
        assert run.post.network.scales is not None
        stats["prior_scales"] = stats["prior_scales"] * run.post.network.scales.centres
    for name in ("warmup_acceptance_rate", "warmup_step_size", "nonfinite", "warmup_nonfinite"):
        stats[name] = result[name]
    settings = {
        "kernel": run.kernel.to_dict(),
        "kernel_reason": run.kernel_reason,
        "warmup": run.schedule.to_dict(),
        "warmup_steps": int(result["warmup_steps"].sum()),
        "warmup_stable": stable,
        "seed": run.seed,
        "thin": run.settings.thin,
        "draws_asked": run.settings.draws,
        "init": run.settings.init if isinstance(run.settings.init, str) else "given",
        "seconds": seconds,
        "completed": bool(result["completed"]),
        "device": choice.device,
        "device_reason": choice.reason,
        "fit": run.fit.to_dict(),
    }
    draws = Draws(theta, stats, run.post.network, run.post.likelihood, settings)
    return draws, _notes(run, result, kept, stable)


def _stability(phase_stable: npt.NDArray[np.int64]) -> bool | None:
    """Return whether every phase that may end early ended with stable chains; None if there was no such phase.

    `phase_stable` holds 1 (stable), 0 (not stable) or a negative number (a phase of fixed length) for each phase.
    """
    compared = phase_stable[phase_stable >= 0]
    return bool(compared.all()) if len(compared) else None


def _notes(run: PreparedRun, result: dict[str, Any], kept: int, stable: bool | None) -> list[str]:
    """Return the warnings about what went wrong in a run."""
    notes = []
    if not result["completed"]:
        notes.append(
            f"interrupted: {kept} of {run.settings.draws} draws of each chain are returned"
            + (" (the warm-up was not over)." if kept == 0 and run.schedule.phases else ".")
        )
    nonfinite = result["nonfinite"] + result["warmup_nonfinite"]
    if nonfinite.any():
        notes.append(
            f"{int(nonfinite.sum())} proposals had a log-likelihood or gradient that is not finite and were "
            f"rejected (by chain: {nonfinite.tolist()}; {int(result['warmup_nonfinite'].sum())} of them in "
            'warm-up, where a few are harmless); if there are many, scale X and y or use dtype="float64".'
        )
    if stable is False:
        notes.append(
            f"the warm-up ended after {int(result['warmup_steps'].sum())} steps with step size or log-likelihood "
            "still moving, or differing between chains; give more steps, such as warmup=200_000, and look at the "
            "verdict of the summary."
        )
    return notes
