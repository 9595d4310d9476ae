"""Builds the draws of a run, and the warnings about it, from what the core returned."""

from __future__ import annotations

from dataclasses import asdict
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.chain_draws import PER_DRAW, Stats
from patrac_native.draws.draws import Draws
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.engine.device_array import DeviceArray
from patrac_native.kernels.device_choice import DeviceChoice
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.target import Target
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.verdict.evidence import FittedNoise, fitted_noise


def build_draws(
    run: PreparedRun, choice: DeviceChoice, result: dict[str, Any], seconds: float
) -> tuple[Draws | TargetDraws, list[str]]:
    """Build the draws of a run."""
    kept = int(result["draws_done"].min())
    stable = _stability(result["warmup_stable"])
    whole = result["theta"]
    theta = whole if isinstance(whole, DeviceArray) else whole[:, :kept]
    if run.metric is not None:
        assert not isinstance(theta, DeviceArray)  # prepare_run() refuses draws that stay on a device
        for of_chain in theta:
            run.metric.restore(of_chain)
    stats = {name: result[name][:, :kept] for name in PER_DRAW if name in result}
    if "prior_scales" in stats:
        assert run.density.scales is not None
        stats["prior_scales"] = stats["prior_scales"] * run.density.scales.centres
    for name in ("warmup_acceptance_rate", "warmup_step_size", "nonfinite", "warmup_nonfinite"):
        stats[name] = result[name]
    gradients = kept * run.settings.thin * run.kernel.gradients_per_step
    stats["gradients"] = np.full(len(run.start), gradients, np.int64)
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
        "fit": None if run.fit is None else run.fit.to_dict(),
    }
    draws, remarks = _of_density(run.post, theta, stats, settings, run)
    return draws, _notes(run, result, kept, stable) + remarks


def draws_so_far(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run whose chains wait, with theta of the draws so far in an array of its own.

    `build_draws` brings theta into the order of the parameters in place, which the whole run does at its end.
    """
    done = int(result["draws_done"].min())
    return result | {"theta": result["theta"][:, :done].copy()}


@singledispatch
def _of_density(
    post: object, theta: npt.NDArray[Any] | DeviceArray, stats: Stats, settings: dict[str, Any], run: PreparedRun
) -> tuple[Draws | TargetDraws, list[str]]:
    """Return the draws of a density, with the warnings that only its kind has."""
    raise TypeError(f"no draws are known of a density of type {type(post).__name__}")


@_of_density.register
def _of_posterior(
    post: Posterior, theta: npt.NDArray[Any] | DeviceArray, stats: Stats, settings: dict[str, Any], run: PreparedRun
) -> tuple[Draws, list[str]]:
    if run.variance_every is not None:
        settings |= {"variance_every": run.variance_every, "noise_prior": post.sampled.law.source}
    if post.data.offset is not None:
        settings["has_offset"] = True
    noise, remarks = fitted_noise(post, stats.get("variance")), []
    if noise is not None:
        settings["fitted_noise"] = asdict(noise)
        remarks = [_noise_warning(noise, post.network.architecture.label())]
    return Draws(theta, stats, post.network, post.likelihood, settings), remarks


@_of_density.register
def _of_target(
    post: Target, theta: npt.NDArray[Any], stats: Stats, settings: dict[str, Any], run: PreparedRun
) -> tuple[TargetDraws, list[str]]:
    return TargetDraws(theta, stats, settings | {"batched": post.batched}, predict=post.predict), []


def _noise_warning(noise: FittedNoise, label: str) -> str:
    """Return the warning about an architecture whose frozen nodes have fitted noise."""
    return (
        f"{noise}: the nodes that {label} keeps fixed have fitted noise, and intervals will be too narrow; use Full(), "
        "or train with more regularisation (a larger l2, or one chosen on validation rows)."
    )


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
            f"warm-up, where a few are harmless); if there are many, {run.density.nonfinite_remedy}."
        )
    if stable is False:
        notes.append(
            f"the warm-up ended after {int(result['warmup_steps'].sum())} steps with step size or log-likelihood "
            "still moving, or differing between chains; give more steps, such as warmup=200_000 or a larger thin, and "
            "look at the verdict of the summary."
        )
    return notes
