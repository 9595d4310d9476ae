"""The numbers of a run that determine its verdict, among them the noise that frozen nodes have fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture
from patrac_native.kernels import Kernel, kernel_from_dict
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.sampled_density import FitQuality
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import Calibration
from patrac_native.verdict.rerun_error import RerunError

# Of the residuals on unseen rows; a sampled noise variance below this share of them is too small.
LOW_NOISE = 0.8


@dataclass(frozen=True)
class FittedNoise:
    """The noise variance of a partial posterior whose frozen nodes follow the noise of its rows."""

    variance: float  # its posterior mean
    unseen: float  # mean squared residual of the trained network on rows that it was not trained on
    output: int | None = None  # the worst of several

    def __str__(self) -> str:
        where = "" if self.output is None else f" of output {self.output}"
        return (
            f"the posterior mean of the noise variance{where} is {self.variance:.3g}, "
            f"{self.variance / self.unseen:.2f} of the trained network's mean squared residual on rows that it was not "
            f"trained on, {self.unseen:.3g}"
        )


@dataclass(frozen=True)
class StepRecord:
    """What the chains of this package record about their steps."""

    kernel: Kernel
    thin: int
    acceptance_rate: FloatArray  # (chain,), means over draws; so is step_size
    step_size: FloatArray
    longest_still: npt.NDArray[np.int64]  # (chain,), largest number of steps on end that were all rejected
    nonfinite: FloatArray  # (chain,), share of the proposals after the warm-up that were rejected as not finite
    init: str  # "auto", "map", "prior" or "given"
    warmup_steps: int
    warmup_stable: bool | None  # None if the length of the warm-up was fixed
    length: int  # steps of a chain after the warm-up
    draws_of_chain: int  # in the run
    superchains: int | None = None  # that the warm-up compared
    unit: str = "chain"  # or "superchain", if its chains count as one

    @classmethod
    def of_run(
        cls, stats: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, Any], n_draws: int, superchains: int | None
    ) -> StepRecord:
        """Return what a run recorded in the settings of its draws and, for chains or superchains, in the statistics."""
        rate, thin = stats["acceptance_rate"], int(settings["thin"])
        return cls(
            kernel=kernel_from_dict(settings["kernel"]),
            thin=thin,
            acceptance_rate=rate.mean(axis=1),
            step_size=stats["step_size"].mean(axis=1),
            longest_still=thin * longest_run(rate == 0),
            nonfinite=stats["nonfinite"] / (rate.shape[1] * thin),
            init=settings["init"],
            warmup_steps=int(settings["warmup_steps"]),
            warmup_stable=settings["warmup_stable"],
            length=rate.shape[1] * thin,
            draws_of_chain=n_draws,
            superchains=superchains,
            unit="chain" if rate.shape[1] == n_draws else "superchain",
        )


@dataclass(frozen=True)
class Evidence:
    """The numbers of a run from which `judge` derives its verdict."""

    quantity: str  # what is summarised, such as "f"
    architecture: type[Architecture] | None  # None, as likelihood, for a density without a network
    n_chains: int
    n_draws: int
    max_rhat: float  # the worst values over the summarised inputs, NaN if undefined
    min_ess_bulk: float
    max_mcse: float
    rhat_log_likelihood: float
    # Of each chain, or superchain, that `steps` has:
    log_likelihood: FloatArray  # (chain,), means over draws
    spread: FloatArray  # (chain,), variance of the quantity over the chain's own draws, averaged over its entries
    steps: StepRecord | None  # None if another sampler made the draws: findings about steps are then left out
    sampler: str
    fit: FitQuality | None
    role_of_network: str | None  # what the posterior takes from the trained network beside starting points, in words
    noise: FittedNoise | None = None
    calibration: Calibration | None = None
    likelihood: Likelihood | None = None
    log_likelihood_sd: float = math.nan  # along a chain
    # Of halves of chains, those of one start or network as a superchain; NaN if undefined.
    rhat_nested: float = math.nan
    rhat_within: float = math.nan
    rerun: RerunError | None = None  # None for a density without targets
    fixes_parameters: bool = False  # of the trained network, which leaving rows out of the posterior does not change

    @property
    def is_independent(self) -> bool:
        """Whether the draws are known to be independent."""
        return self.steps is not None and self.steps.kernel.is_independent


def longest_run(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the length of the longest sequence of consecutive True entries along the last axis."""
    draws = np.arange(flags.shape[-1])
    # The position of the last False up to each entry, or -1 if there is none; the sequence begins just after it.
    last_false = np.maximum.accumulate(np.where(flags, -1, draws), axis=-1)
    runs: npt.NDArray[np.int64] = (draws - last_false).max(axis=-1, initial=0)
    return runs


def fitted_noise(post: Posterior, variance: npt.NDArray[Any] | None) -> FittedNoise | None:
    """Return the noise that frozen nodes have fitted, if they have, by draws of variances (chain, draw, ...)."""
    # Frozen nodes may follow the noise of rows on which the network was trained, and the variance is then too low;
    # that of `Full`, which has no frozen nodes, follows from the posterior alone.
    history = post.network.net.history
    unseen = None if history is None else history.validation_mse
    # Under other noise the draws are the squares of another scale.
    if variance is None or variance.size == 0 or unseen is None or not post.likelihood.is_conjugate:
        return None
    if not post.network.fixes_parameters:
        return None
    means = variance.mean(axis=(0, 1))
    expected = np.atleast_1d(unseen if np.ndim(means) else np.mean(unseen))
    means = np.atleast_1d(means)
    worst = int(np.argmin(means / expected))
    if not means[worst] < LOW_NOISE * expected[worst]:
        return None
    return FittedNoise(float(means[worst]), float(expected[worst]), worst if len(means) > 1 else None)
