"""Predictions for the rows of a table, and their scores; rows are processed in slices, which bounds the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.calibration import COVERAGE, Calibration, calibrate
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.network.network import Network
from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.validation.checks import FloatArray

# Kinds of rows that are scored.
HELD_OUT, VALIDATION, LEAVE_ONE_OUT = "held out", "validation", "leave one out"
# Probabilities that underflow are scored as this one, so that differences of scores are finite.
_LEAST_PROBABILITY = float(np.finfo(np.float64).tiny)
# Probabilities of the central intervals of y whose coverage is reported.
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)


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
    draws: Draws | DrawsMixture, preprocessor: Preprocessor, X: FloatArray, coverage: float
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
    scale = preprocessor.target_scale
    for rows, mixture in draws.predictive_mixtures(X):
        lower, upper = mixture.interval(coverage)
        yield RegressionPredictions(
            rows,
            preprocessor.inverse_target(mixture.mean()),
            mixture.sd() * scale,
            mixture.sd_f() * scale,
            preprocessor.inverse_target(lower),
            preprocessor.inverse_target(upper),
        )


def predict_classes(draws: Draws | DrawsMixture, X: FloatArray) -> Iterator[ClassPredictions]:
    """Yield predictions for slices of the rows of X (n, d)."""
    for rows, f in draws.predict_blocks(X):
        p = draws.likelihood.probabilities(f)
        yield ClassPredictions(rows, p.mean(axis=(0, 1)), diagnostics.entropy_decomposition(p))


@dataclass(frozen=True)
class Evaluation:
    """Scores of held-out rows, and the arrays that the report plots.

    Attributes
    ----------
    scores : dict of str to float, dict or None
        Scores by name; see `evaluate_regression` and `evaluate_classes`.
    arrays : dict of str to ndarray
        Arrays by name.
    calibration : Calibration
        The scores on which the verdict depends.
    """

    scores: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    calibration: Calibration


def evaluate_regression(
    draws: Draws | DrawsMixture,
    preprocessor: Preprocessor,
    X: FloatArray,
    y: FloatArray,
    *,
    kind: str = HELD_OUT,
    nets: Sequence[Network] | None = None,
) -> Evaluation:
    """Score regression draws on unseen rows, or by leave-one-out predictions of rows of their own data.

    Parameters
    ----------
    draws : Draws or DrawsMixture
        The members of a mixture must have equal weights.
    preprocessor : Preprocessor
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
        Standardised targets.
    kind : {"held out", "validation", "leave one out"}
        Which rows they are; default "held out". "leave one out": rows from which the draws were made, without row
        weights. Each is then predicted by draws that are reweighted as if it had not been among them
        (`diagnostics.leave_one_out`), and RMSE and NLPD of the network are those of its residuals on validation rows,
        taken as normal; None if there were none.
    nets : sequence of Network, optional
        The trained networks that are scored beside the posterior, as an ensemble; by default that of each member.

    Returns
    -------
    Evaluation
        The scores are rmse and rmse_network (of posterior mean and trained network), crps and interval_width in the
        target's units; coverage of y by central intervals; nlpd and nlpd_network (mean over rows, of the standardised
        target, of the posterior and of the trained network) and nlpd_in_units (in the target's units); mean and
        standard deviation of the PIT values. The arrays are y, mean, lower and upper (95% interval), in the target's
        units, pit, and nlpd of each row. Several networks are scored as an ensemble.

    Raises
    ------
    TypeError
        If the likelihood is not one of real numbers.
    """
    parts: dict[str, list[FloatArray]] = {name: [] for name in ("mean", "lower", "upper", "pit", "crps", "nlpd")}
    inside = {coverage: 0 for coverage in COVERAGES}
    unreliable = 0
    for rows, mixture in draws.predictive_mixtures(X):
        observed = y[rows]
        noisy = draws.predictive(X[rows], seed=rows.start)
        if kind == LEAVE_ONE_OUT:
            by_draw = mixture.log_density_by_draw(observed)
            weights, doubtful = _left_out_weights(draws, by_draw.reshape(draws.n_chains, draws.n_draws, -1))
            mixture = replace(mixture, weights=weights)
            noisy = _resampled(noisy, weights, seed=rows.start)
            unreliable += doubtful
        parts["crps"].append(diagnostics.crps(noisy, observed, per_row=True))
        parts["nlpd"].append(-mixture.log_density(observed))
        parts["mean"].append(mixture.mean())
        parts["pit"].append(mixture.cdf(observed))
        for coverage in COVERAGES:
            lower, upper = mixture.interval(coverage)
            inside[coverage] += int(((lower <= observed) & (observed <= upper)).sum())
            if coverage == 0.95:
                parts["lower"].append(lower)
                parts["upper"].append(upper)
    whole = {name: np.concatenate(values) for name, values in parts.items()}
    scale = preprocessor.target_scale
    tail = 0.5 * (1 - COVERAGE)
    network_rmse, network_nlpd = _network_scores(draws, X, y, kind, nets or _networks_of(draws))
    calibration = calibrate(
        kind,
        whole["nlpd"],
        network_nlpd,
        (tail <= whole["pit"]) & (whole["pit"] <= 1 - tail),
        unreliable=unreliable,
    )
    scores = {
        "kind": calibration.kind,
        "rmse": float(np.sqrt(((whole["mean"] - y) ** 2).mean())) * scale,
        **({"unreliable_rows": unreliable} if kind == LEAVE_ONE_OUT else {}),
        "rmse_network": None if network_rmse is None else network_rmse * scale,
        "coverage": {f"{coverage:g}": count / len(y) for coverage, count in inside.items()},
        "interval_width": float((whole["upper"] - whole["lower"]).mean()) * scale,
        "crps": float(whole["crps"].mean()) * scale,
        "nlpd": calibration.nlpd,
        "nlpd_network": None if network_nlpd is None else calibration.nlpd_network,
        "nlpd_in_units": calibration.nlpd + float(np.log(scale)),
        "pit_mean": float(whole["pit"].mean()),
        "pit_sd": float(whole["pit"].std()),
    }
    arrays = {name: preprocessor.inverse_target(whole[name]) for name in ("mean", "lower", "upper")}
    return Evaluation(
        scores, {"y": preprocessor.inverse_target(y), "pit": whole["pit"], "nlpd": whole["nlpd"], **arrays}, calibration
    )


def _resampled(noisy: npt.NDArray[Any], weights: FloatArray, *, seed: int) -> FloatArray:
    """Return draws (chain, draw, n, 1) of targets, drawn again for each row with the weights (chain * draw, n)."""
    rng = np.random.default_rng(seed)
    flat = noisy.reshape(len(weights), -1)
    chosen = [rng.choice(flat[:, row], len(flat), p=weights[:, row]) for row in range(flat.shape[1])]
    return np.stack(chosen, axis=1).reshape(noisy.shape)


def _networks_of(draws: Draws | DrawsMixture) -> list[Network]:
    return [member.network.net for member in draws.members]


def _left_out_weights(draws: Draws | DrawsMixture, log_likelihood: FloatArray) -> tuple[FloatArray, int]:
    """Return the weights (chain * draw, n) of draws for rows that are left out, and the number of unreliable rows.

    The draws of each posterior are reweighted among themselves, given the log-likelihoods (chain, draw, n) of the rows.
    """
    weights, unreliable, first = [], np.zeros(log_likelihood.shape[2], dtype=bool), 0
    for member in draws.members:
        chains = slice(first, first + member.n_chains)
        left_out = diagnostics.leave_one_out(log_likelihood[chains])
        weights.append(left_out.weights / len(draws.members))
        unreliable |= left_out.is_unreliable
        first = chains.stop
    return np.concatenate(weights), int(unreliable.sum())


def _network_scores(
    draws: Draws | DrawsMixture, X: FloatArray, y: FloatArray, kind: str, nets: Sequence[Network]
) -> tuple[float | None, FloatArray | float | None]:
    """Return RMSE and the NLPD of each row, or its mean over validation rows, of the trained networks alone."""
    if kind == LEAVE_ONE_OUT:
        # The networks were trained on these rows, so only their residuals on validation rows say how well they predict.
        known = None if nets[0].history is None else nets[0].history.validation_mse
        if known is None:
            return None, None
        return math.sqrt(float(known[0])), 0.5 * (math.log(2 * math.pi * float(known[0])) + 1.0)
    predicted = np.mean([draws.likelihood.predicted(net.predict(X))[:, 0] for net in nets], axis=0)
    return float(np.sqrt(((predicted - y) ** 2).mean())), draws.network_nlpd(X, y[:, None], nets=nets)


def evaluate_classes(
    draws: Draws | DrawsMixture,
    X: FloatArray,
    y: npt.NDArray[Any],
    *,
    kind: str = HELD_OUT,
    nets: Sequence[Network] | None = None,
) -> Evaluation:
    """Score class draws on unseen rows, or by leave-one-out predictions of rows of their own data.

    Parameters
    ----------
    draws : Draws or DrawsMixture
        The members of a mixture must have equal weights.
    X : ndarray, shape (n, d)
    y : ndarray of int, shape (n,)
    kind : {"held out", "validation", "leave one out"}
        As for `evaluate_regression`; by leave-one-out predictions there are no scores of the network.
    nets : sequence of Network, optional
        As for `evaluate_regression`.

    Returns
    -------
    Evaluation
        The scores are nll (mean over draws, as in the paper's Table 3) and nlpd (of the mean probabilities), both in
        nats a row; brier, ece and accuracy; "network", the scores of the trained network, or of the mean probabilities
        of several; "entropy", with the means
        over rows of total, aleatoric and epistemic entropy; and "entropy_of_wrong_rows", the means over rows that were
        predicted wrongly, None if there are none. The arrays are y, probability (n, m), entropy (n, 3), and nlpd (n,).
    """
    probability: list[FloatArray] = []
    split: list[FloatArray] = []
    nll, unreliable = 0.0, 0
    for rows, f in draws.predict_blocks(X):
        p = draws.likelihood.probabilities(f)
        nll += diagnostics.class_nll(f, y[rows], logits=True) * len(y[rows])
        if kind == LEAVE_ONE_OUT:
            weights, doubtful = _left_out_weights(draws, draws.likelihood.log_likelihood_rows(f, y[rows]))
            probability.append(np.einsum("in,inc->nc", weights, p.reshape(-1, *p.shape[2:])))
            unreliable += doubtful
        else:
            probability.append(p.mean(axis=(0, 1)))
        split.append(np.stack(diagnostics.entropy_decomposition(p), axis=1))
    mean, entropy = np.concatenate(probability), np.concatenate(split)
    wrong = mean.argmax(axis=1) != y
    network = None
    if kind != LEAVE_ONE_OUT:
        each_network = [draws.likelihood.probabilities(net.predict(X)) for net in nets or _networks_of(draws)]
        network = np.mean(each_network, axis=0)
    names = diagnostics.EntropyDecomposition._fields
    each = np.arange(len(y))
    nlpd = -np.log(np.maximum(mean[each, y], _LEAST_PROBABILITY))
    calibration = calibrate(
        kind,
        nlpd,
        None if network is None else -np.log(np.maximum(network[each, y], _LEAST_PROBABILITY)),
        unreliable=unreliable,
    )
    scores = {
        "kind": calibration.kind,
        "nll": nll / len(y),
        **_class_scores(mean, y),
        **({"unreliable_rows": unreliable} if kind == LEAVE_ONE_OUT else {}),
        "network": None if network is None else _class_scores(network, y),
        "entropy": dict(zip(names, entropy.mean(axis=0).tolist(), strict=True)),
        "entropy_of_wrong_rows": dict(zip(names, entropy[wrong].mean(axis=0).tolist(), strict=True))
        if wrong.any()
        else None,
    }
    arrays = {"y": y, "probability": mean, "entropy": entropy, "nlpd": nlpd}
    return Evaluation(scores, arrays, calibration)


def _class_scores(probability: FloatArray, y: npt.NDArray[Any]) -> dict[str, float]:
    """Return the scores of one forecast of probabilities (n, m)."""
    p = probability[None, None]
    return {
        "nlpd": diagnostics.class_nlpd(p, y),
        "brier": diagnostics.brier(p, y),
        "ece": diagnostics.ece(p, y),
        "accuracy": diagnostics.accuracy(p, y),
    }
