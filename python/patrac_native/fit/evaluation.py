"""Scores of predictions of rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native import diagnostics
from patrac_native.fit.rows import FloatArray, Rows, TargetScaling
from patrac_native.report import RerunError

AnyDraws = pn.Draws | pn.DrawsMixture
ScoresAndArrays = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]
# Kinds of rows.
HELD_OUT, VALIDATION, LEAVE_ONE_OUT = "held out", "validation", "leave one out"
# Why scores of left-out rows are too good, and the share of unreliable weights above which they are.
_TOO_GOOD = "too good: {}; for scores of unseen {}, keep some out of the fit (held_out, test_fraction)"
_OF_FIXED = (
    "fixed parameters of the network were trained on these rows, and leaving one out of the posterior does not change "
    "them"
)
_OF_GROUPS = "single rows are left out, while others of their group stay"
_UNRELIABLE_SHARE = 0.05
_UNRELIABLE = (
    "the weights by which rows are left out are unreliable for {} of {} rows, which the posterior follows closely"
)
# Pairs of at most so many rows tell the concordance.
_CONCORDANCE_ROWS = 2_000
# Probabilities of the central intervals of y whose coverage is reported.
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Evaluation:
    """Scores of predictions of rows.

    Attributes
    ----------
    scores : dict
        Scores by name. "kind" says of which rows: "held out", "validation" (rows that a shorter run left out) or
        "leave one out" (training rows, each predicted by draws that are reweighted as if it had not been among them),
        and "too_good", why such scores are: the architecture fixes parameters, which were trained on these rows, others
        of their groups stay, or more than a twentieth of the rows have unreliable weights.

        Of numbers: rmse and rmse_network (of posterior mean and trained network), crps and interval_width in the
        target's units; coverage of y by central intervals; nlpd and nlpd_network (mean over rows, of the standardised
        target, of the posterior and of the trained network) and nlpd_in_units (in the target's units); pit_mean and
        pit_sd; unseen_values, the number of rows whose target is none of the values of `DiscreteValues`, if there are
        any. Where rows were left out one at a time, unreliable_rows is the number of those with unreliable weights.

        Where targets are censored, nlpd has the log probability of their bounds, and concordance, Harrell's index,
        takes the place of rmse: the share of pairs that are predicted in their order, where it is known. Each counts
        in coverage as the predicted probability of being inside given its bounds, as in D-calibration (Haider et
        al. 2020, Effective ways to build and evaluate individual survival distributions). Its expectation is right if
        the predictions are, but many censored targets draw it towards that. So censored is the number of rows that
        have any, and coverage_decided the shares of all targets that are inside 90% intervals, and that are not
        outside, whatever the censored ones were.

        Of classes: nll (mean over draws) and nlpd (of the mean probabilities), in nats a row; brier, ece and accuracy;
        "network", the scores of the trained network; "entropy" and "entropy_of_wrong_rows" (None if there are none),
        the means over rows of total, aleatoric and epistemic entropy.
    arrays : dict of str to ndarray
        Of numbers: y, mean, lower and upper (of the 95% interval) in the target's units, pit, nlpd, nlpd_in_units,
        epistemic (share of f in the variance of y) and noise_sd of each row; of classes: y, probability (n, m), entropy
        (n, 3) and nlpd. And weight, if rows have weights.
    calibration : Calibration
        The scores on which the verdict depends.
    """

    scores: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    calibration: Any


def of_fits(error: RerunError) -> RerunError:
    """Return the rerun error of a fit's draws: starts that a fit gives are networks of their own."""
    return replace(error, unit="networks") if error.unit == "starts" else error


def members_of(draws: AnyDraws) -> tuple[pn.Draws, ...]:
    """Return the draws of each network's posterior."""
    return tuple(draws.members) if isinstance(draws, pn.DrawsMixture) else (draws,)


def evaluate(
    draws: AnyDraws,
    units: TargetScaling,
    rows: Rows,
    *,
    kind: str = HELD_OUT,
    nets: Sequence[pn.Network] | None = None,
    details: bool = True,
) -> Evaluation:
    """Score draws on unseen rows, or by leave-one-out predictions of rows of their own data.

    The trained networks `nets`, by default that of each member, are scored beside the posterior, as an ensemble; if
    rows are left out one at a time, by what is known of their validation rows. Without `details` there are only, beside
    what says which rows they are of, the scores nlpd, nlpd_network and coverage of 90% intervals; of classes nlpd and
    accuracy. The members of a mixture must have equal weights.
    """
    nets = nets or [member.network.net for member in members_of(draws)]
    is_class, y, weights = draws.likelihood.targets == "class", rows.y, rows.sample_weight
    distribution = draws.distribution(rows.X, offset=rows.offset)
    network, rmse, nlpd = distribution.network(nets), None, None
    if kind == LEAVE_ONE_OUT:
        # The networks were trained on these rows.
        distribution = distribution.left_out(y, row_weights=weights)
        if not is_class:
            rmse, nlpd = _validation_scores(nets[0], draws)
            rmse = None if rmse is None or units.log else rmse * units.scale
    elif not is_class:
        errors = (units.mean_of(network) - units.inverse(typical(draws.likelihood, y))) ** 2
        rmse = np.sqrt([np.average(column, weights=weights) for column in errors.T])
    calibration = distribution.calibration(y, kind=kind, nets=nets, network_nlpd=nlpd, sample_weight=weights)
    scores: dict[str, Any] = {"kind": calibration.kind}
    too_good = ""
    if kind == LEAVE_ONE_OUT and any(member.network.fixes_parameters for member in members_of(draws)):
        too_good = _OF_FIXED
    elif kind == LEAVE_ONE_OUT and rows.groups is not None:
        too_good = _OF_GROUPS
    elif calibration.unreliable > _UNRELIABLE_SHARE * calibration.rows:
        too_good = _UNRELIABLE.format(calibration.unreliable, calibration.rows)
    if too_good:
        calibration = replace(calibration, too_good=too_good)
        scores["too_good"] = _TOO_GOOD.format(too_good, "rows" if rows.groups is None else "groups")
    scores["nlpd"] = calibration.nlpd
    if not is_class:
        scores["nlpd_network"] = None if np.isnan(calibration.nlpd_network) else calibration.nlpd_network
    if not is_class and (censored := int((~_is_known(draws.likelihood, y)).any(axis=1).sum())):
        scores["censored"] = censored
    if not is_class and (unseen := int((~draws.likelihood.is_possible(distribution.check_targets(y))).sum())):
        scores["unseen_values"] = unseen
    if details and kind == LEAVE_ONE_OUT:
        scores["unreliable_rows"] = calibration.unreliable
    arrays = {} if weights is None else {"weight": weights}
    if is_class:
        more = _class_details if details else _class_accuracy
        of_network = None if kind == LEAVE_ONE_OUT else network.probabilities()
        found, of_rows = more(distribution, rows, of_network)
    elif details:
        found, of_rows = _number_details(distribution, units, rows)
        found["rmse_network"] = None if rmse is None else _plain(rmse)
        if "censored" in scores:  # an error of a later time is not known
            found |= {"rmse": None, "rmse_network": None, "concordance_network": None}
            if kind != LEAVE_ONE_OUT:
                found["concordance_network"] = _concordance(network.mean(), draws.likelihood, rows)
        slope = units.slope(typical(draws.likelihood, y))
        log_units = draws.likelihood.log_units(distribution.check_targets(y), slope)
        of_rows["nlpd_in_units"] = of_rows["nlpd"] + log_units
        found["nlpd_in_units"] = float(np.average(of_rows["nlpd_in_units"], weights=weights))
    else:
        found, of_rows = {"coverage": {"0.9": calibration.coverage}}, {}
    of_rows = of_rows or {"nlpd": distribution.nlpd(y, per_row=True)}
    return Evaluation(scores | found, arrays | of_rows, calibration)


def pooled(parts: Sequence[Evaluation]) -> Evaluation:
    """Return the scores without details of validation rows that several runs left out in turn."""
    if len(parts) == 1:
        return parts[0]
    found = [part.calibration for part in parts]
    calibration = replace(functools.reduce(lambda one, other: one.with_validation(other), found), kind=VALIDATION)
    scores = {**parts[0].scores, "nlpd": calibration.nlpd}
    if "accuracy" in scores:
        accuracies = [part.scores["accuracy"] for part in parts]
        scores["accuracy"] = float(np.average(accuracies, weights=[one.rows for one in found]))
    else:
        scores |= {"nlpd_network": calibration.nlpd_network, "coverage": {"0.9": calibration.coverage}}
    if censored := sum(part.scores.get("censored", 0) for part in parts):
        scores["censored"] = censored
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays}
    return Evaluation(scores, arrays, calibration)


