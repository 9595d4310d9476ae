"""Scores of predictions for the rows of a table, which are processed in slices; this bounds the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.fit_data import DataRows, TargetUnits
from patrac_native.fit.network_scores import networks_of, unseen_scores, validation_scores
from patrac_native.likelihoods import CountMixture
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import COVERAGE, HELD_OUT, LEAVE_ONE_OUT, Calibration, calibrate

# Probabilities that underflow are scored as this one, so that differences of scores are finite.
_LEAST_PROBABILITY = float(np.finfo(np.float64).tiny)
# Probabilities of the central intervals of y whose coverage is reported.
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)


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


def evaluate(draws: Draws | DrawsMixture, units: TargetUnits, rows: DataRows, **scoring: Any) -> Evaluation:
    """Score draws on rows, as `evaluate_classes` or `evaluate_regression` does, which take the other arguments."""
    scoring["sample_weight"] = rows.sample_weight
    if draws.likelihood.targets == "class":
        return evaluate_classes(draws, rows.X, rows.y, **scoring)
    return evaluate_regression(draws, units, rows.X, rows.y, offset=rows.offset, **scoring)


def evaluate_regression(
    draws: Draws | DrawsMixture,
    preprocessor: TargetUnits,
    X: FloatArray,
    y: FloatArray,
    *,
    kind: str = HELD_OUT,
    nets: Sequence[Network] | None = None,
    sample_weight: FloatArray | None = None,
    offset: FloatArray | None = None,
    details: bool = True,
) -> Evaluation:
    """Score draws of numbers or counts on unseen rows, or by leave-one-out predictions of rows of their own data.

    Parameters
    ----------
    draws : Draws or DrawsMixture
        The members of a mixture must have equal weights.
    preprocessor : TargetUnits
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,), or (n, t) for t > 1 targets
        Standardised targets, or counts.
    kind : {"held out", "validation", "leave one out"}
        Which rows they are; default "held out". "leave one out": rows from which the draws were made, with the same row
        weights. Each is then predicted by draws that are reweighted as if it had not been among them
        (`diagnostics.leave_one_out`), and RMSE and NLPD of the network are those of validation rows
        (`validation_scores`).
    nets : sequence of Network, optional
        The trained networks that are scored beside the posterior, as an ensemble; by default that of each member.
    sample_weight : ndarray, shape (n,), optional
        Weights of the rows, positive; default ones.
    offset : ndarray, shape (n,), optional
        Logarithm of the exposure of each row of counts; default zeros.
    details : bool
        Whether to compute all scores, which takes quantiles of each row's distribution; default True.

    Returns
    -------
    Evaluation
        The scores are rmse and rmse_network (of posterior mean and trained network), crps and interval_width in the
        target's units; coverage of y by central intervals; nlpd and nlpd_network (mean over rows, of the standardised
        target, of the posterior and of the trained network) and nlpd_in_units (in the target's units); mean and
        standard deviation of the PIT values. The arrays are y, mean, lower and upper (95% interval), in the target's
        units, pit, nlpd, epistemic (share of f in the variance of y) and noise_sd (in the target's units) of each row;
        and weight, if rows have weights. Several networks are scored as an ensemble.
        Counts have PIT values that are uniform within the step of the distribution function at the count, and those at
        the ends of intervals count in part in the coverage of `calibration` (`CountMixture.inside`); the intervals
        of the score `coverage` are whole numbers, and cover more.
        Without details there are only the coverage of 90% intervals, both nlpd, and the arrays nlpd and weight.

    Raises
    ------
    TypeError
        If the likelihood is not one of numbers.
    """
    names = ("mean", "lower", "upper", "pit", "crps", "nlpd", "epistemic", "noise_sd", "within")
    parts: dict[str, list[FloatArray]] = {name: [] for name in names}
    inside: dict[float, list[FloatArray]] = {coverage: [] for coverage in COVERAGES}
    unreliable = 0
    n_targets = 1 if y.ndim == 1 else y.shape[1]
    observed_of = y.reshape(len(y), -1)
    ties = np.random.default_rng(0).uniform(size=observed_of.shape)
    # All targets of a block of rows at a time: their joint density is that of a row.
    of_targets = (draws.predictive_mixtures(X, target, offset=offset) for target in range(n_targets))
    for blocks in zip(*of_targets, strict=True):
        rows, mixtures = blocks[0][0], [mixture for _, mixture in blocks]
        observed = list(observed_of[rows].T)
        weights = None
        if kind == LEAVE_ONE_OUT:
            by_draw = _joint_density(mixtures, observed)
            counted = by_draw if sample_weight is None else by_draw * sample_weight[rows]
            weights, doubtful = _left_out_weights(draws, counted.reshape(draws.n_chains, draws.n_draws, -1))
            mixtures = [replace(mixture, weights=weights) for mixture in mixtures]
            unreliable += doubtful
        parts["nlpd"].append(-_log_density(mixtures, observed))
        pairs = list(zip(mixtures, observed, strict=True))
        parts["within"].append(_stacked([mixture.inside(seen, COVERAGE) for mixture, seen in pairs]))
        if not details:
            continue
        parts["pit"].append(
            _stacked([_pit(mixture, seen, tie) for (mixture, seen), tie in zip(pairs, ties[rows].T, strict=True)])
        )
        noisy = draws.predictive(X[rows], offset=None if offset is None else offset[rows], seed=rows.start)
        if weights is not None:
            noisy = _resampled(noisy, weights, seed=rows.start)
        parts["crps"].append(diagnostics.crps(noisy, y[rows], per_row=True))
        parts["mean"].append(_stacked([mixture.mean() for mixture in mixtures]))
        parts["epistemic"].append(_stacked([(mixture.sd_f() / mixture.sd()) ** 2 for mixture in mixtures]))
        parts["noise_sd"].append(_stacked([np.sqrt(mixture.noise_variance()) for mixture in mixtures]))
        for coverage in COVERAGES:
            ends = [mixture.interval(coverage) for mixture in mixtures]
            lower, upper = (_stacked([end[side] for end in ends]) for side in (0, 1))
            inside[coverage].append((lower <= y[rows]) & (y[rows] <= upper))
            if coverage == 0.95:
                parts["lower"].append(lower)
                parts["upper"].append(upper)
    whole = {name: np.concatenate(values) for name, values in parts.items() if values}
    started = nets or networks_of(draws)
    network_rmse: Any
    network_nlpd: FloatArray | float | None
    if kind == LEAVE_ONE_OUT:
        # The networks were trained on these rows.
        network_rmse, network_nlpd = validation_scores(started[0], draws.likelihood, n_targets)
    else:
        network_rmse, network_nlpd = unseen_scores(draws, X, y, started, sample_weight, offset)
    calibration = calibrate(
        kind,
        whole["nlpd"],
        network_nlpd,
        whole["within"],
        unreliable=unreliable,
        weights=sample_weight,
    )
    weight = {} if sample_weight is None else {"weight": sample_weight}
    known = {
        "nlpd": calibration.nlpd,
        "nlpd_network": None if network_nlpd is None else calibration.nlpd_network,
    }
    if not details:
        brief = {"kind": calibration.kind, "coverage": {f"{COVERAGE:g}": calibration.coverage}, **known}
        return Evaluation(brief, {"nlpd": whole["nlpd"], **weight}, calibration)
    scale = preprocessor.target_scale

    def mean(values: npt.NDArray[Any]) -> Any:
        return np.average(values, axis=0, weights=sample_weight)

    scores = {
        "kind": calibration.kind,
        "rmse": _plain(np.sqrt(mean((whole["mean"] - y) ** 2)) * scale),
        **({"unreliable_rows": unreliable} if kind == LEAVE_ONE_OUT else {}),
        "rmse_network": None if network_rmse is None else _plain(network_rmse * scale),
        "coverage": {
            f"{coverage:g}": float(np.mean(mean(np.concatenate(found)))) for coverage, found in inside.items()
        },
        "interval_width": _plain(mean(whole["upper"] - whole["lower"]) * scale),
        "crps": _plain(mean(whole["crps"]) * scale),
        **known,
        "nlpd_in_units": calibration.nlpd + float(np.log(scale).sum()),
        "pit_mean": float(whole["pit"].mean()),
        "pit_sd": float(whole["pit"].std()),
    }
    arrays = {name: preprocessor.inverse_target(whole[name]) for name in ("mean", "lower", "upper")}
    return Evaluation(
        scores,
        {
            "y": preprocessor.inverse_target(y),
            "pit": whole["pit"],
            "nlpd": whole["nlpd"],
            "epistemic": whole["epistemic"],
            "noise_sd": whole["noise_sd"] * scale,
            **arrays,
            **weight,
        },
        calibration,
    )


def _stacked(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the arrays (n,) of each target as (n,) for one target, else (n, t)."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def _plain(value: Any) -> Any:
    """Return a number as float, or those of several targets as a list."""
    return value.tolist() if np.ndim(value) else float(value)


def _pit(mixture: Any, observed: FloatArray, ties: FloatArray) -> FloatArray:
    """Return the PIT values of targets (n,), those of counts at the shares `ties` (n,) of their steps."""
    if isinstance(mixture, CountMixture):
        below, upto = mixture.step(observed)
        return below + ties * (upto - below)
    values: FloatArray = mixture.cdf(observed)
    return values


def _joint_density(mixtures: Sequence[Any], observed: Sequence[FloatArray]) -> FloatArray:
    """Return the log density of all targets of each row in each draw, shape (M, n)."""
    each = [mixture.log_density_by_draw(seen) for mixture, seen in zip(mixtures, observed, strict=True)]
    joint: FloatArray = sum(each[1:], start=each[0])
    return joint


def _log_density(mixtures: Sequence[Any], observed: Sequence[FloatArray]) -> FloatArray:
    """Return the log density of all targets of each row, shape (n,)."""
    from scipy.special import logsumexp

    if len(mixtures) == 1:
        only: FloatArray = mixtures[0].log_density(observed[0])
        return only
    terms, weights = _joint_density(mixtures, observed), mixtures[0].weights
    shares = np.full(len(terms), 1.0 / len(terms)) if weights is None else weights
    density: FloatArray = logsumexp(terms, axis=0, b=shares if shares.ndim == 2 else shares[:, None])
    return density


def _resampled(noisy: npt.NDArray[Any], weights: FloatArray, *, seed: int) -> FloatArray:
    """Return draws (chain, draw, n, 1) of targets, drawn again for each row with the weights (chain * draw, n)."""
    rng = np.random.default_rng(seed)
    flat = noisy.reshape(len(weights), -1)
    chosen = [rng.choice(flat[:, row], len(flat), p=weights[:, row]) for row in range(flat.shape[1])]
    return np.stack(chosen, axis=1).reshape(noisy.shape)


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


def evaluate_classes(
    draws: Draws | DrawsMixture,
    X: FloatArray,
    y: npt.NDArray[Any],
    *,
    kind: str = HELD_OUT,
    nets: Sequence[Network] | None = None,
    sample_weight: FloatArray | None = None,
    details: bool = True,
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
    nets, sample_weight
        As for `evaluate_regression`. Scores of which `details` asks for do not depend on the weights.
    details : bool
        Whether to compute more scores than nlpd and accuracy; default True.

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
        if kind == LEAVE_ONE_OUT:
            by_draw = draws.likelihood.log_likelihood_rows(f, y[rows])
            weights, doubtful = _left_out_weights(
                draws, by_draw if sample_weight is None else by_draw * sample_weight[rows]
            )
            probability.append(np.einsum("in,inc->nc", weights, p.reshape(-1, *p.shape[2:])))
            unreliable += doubtful
        else:
            probability.append(p.mean(axis=(0, 1)))
        if details:
            nll += diagnostics.class_nll(f, y[rows], logits=True) * len(y[rows])
            split.append(np.stack(diagnostics.entropy_decomposition(p), axis=1))
    mean = np.concatenate(probability)
    network = None
    if kind != LEAVE_ONE_OUT:
        each_network = [draws.likelihood.probabilities(net.predict(X)) for net in nets or networks_of(draws)]
        network = np.mean(each_network, axis=0)
    each = np.arange(len(y))
    nlpd = -np.log(np.maximum(mean[each, y], _LEAST_PROBABILITY))
    calibration = calibrate(
        kind,
        nlpd,
        None if network is None else -np.log(np.maximum(network[each, y], _LEAST_PROBABILITY)),
        unreliable=unreliable,
        weights=sample_weight,
    )
    weight = {} if sample_weight is None else {"weight": sample_weight}
    if not details:
        right = float(np.average(mean.argmax(axis=1) == y, weights=sample_weight))
        brief = {"kind": calibration.kind, "accuracy": right, "nlpd": calibration.nlpd}
        return Evaluation(brief, {"nlpd": nlpd, **weight}, calibration)
    entropy = np.concatenate(split)
    wrong = mean.argmax(axis=1) != y
    names = diagnostics.EntropyDecomposition._fields
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
    arrays = {"y": y, "probability": mean, "entropy": entropy, "nlpd": nlpd, **weight}
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
