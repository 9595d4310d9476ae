"""Builds the draws of a run, and the warnings about it, from what the core returned."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.draws.chain_draws import PER_DRAW, Stats, Theta, listed
from patrac_native.draws.draws import Draws
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.engine.device_array import DeviceArray
from patrac_native.kernels.device_choice import DeviceChoice
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.target import Target
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.validation.notes import Note
from patrac_native.verdict.evidence import fitted_noise


def build_draws(
    run: PreparedRun, choice: DeviceChoice, result: dict[str, Any], seconds: float
) -> tuple[Draws | TargetDraws, list[Note]]:
    """Build the draws of a run."""
    return assemble(run, choice, *kept_states(run, result), result, seconds)


def kept_states(
    run: PreparedRun, result: dict[str, Any]
) -> tuple[npt.NDArray[Any] | DeviceArray, dict[str, npt.NDArray[Any]]]:
    """Return theta, brought in place into the order of the parameters, and the statistics of each draw."""
    kept = int(result["draws_done"].min())
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
    return theta, stats


def assemble(
    run: PreparedRun, choice: DeviceChoice, theta: Theta, per_draw: Stats, result: dict[str, Any], seconds: float
) -> tuple[Draws | TargetDraws, list[Note]]:
    """Build draws of their states and statistics and, by `result`, those of chains and phases."""
    kept, stats, stable = theta.shape[1], dict(per_draw), _stability(result["warmup_stable"])
    for name in ("warmup_acceptance_rate", "warmup_step_size", "nonfinite", "warmup_nonfinite"):
        stats[name] = result[name]
    stats |= {name: result[name] for name in MOMENTS if name in result}
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
    if settings["init"] == "given" or run.schedule.superchains:
        starts: dict[bytes, int] = {}
        of_chains = [starts.setdefault(row.tobytes(), len(starts)) for row in run.start]
        settings |= {"starts": of_chains} if len(starts) < len(of_chains) else {}
    if run.moments_at is not None:
        settings["moments_every"] = run.stride
    notes = _notes(run, result, kept, stable)
    if isinstance(run.post, Target):
        assert isinstance(theta, np.ndarray)  # no device runs functions, and no store keeps them
        settings["batched"] = run.post.batched
        return TargetDraws(theta, stats, settings, predict=run.post.predict), notes
    draws, remarks = _of_posterior(run.post, theta, stats, settings, run)
    return draws, notes + remarks


def _of_posterior(
    post: Posterior, theta: Theta, stats: Stats, settings: dict[str, Any], run: PreparedRun
) -> tuple[Draws, list[Note]]:
    """Return the draws of a posterior, with the notes that only a network has."""
    if run.variance_every is not None:
        settings |= {"variance_every": run.variance_every, "noise_prior": post.sampled.law.source}
    if post.data.offset is not None:
        settings["has_offset"] = True
    noise, remarks = fitted_noise(post, stats.get("variance")), list[Note]()
    if noise is not None:
        settings["fitted_noise"] = asdict(noise)
        text = (
            f"{noise}: the nodes that {post.network.architecture.label()} keeps fixed have fitted noise, and intervals "
            "will be too narrow; use Full(), or train with more regularisation (a larger l2, or one chosen on "
            "validation rows)."
        )
        remarks = [Note("fitted noise", text)]
    return Draws(theta, stats, post.network, post.likelihood, settings), remarks


def _stability(phase_stable: npt.NDArray[np.int64]) -> bool | None:
    """Return whether every phase that may end early ended with stable chains; None if there was no such phase."""
    compared = phase_stable[phase_stable >= 0]  # 1 for stable, 0 for not, a negative number for a fixed length
    return bool(compared.all()) if len(compared) else None


def _notes(run: PreparedRun, result: dict[str, Any], kept: int, stable: bool | None) -> list[Note]:
    """Return the notes on what went wrong in a run."""
    notes: list[Note] = []
    if not result["completed"]:
        early = " (the warm-up was not over)." if kept == 0 and run.schedule.phases else "."
        text = f"interrupted: {kept} of {run.settings.draws} draws of each chain are returned{early}"
        notes.append(Note("interrupted", text))
    nonfinite = result["nonfinite"] + result["warmup_nonfinite"]
    if nonfinite.any():
        of_chains = listed(nonfinite.tolist(), "d")
        text = (
            f"{int(nonfinite.sum())} proposals had a log-likelihood or gradient that is not finite and were "
            f"rejected (by chain: [{of_chains}]; {int(result['warmup_nonfinite'].sum())} of them in "
            f"warm-up, where a few are harmless); if there are many, {run.density.nonfinite_remedy}."
        )
        notes.append(Note("not finite", text))
    if stable is False:
        longer = (
            f"at_most={4 * run.schedule.steps:_} of Warmup.many_chains"
            if run.schedule.superchains
            else "warmup=200_000 or a larger thin"
        )
        text = (
            f"the warm-up ended after {int(result['warmup_steps'].sum())} steps with step size or log-likelihood "
            f"still moving, or differing between chains; give more steps, such as {longer}, and look at the verdict of "
            "the summary."
        )
        notes.append(Note("warm-up", text))
    return notes