def _number_details(distribution: Any, units: TargetScaling, rows: Rows) -> ScoresAndArrays:
    """Return scores and arrays of numbers or counts.

    Counts have PIT values that are uniform within the step of the distribution function at the count. One at the end of
    its interval is covered in part, since intervals of whole numbers cover more than their probability.
    """
    likelihood = distribution.likelihood
    y = units.inverse(typical(likelihood, rows.y))
    ties = np.random.default_rng(0).uniform(size=y.shape)
    parts: dict[str, list[FloatArray]] = {}
    # Networks are evaluated once for each block of rows.
    for block, part in distribution.blocks():
        seen, moments = rows.y[block], units.moments(part)
        found = {
            "nlpd": part.nlpd(seen, per_row=True),
            "pit": part.pit(seen, ties=ties[block]),
            "crps": units.crps(part, seen),
            "mean": moments.mean,
            "epistemic": moments.epistemic_variance / moments.variance,
            "noise_sd": np.sqrt(moments.noise_variance),
        }
        found["lower"], found["upper"] = map(units.inverse, part.interval(0.95))
        inside = part.inside(seen, COVERAGES)
        found |= {f"{coverage:g}": inside[..., index] for index, coverage in enumerate(COVERAGES)}
        for name, values in found.items():
            parts.setdefault(name, []).append(values)
    whole = {name: np.concatenate(values) for name, values in parts.items()}

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray(np.average(values, axis=0, weights=rows.sample_weight))

    scores: dict[str, Any] = {
        "rmse": _plain(np.sqrt(mean((whole["mean"] - y) ** 2))),
        "coverage": {f"{coverage:g}": float(mean(whole[f"{coverage:g}"]).mean()) for coverage in COVERAGES},
        "interval_width": _plain(mean(whole["upper"] - whole["lower"])),
        "crps": _plain(mean(whole["crps"])),
        "pit_mean": float(whole["pit"].mean()),
        "pit_sd": float(whole["pit"].std()),
    }
    arrays: dict[str, npt.NDArray[Any]] = {"y": y}
    arrays |= {name: whole[name] for name in ("mean", "lower", "upper", "noise_sd", "pit", "epistemic")}
    known = _is_known(likelihood, rows.y)
    if not known.all():
        arrays["known"] = known
        inside = whole["0.9"]
        ends = ((inside == 1).astype(np.float64), (inside > 0).astype(np.float64))
        scores["coverage_decided"] = [float(mean(end).mean()) for end in ends]
        scores["concordance"] = _concordance(whole["mean"], likelihood, rows)
    if y.shape[1] == 1:
        arrays = {name: values[:, 0] for name, values in arrays.items()}
    return scores, {**arrays, "nlpd": whole["nlpd"]}


