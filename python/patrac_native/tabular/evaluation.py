"""Predictions for the rows of a table, and their scores; rows are processed in slices, which bounds the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.draws import Draws
from patrac_native.model.likelihoods import Noise, RealLikelihood
from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.validation.checks import FloatArray

# Probabilities of the central intervals of y whose coverage is reported.
COVERAGES = (0.5, 0.8, 0.95, 0.99)
# Maximum number of Newton steps for a quantile of the mixture. Each at least halves the bracket; about five suffice.
_QUANTILE_STEPS = 60


@dataclass(frozen=True)
class RegressionPredictions:
    """Predictions for a slice of rows, in the target's own units, each of shape (rows,).

    `mean` and `sd` are those of y with the noise included, `sd_f` is the standard deviation of the function alone,
    `lower` and `upper` are the ends of the central interval of y.
    """

    rows: slice
    mean: FloatArray
    sd: FloatArray
    sd_f: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class ClassPredictions:
    """Predictions for a slice of rows: class probabilities (rows, m) and the three entropies of each row (rows,)."""

    rows: slice
    probability: FloatArray
    entropy: diagnostics.EntropyDecomposition


def predict_regression(
    draws: Draws, preprocessor: Preprocessor, X: FloatArray, coverage: float
) -> Iterator[RegressionPredictions]:
    """Yield predictions for slices of the rows of X (n, d).

    The ends of the interval are quantiles of the posterior predictive distribution given the M draws, the mixture
    1/M sum_i p(y | f_i(x)). They are computed to rounding error and no noise is drawn, so the interval of a row does
    not depend on other rows.

    Raises
    ------
    TypeError
        If the likelihood is not one of real numbers.
    """
    noise = real_likelihood(draws).noise()
    scale = preprocessor.target_scale
    tail = (1.0 - coverage) / 2.0
    for rows, f in draws.predict_blocks(X):
        flat = f.reshape(-1, f.shape[2]).astype(np.float64)
        sd_f = flat.std(axis=0)
        yield RegressionPredictions(
            rows,
            preprocessor.inverse_target(flat.mean(axis=0)),
            np.sqrt(sd_f**2 + noise.variance) * scale,
            sd_f * scale,
            preprocessor.inverse_target(mixture_quantile(flat, noise, tail)),
            preprocessor.inverse_target(mixture_quantile(flat, noise, 1.0 - tail)),
        )


def predict_classes(draws: Draws, X: FloatArray) -> Iterator[ClassPredictions]:
    """Yield predictions for slices of the rows of X (n, d)."""
    for rows, f in draws.predict_blocks(X):
        p = draws.likelihood.probabilities(f)
        yield ClassPredictions(rows, p.mean(axis=(0, 1)), diagnostics.entropy_decomposition(p))


def mixture_quantile(f: FloatArray, noise: Noise, probability: float) -> FloatArray:
    """Return a quantile of the mixture 1/M sum_i p(y | f_i) for each column of f (M, n), by bracketed Newton steps."""
    sd = noise.scale
    z = noise.quantile(probability)
    # The quantile of component i is f_i + z sd; that of the mixture lies between the smallest and the largest of them.
    low, high = f.min(axis=0) + z * sd, f.max(axis=0) + z * sd
    # The median of noise with infinite variance would start at 0 * inf.
    variance = noise.variance if math.isfinite(noise.variance) else sd**2
    x: FloatArray = np.clip(f.mean(axis=0) + z * np.sqrt(f.var(axis=0) + variance), low, high)
    for _ in range(_QUANTILE_STEPS):
        u = (x - f) / sd
        excess = noise.cdf(u).mean(axis=0) - probability
        density = noise.density_shape(u).mean(axis=0) / (sd * noise.mass)
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - excess / density
        new = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        moved = np.abs(new - x)
        x = new
        if (moved <= 1e-10 * sd).all():
            break
    return x


@dataclass(frozen=True)
class Evaluation:
    """Scores of held-out rows, and the arrays that the report plots.

    Attributes
    ----------
    scores : dict of str to float, dict or None
        Scores by name; see `evaluate_regression` and `evaluate_classes`.
    arrays : dict of str to ndarray
        Arrays by name.
    """

    scores: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def evaluate_regression(draws: Draws, preprocessor: Preprocessor, X: FloatArray, y: FloatArray) -> Evaluation:
    """Score regression draws on held-out rows.

    Parameters
    ----------
    draws : Draws
    preprocessor : Preprocessor
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
        Standardised targets.

    Returns
    -------
    Evaluation
        The scores are rmse and rmse_network (of posterior mean and trained network), crps and interval_width in the
        target's units; coverage of y by central intervals; nll and nll_network (as in the paper's Table 1, a sum over
        rows without the normalising constant); nlpd (mean over rows, of the standardised target) and nlpd_in_units
        (in the target's units); mean and standard deviation of the PIT values. The arrays are y, mean, lower and upper
        (95% interval), in the target's units, and pit.

    Raises
    ------
    TypeError
        If the likelihood is not one of real numbers.
    """
    likelihood = real_likelihood(draws)
    noise = likelihood.noise()
    parts: dict[str, list[FloatArray]] = {name: [] for name in ("mean", "lower", "upper", "pit", "crps", "nlpd")}
    inside = {coverage: 0 for coverage in COVERAGES}
    nll = 0.0
    for rows, f in draws.predict_blocks(X):
        flat = f.reshape(-1, f.shape[2]).astype(np.float64)
        observed = y[rows]
        nll += likelihood.nll(f, observed)
        noisy = np.asarray(likelihood.sample(f, np.random.default_rng(rows.start)), dtype=np.float64)
        parts["crps"].append(diagnostics.crps(noisy, observed, per_row=True))
        parts["nlpd"].append(likelihood.nlpd_rows(f, observed))
        parts["mean"].append(flat.mean(axis=0))
        parts["pit"].append(noise.cdf((observed - flat) / noise.scale).mean(axis=0))
        for coverage in COVERAGES:
            tail = (1.0 - coverage) / 2.0
            lower = mixture_quantile(flat, noise, tail)
            upper = mixture_quantile(flat, noise, 1.0 - tail)
            inside[coverage] += int(((lower <= observed) & (observed <= upper)).sum())
            if coverage == 0.95:
                parts["lower"].append(lower)
                parts["upper"].append(upper)
    whole = {name: np.concatenate(values) for name, values in parts.items()}
    network = draws.network.net.predict(X)[:, 0]
    scale = preprocessor.target_scale
    nlpd = float(whole["nlpd"].mean())
    scores = {
        "rmse": float(np.sqrt(((whole["mean"] - y) ** 2).mean())) * scale,
        "rmse_network": float(np.sqrt(((network - y) ** 2).mean())) * scale,
        "coverage": {f"{coverage:g}": count / len(y) for coverage, count in inside.items()},
        "interval_width": float((whole["upper"] - whole["lower"]).mean()) * scale,
        "crps": float(whole["crps"].mean()) * scale,
        "nll": nll,
        "nll_network": likelihood.nll(network[None, None, :, None], y),
        "nlpd": nlpd,
        "nlpd_in_units": nlpd + float(np.log(scale)),
        "pit_mean": float(whole["pit"].mean()),
        "pit_sd": float(whole["pit"].std()),
    }
    arrays = {name: preprocessor.inverse_target(whole[name]) for name in ("mean", "lower", "upper")}
    return Evaluation(scores, {"y": preprocessor.inverse_target(y), "pit": whole["pit"], **arrays})


def evaluate_classes(draws: Draws, X: FloatArray, y: npt.NDArray[Any]) -> Evaluation:
    """Score class draws on held-out rows.

    Parameters
    ----------
    draws : Draws
    X : ndarray, shape (n, d)
    y : ndarray of int, shape (n,)

    Returns
    -------
    Evaluation
        The scores are nll (mean over draws, as in the paper's Table 3) and nlpd (of the mean probabilities), both in
        nats a row; brier, ece and accuracy; "network", the scores of the trained network; "entropy", with the means
        over rows of total, aleatoric and epistemic entropy; and "entropy_of_wrong_rows", the means over rows that were
        predicted wrongly, None if there are none. The arrays are y, probability (n, m), and entropy (n, 3).
    """
    probability: list[FloatArray] = []
    split: list[FloatArray] = []
    nll = 0.0
    for rows, f in draws.predict_blocks(X):
        p = draws.likelihood.probabilities(f)
        nll += diagnostics.class_nll(f, y[rows], logits=True) * len(y[rows])
        probability.append(p.mean(axis=(0, 1)))
        split.append(np.stack(diagnostics.entropy_decomposition(p), axis=1))
    mean, entropy = np.concatenate(probability), np.concatenate(split)
    wrong = mean.argmax(axis=1) != y
    network = draws.likelihood.probabilities(draws.network.net.predict(X))
    names = diagnostics.EntropyDecomposition._fields
    scores = {
        "nll": nll / len(y),
        **_class_scores(mean, y),
        "network": _class_scores(network, y),
        "entropy": dict(zip(names, entropy.mean(axis=0).tolist(), strict=True)),
        "entropy_of_wrong_rows": dict(zip(names, entropy[wrong].mean(axis=0).tolist(), strict=True))
        if wrong.any()
        else None,
    }
    return Evaluation(scores, {"y": y, "probability": mean, "entropy": entropy})


def _class_scores(probability: FloatArray, y: npt.NDArray[Any]) -> dict[str, float]:
    """Return the scores of one forecast of probabilities (n, m)."""
    p = probability[None, None]
    return {
        "nlpd": diagnostics.class_nlpd(p, y),
        "brier": diagnostics.brier(p, y),
        "ece": diagnostics.ece(p, y),
        "accuracy": diagnostics.accuracy(p, y),
    }


def real_likelihood(draws: Draws) -> RealLikelihood:
    """Return the likelihood of draws; raise TypeError if its targets are not real numbers."""
    if not isinstance(draws.likelihood, RealLikelihood):
        raise TypeError(f"the likelihood must be one of real numbers, such as Gaussian; got {draws.likelihood!r}.")
    return draws.likelihood
