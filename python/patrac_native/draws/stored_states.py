"""The states and statistics of a run in its folder: those in the arrays, followed by those of its checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.draws import arviz_groups
from patrac_native.draws.chain_draws import PER_DRAW, Stats, Theta, read_states
from patrac_native.draws.moments import RunningMoments
from patrac_native.draws.run_folder import MEMORY, RUN_TOTALS, Checkpoint, RunFolder, StoredTheta
from patrac_native.files.archive import rebuilding
from patrac_native.kernels import kernel_from_dict
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork


def read_checkpoint(folder: RunFolder, network: PartialNetwork, likelihood: Likelihood) -> Checkpoint | None:
    """Return the last checkpoint, if a run of this network can have written it; None before the first."""
    at = folder.checkpoint()
    if at is None:
        return None
    assert at.theta is not None
    with rebuilding(folder.checkpoint_path):
        arrays: dict[str, npt.NDArray[Any]] = {
            "theta": at.theta,
            **{f"stat_{name}": values for name, values in at.stats.items()},
        }
        header = {"settings": at.settings, "stats": list(at.stats)}
        (chains, draws, _), phases = at.theta.shape, len(at.settings["warmup"]["phases"])
        read_states(header, arrays, network.dim, network.dtype)
        variances = len(likelihood.variance_prior(network.n_outputs)[1]) if likelihood.is_sampled else 0
        expected: dict[str, tuple[tuple[int, ...], str]] = {name: ((chains, draws), "f") for name in PER_DRAW[:4]}
        if variances:
            expected["variance"] = (chains, draws, variances)[: 2 + (variances > 1)], "f"
        if network.scale_names:
            expected["prior_scales"] = (chains, draws, len(network.scale_names)), "f"
        expected |= dict.fromkeys(("warmup_acceptance_rate", "warmup_step_size"), ((chains, phases), "f"))
        expected |= dict.fromkeys(("warmup_steps", "warmup_stable"), ((phases,), "i"))
        expected |= dict.fromkeys(("nonfinite", "warmup_nonfinite", "gradients"), ((chains,), "i"))
        found = at.stats | at.totals
        if at.moments is not None:
            found, expected = _with_moments(at.moments, found, expected, network)
        if found.keys() != expected.keys():
            raise ValueError(f"it has the statistics {', '.join(found)}, and not {', '.join(expected)}")
        for name, values in found.items():
            if (values.shape, values.dtype.kind) != expected[name]:
                raise ValueError(f"its {name} has shape {values.shape} and dtype {values.dtype}")
    return at


def _with_moments(
    moments: RunningMoments, found: Stats, expected: dict[str, tuple[tuple[int, ...], str]], network: PartialNetwork
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, tuple[tuple[int, ...], str]]]:
    """Return the arrays of a checkpoint and their expected shapes and kinds, those of the moments of f included."""
    own = {f"moment {name}": values for name, values in vars(moments).items()}
    if not all(name in found and found[name].ndim == len(axes) for name, axes in MOMENTS.items()):
        raise ValueError("it has sums of f, and lacks their moments")
    (chains, n), m = found["moments_at"].shape[:2], network.n_outputs
    shapes = [(chains, n, network.n_inputs), (chains, n, m), (chains, n, m), (chains,)]
    mine = dict(zip(MOMENTS, shapes, strict=True))
    if moments.pending.ndim != 4 or moments.rates.ndim != 2:
        raise ValueError("its sums of f have another number of axes")
    pending, rates = moments.pending.shape[1], moments.rates.shape[1]
    shapes = [(), (chains, n, m), (chains, n, m), (chains, pending, n, m), (chains, rates)]
    mine |= dict(zip(own, shapes, strict=True))
    if not 0 <= moments.count < 1 << 62 or moments.count + pending != found["moments_states"].max():
        raise ValueError("its number of states is not that of its sums of f")
    counts = ("moments_states", "moment count")
    return {**found, **own}, {**expected, **{name: (shape, "if"[name not in counts]) for name, shape in mine.items()}}


def stored_states(
    folder: RunFolder, at: Checkpoint, network: PartialNetwork, likelihood: Likelihood, memory: int = MEMORY
) -> tuple[Theta, dict[str, npt.NDArray[Any]]]:
    """Return theta, which is read where it is used, and the statistics of a run at a checkpoint."""
    stats, tail, of_theta = {**at.totals, **at.stats}, at.theta, arviz_groups.theta_names(network)
    assert tail is not None
    identity = folder.identity()
    stats = {name: values for name, values in stats.items() if name not in RUN_TOTALS}
    if at.written:
        tree = folder.tree(0, at.written, lambda name: name != "lp" and name not in of_theta)
        with rebuilding(folder.path):
            written = arviz_groups.stats_of(network, likelihood, tree)
        for name, values in at.stats.items():
            if name not in written:
                raise ValueError(f"{folder.path} is damaged: it lacks the numbers {name}.")
            if written[name].shape != (len(values), at.written, *values.shape[2:]):
                raise ValueError(f"{folder.path} is damaged: it has {written[name].shape} numbers {name}.")
            in_arrays = written.pop(name)
            stats[name] = np.concatenate([in_arrays, values], axis=1) if values.shape[1] else in_arrays
        with rebuilding(folder.checkpoint_path):
            has_step_size = kernel_from_dict(at.settings["kernel"]).step_size_name is not None
        for name in at.stats:  # zarr gives NaN for a chunk without a file
            if (name != "step_size" or has_step_size) and not np.isfinite(stats[name]).all():
                raise ValueError(f"{folder.path} is damaged: parts of its numbers {name} are missing.")

    def read(first: int, end: int) -> npt.NDArray[Any]:
        folder.check_same(identity)
        found = tail[:, max(first - at.written, 0) : max(end - at.written, 0)]
        if first < at.written:
            tree = folder.tree(first, min(end, at.written), of_theta.__contains__)
            with rebuilding(folder.path):
                in_arrays = arviz_groups.theta_of(network, tree)
            found = np.concatenate([in_arrays, found], axis=1) if found.shape[1] else in_arrays
        if found.shape[1] != end - first or not np.isfinite(found).all():  # what zarr gives for a chunk without a file
            raise ValueError(f"{folder.path} is damaged: parts of its draws are missing.")
        return found

    shape = len(tail), at.draws, network.dim
    return (StoredTheta(shape, network.dtype, read, memory) if at.written else tail), stats