def typical(likelihood: Any, y: npt.NDArray[Any]) -> FloatArray:
    """Return the number (n, t) that stands for each target."""
    return np.asarray(likelihood.typical(_by_target(likelihood, y)))


def _by_target(likelihood: Any, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return targets as (n, t), or (n, t, q) of q numbers each."""
    return np.reshape(y, (len(y), -1, *([likelihood.numbers_per_target] if likelihood.numbers_per_target > 1 else [])))


def _is_known(likelihood: Any, y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which targets (n, t) are not censored."""
    return np.asarray(likelihood.is_known(_by_target(likelihood, y)))


def _concordance(mean: FloatArray, likelihood: Any, rows: Rows) -> float | None:
    """Return the share of pairs, among up to 2,000 rows, whose predicted means (n, t) are in their known order.

    That is Harrell's concordance index: the order is known where the bounds do not overlap, and equal means count half.
    None if there is no such pair.
    """
    at = np.linspace(0, len(mean) - 1, min(len(mean), _CONCORDANCE_ROWS)).round().astype(np.intp)
    bounds, mean = _by_target(likelihood, rows.y)[at], mean[at]
    before = bounds[:, None, :, 1] <= bounds[None, :, :, 0]
    pairs = (before & ~before.swapaxes(0, 1)).astype(np.float64)
    if rows.sample_weight is not None:
        pairs *= np.multiply.outer(rows.sample_weight[at], rows.sample_weight[at])[..., None]
    right = 0.5 * (np.sign(mean[None] - mean[:, None]) + 1.0)
    return float((right * pairs).sum() / pairs.sum()) if pairs.any() else None


def _class_accuracy(distribution: Any, rows: Rows, _: FloatArray | None) -> ScoresAndArrays:
    """Return the share of the rows, by weight, whose class has the largest probability, and no arrays."""
    right = distribution.probabilities().argmax(axis=1) == rows.y
    return {"accuracy": float(np.average(right, weights=rows.sample_weight))}, {}


def _class_details(distribution: Any, rows: Rows, of_network: FloatArray | None) -> ScoresAndArrays:
    """Return scores and arrays of classes, given the probabilities (n, m) of networks that have not seen the rows."""
    parts: dict[str, list[FloatArray]] = {"nlpd": [], "probability": [], "entropy": [], "nll": []}
    for block, part in distribution.blocks():
        parts["nlpd"].append(part.nlpd(rows.y[block], per_row=True))
        parts["probability"].append(part.probabilities())
        parts["entropy"].append(np.stack(part.entropy(), axis=1))
        parts["nll"].append(-part.log_density_by_draw(rows.y[block]).mean(axis=0))
    arrays: dict[str, npt.NDArray[Any]] = {name: np.concatenate(values) for name, values in parts.items()}
    wrong = arrays["probability"].argmax(axis=1) != rows.y
    weights = np.ones(len(wrong)) if rows.sample_weight is None else rows.sample_weight

    def entropies(of: npt.NDArray[np.bool_]) -> dict[str, float] | None:
        if not weights[of].any():
            return None
        means = np.average(arrays["entropy"][of], axis=0, weights=weights[of])
        return dict(zip(diagnostics.EntropyDecomposition._fields, means.tolist(), strict=True))

    scores = {
        "nll": float(np.average(arrays.pop("nll"), weights=weights)),
        **_class_scores(arrays["probability"], rows),
        "network": None if of_network is None else _class_scores(of_network, rows),
        "entropy": entropies(np.ones(len(wrong), dtype=bool)),
        "entropy_of_wrong_rows": entropies(wrong),
    }
    return scores, {"y": rows.y, **arrays}


def _class_scores(probability: FloatArray, rows: Rows) -> dict[str, float]:
    """Return the scores of one forecast of probabilities (n, m); all but the calibration error are weighted means."""
    p, y, weights = probability[None, None], rows.y, rows.sample_weight
    if weights is None:
        nlpd, brier, accuracy = diagnostics.class_nlpd(p, y), diagnostics.brier(p, y), diagnostics.accuracy(p, y)
    else:
        errors = (probability - np.eye(probability.shape[1])[y]) ** 2
        of_rows = diagnostics.class_nlpd(p, y, per_row=True), errors.sum(axis=1), probability.argmax(axis=1) == y
        nlpd, brier, accuracy = (float(np.average(values, weights=weights)) for values in of_rows)
    return {"nlpd": nlpd, "brier": brier, "ece": diagnostics.ece(p, y), "accuracy": accuracy}


def _validation_scores(net: pn.Network, draws: AnyDraws) -> tuple[FloatArray | None, float | None]:
    """Return the RMSE of each target and the mean NLPD of the validation rows of a network's training, None if unknown.

    Where the scale of the noise is a parameter of the likelihood, the NLPD is that of normal noise with the variance of
    the residuals, unless targets are bounds; otherwise it is the loss of those rows, that of the likelihood.
    """
    history = net.history
    if history is None:
        return None, None
    mse, validation = history.validation_mse, history.settings["validation"]
    rmse = None if mse is None else np.sqrt(mse)
    if draws.likelihood.scale_name is None:
        return rmse, None if validation is None else float(validation["loss"])
    if mse is None or draws.likelihood.numbers_per_target > 1:
        return rmse, None
    return rmse, float(0.5 * (np.log(2 * np.pi * mse) + 1.0).sum())


def _plain(values: FloatArray) -> float | list[float]:
    """Return the number of one target, or those of several as a list."""
    return float(values[0]) if len(values) == 1 else values.tolist()
