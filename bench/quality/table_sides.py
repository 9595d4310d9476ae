"""The sides of `tables.py`: `PatracRegressor` and `PatracClassifier`, and rivals as their users would tune them.

A rival chooses what it leaves open (number of trees or epochs, noise of counts) on a fifth of the training rows and is
then fitted to all of them. Packages of rivals are imported where they are used.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from forecasts import Array, Classes, Counts, Forecast, Normals, dispersion_of, share_inside
from scipy.optimize import minimize_scalar
from table_rows import CENSORED, CLASS, COUNT, REAL, TableRows, as_numbers, is_text

COVERAGE = 0.9


@dataclass(frozen=True)
class Settings:
    """What the sides are asked for: the seed, the budget of patrac in minutes, and the number of threads."""

    seed: int
    minutes: float
    threads: int


@dataclass(frozen=True)
class Scored:
    """The loss of each test row, an NLPD in the units of y, mean scores by name, and remarks on the fit."""

    losses: Array
    scores: dict[str, float]
    remarks: dict[str, Any] = field(default_factory=dict)


def losses_of(rows: TableRows, forecast: Forecast) -> Array:
    """Return the negative log density, or probability, of each test target; of a censored one, that of a later time."""
    losses = -on_scale(rows, forecast).log_density(rows.y_test)
    if isinstance(forecast, Normals):
        losses = np.where(rows.event_test == 1, losses, -forecast.log_survival(rows.y_test))
    return losses


def on_scale(rows: TableRows, forecast: Forecast) -> Forecast:
    """Return what is predicted on the scale of the targets: of counts, by a continuous model, what rounds to them."""
    is_rounded = isinstance(forecast, Normals) and rows.kind == COUNT
    return Counts.rounded(forecast, rows.n_counts) if is_rounded else forecast


def scored(rows: TableRows, forecast: Forecast, **remarks: Any) -> Scored:
    """Score what a rival predicts."""
    losses, y, forecast = losses_of(rows, forecast), rows.y_test, on_scale(rows, forecast)
    if isinstance(forecast, Classes):
        return Scored(losses, {"accuracy": float((forecast.probability.argmax(axis=1) == y).mean())}, remarks)
    if rows.kind == CENSORED:
        return Scored(losses, {}, remarks)
    lower, upper = (forecast.quantile((1 + sign * COVERAGE) / 2) for sign in (-1, 1))
    scores = {
        "rmse": float(np.sqrt(((forecast.mean.mean(axis=0) - y) ** 2).mean())),
        "crps": float(forecast.crps(y).mean()),
        "coverage": float(forecast.inside(y, COVERAGE).mean()),
        "width": float((upper - lower).mean()),
    }
    return Scored(losses, scores, remarks)


# -- patrac ------------------------------------------------------------------------------------------------------------


def patrac(rows: TableRows, settings: Settings) -> Scored:
    """Fit the estimator at its defaults but for the budget, the columns of categories, and missing values."""
    import patrac_native as pn

    options: dict[str, Any] = {"minutes": settings.minutes, "random_state": settings.seed, "n_jobs": settings.threads}
    # As CatBoost is told; text of over 100 values would be refused otherwise.
    options["categorical"] = [name for name in rows.X if is_text(rows.X[name])]
    if rows.X.isna().any(axis=None) or rows.X_test.isna().any(axis=None):
        options |= {"impute": "median", "missing_indicator": True}
    y, y_test = (_targets(rows, of, event) for of, event in ((rows.y, rows.event), (rows.y_test, rows.event_test)))
    if rows.kind == CENSORED:
        options["likelihood"] = "censored"
    estimator = (pn.PatracClassifier if rows.kind == CLASS else pn.PatracRegressor)(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.perf_counter()
        estimator.fit(rows.X, y)
        fitted = time.perf_counter()
    found = estimator.evaluate(rows.X_test, y_test)
    likelihood, verdict = estimator.draws_.likelihood, estimator.report_.verdict
    remarks = {
        "posterior": f"{estimator.posterior_.network.architecture!r}, {likelihood!r}",
        "networks": len(getattr(estimator.draws_, "members", [0])),
        "predictions": verdict.predictions.grade,
        "warnings": [str(one.message)[:300] for one in caught],
        "fit_seconds": round(fitted - started, 1),
        "predict_seconds": round(time.perf_counter() - fitted, 1),
        "rerun_error": rerun_error(estimator, rows.X_test, y_test),
        "nlpd_network": found.scores.get("nlpd_network", (found.scores.get("network") or {}).get("nlpd")),
        "report": [line[:400] for line in estimator.report_.lines],
    }
    losses = np.asarray(found.arrays["nlpd"], dtype=float)
    if rows.kind == CLASS:
        return Scored(losses, {"accuracy": found.scores["accuracy"]}, remarks)
    scaling = estimator.target_scaling_
    distribution = estimator.draws_.distribution(estimator.preprocessor_.transform(rows.X_test))
    inside = found.scores["coverage"][f"{COVERAGE:g}"] if rows.kind != CENSORED else None
    if rows.kind == COUNT and likelihood.targets == "real":
        ends = [scaling.transform((y_test + half)[:, None]) for half in (-0.5, 0.5)]
        lower, upper = (distribution.cdf(end)[:, 0] for end in ends)
        # What rounds to a count; all that lies below is a 0, as for the rivals.
        lower = np.where(y_test == 0, 0.0, lower)
        losses, inside = -np.log(np.maximum(upper - lower, 1e-300)), share_inside(lower, upper, COVERAGE).mean()
    else:
        losses = np.asarray(found.arrays["nlpd_in_units"], dtype=float)
    if rows.kind == CENSORED:
        return Scored(losses, {}, remarks)
    lower, upper = estimator.predict_interval(rows.X_test, COVERAGE)
    scores = {"rmse": found.scores["rmse"], "crps": found.scores["crps"], "coverage": float(inside)}
    return Scored(losses, scores | {"width": float((upper - lower).mean())}, remarks)


def rerun_error(estimator: Any, X: Any, y: Any) -> float:
    """Return the standard deviation of the mean loss over reruns, by leaving out each network, start or chain in turn.

    The shares of the replicates and the formula are those of `Draws.rerun_error` (docs/rerun.md).
    """
    draws = estimator.draws_
    members = getattr(draws, "members", (draws,))
    if len(members) > 1:
        labels = np.repeat(np.arange(len(members)), [one.n_chains * one.n_draws for one in members])
        share = np.repeat(draws.weights / np.bincount(labels), np.bincount(labels))
    else:
        labels = np.repeat(draws.settings.get("starts", np.arange(draws.n_chains)), draws.n_draws)
        share = np.full(len(labels), 1 / len(labels))
    at = draws.distribution(estimator.preprocessor_.transform(X))
    is_class = hasattr(estimator, "classes_")
    targets = np.searchsorted(estimator.classes_, y) if is_class else estimator.target_scaling_.transform(y[:, None])
    log_density = at.log_density_by_draw(targets)
    density = share[:, None] * np.exp(log_density - log_density.max(axis=0))
    groups = [labels == label for label in np.unique(labels)]
    parts, w = np.array([density[one].sum(axis=0) for one in groups]), np.array([share[one].sum() for one in groups])
    without = -np.log((density.sum(axis=0) - parts) / (1 - w)[:, None]).mean(axis=1)
    return float(np.sqrt(((1 - w) * (without + np.log(density.sum(axis=0)).mean()) ** 2).sum()))


def _targets(rows: TableRows, y: Array, event: Array) -> Any:
    """Return targets as the estimators take them: bounds where they are censored, text for classes."""
    if rows.kind == CENSORED:
        return np.stack([y, np.where(event == 1, y, np.inf)], axis=1)
    return y.astype(int).astype(str) if rows.kind == CLASS else y


# -- rivals ------------------------------------------------------------------------------------------------------------


def linear(rows: TableRows, settings: Settings) -> Scored:
    """Fit ridge regression, logistic regression, a negative binomial GLM or the log-normal AFT model."""
    X, X_test = as_numbers(rows)
    return {REAL: _ridge, CLASS: _logistic, COUNT: _count_glm, CENSORED: _aft}[rows.kind](rows, X, X_test, settings)


def _ridge(rows: TableRows, X: Array, X_test: Array, settings: Settings) -> Scored:
    """Fit ridge regression, its penalty and noise by leave-one-out residuals."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(np.geomspace(1e-3, 1e5, 25)).fit(X, rows.y)
    mean = model.predict(X_test)
    return scored(rows, Normals(mean[None], np.full((1, len(mean)), np.sqrt(-model.best_score_))), penalty=model.alpha_)


def _logistic(rows: TableRows, X: Array, X_test: Array, settings: Settings) -> Scored:
    """Fit logistic regression, its penalty by five folds."""
    from sklearn.linear_model import LogisticRegressionCV

    model = LogisticRegressionCV(Cs=np.geomspace(1e-4, 1e2, 13), cv=5, scoring="neg_log_loss", max_iter=2000)
    return scored(rows, Classes(model.fit(X, rows.y).predict_proba(X_test)), penalty=float(1 / model.C_[0]))


def _count_glm(rows: TableRows, X: Array, X_test: Array, settings: Settings) -> Scored:
    """Fit a negative binomial GLM to columns that do not depend on each other."""
    import statsmodels.api as sm
    from scipy.linalg import qr

    _, factor, order = qr(X, mode="economic", pivoting=True)
    kept = order[np.abs(factor.diagonal()) > 1e-8 * abs(factor[0, 0])]
    model = sm.NegativeBinomial(rows.y, sm.add_constant(X[:, kept])).fit(maxiter=500, disp=False)
    mean = model.predict(sm.add_constant(X_test[:, kept], has_constant="add"))
    forecast = Counts.negative_binomial(mean, float(model.params[-1]), rows.n_counts)
    return scored(rows, forecast, dispersion=float(model.params[-1]))


def _aft(rows: TableRows, X: Array, X_test: Array, settings: Settings) -> Scored:
    """Fit the log-normal AFT model of lifelines."""
    from survival import fit_lifelines

    mean, sd = fit_lifelines(X, np.exp(rows.y), rows.event, X_test)
    return scored(rows, Normals(mean[None], np.full((1, len(mean)), sd[0])), sd=float(sd[0]))


def catboost(rows: TableRows, settings: Settings) -> Scored:
    """Fit CatBoost: RMSEWithUncertainty, classes, AFT; to counts Poisson with a dispersion, or a class a value."""
    if rows.kind == REAL:
        made, trees = _boosted(rows, settings, "RMSEWithUncertainty")
        mean, variance = made.predict(_pool(rows.X_test), prediction_type="RMSEWithUncertainty").T
        return scored(rows, Normals(mean[None], np.sqrt(variance)[None]), trees=trees)
    if rows.kind == CLASS:
        made, trees = _boosted(rows, settings, "Logloss" if rows.classes == 2 else "MultiClass")
        return scored(rows, Classes(made.predict_proba(_pool(rows.X_test))), trees=trees)
    if rows.kind == CENSORED:
        tried = [(f"Normal;scale={scale}", _catboost_aft) for scale in (0.5, 0.8, 1.2)]
    else:
        tried = [("Poisson", _catboost_poisson)]
        if len(np.unique(rows.y)) <= 30:
            tried.append(("MultiClass", _catboost_values))
    return _best_of(rows, settings, tried)


def _best_of(rows: TableRows, settings: Settings, tried: list[tuple[str, Callable[..., Forecast]]]) -> Scored:
    """Score the variant that predicts a fifth of the training rows best, fitted to all."""
    if len(tried) == 1:
        ((name, predict),) = tried
        return scored(rows, predict(rows, settings, name), variant=name)
    part = rows.parted(settings.seed + 1)
    losses = [losses_of(part, predict(part, settings, name)).mean() for name, predict in tried]
    name, predict = tried[int(np.argmin(losses))]
    return scored(rows, predict(rows, settings, name), variant=name)


def _catboost_poisson(rows: TableRows, settings: Settings, loss: str) -> Counts:
    """Predict counts by a Poisson loss, with the dispersion of held-out rows."""
    part = rows.parted(settings.seed)
    tuned, _ = _boosted(part, settings, loss)
    dispersion = dispersion_of(tuned.predict(_pool(part.X_test), prediction_type="Exponent"), part.y_test)
    made, _ = _boosted(rows, settings, loss)
    mean = made.predict(_pool(rows.X_test), prediction_type="Exponent")
    return Counts.negative_binomial(mean, dispersion, rows.n_counts)


def _catboost_values(rows: TableRows, settings: Settings, loss: str) -> Counts:
    """Predict counts by a class for each value; values that are no class have what one row more would give them."""
    values, codes = np.unique(rows.y, return_inverse=True)
    labelled = TableRows(rows.name, CLASS, rows.X, codes.astype(float), rows.event, rows.X, rows.y, rows.event)
    made, _ = _boosted(labelled, settings, loss)
    n = len(rows.y)
    probability = np.full((len(rows.y_test), rows.n_counts), 1 / (n + 1) / rows.n_counts)
    probability[:, values.astype(int)] += made.predict_proba(_pool(rows.X_test)) * n / (n + 1)
    return Counts(probability)


def _catboost_aft(rows: TableRows, settings: Settings, loss: str) -> Normals:
    """Predict log times by an AFT loss, with the standard deviation of held-out rows."""
    part = rows.parted(settings.seed)
    tuned, _ = _boosted(part, settings, f"SurvivalAft:dist={loss}")
    mean = tuned.predict(_pool(part.X_test))

    def loss_of(log_sd: float) -> float:
        sd = np.full((1, len(mean)), np.exp(log_sd))
        return float(losses_of(part, Normals(mean[None], sd)).mean())

    sd = np.exp(minimize_scalar(loss_of, bounds=(-3.0, 3.0), method="bounded").x)
    made, _ = _boosted(rows, settings, f"SurvivalAft:dist={loss}")
    mean = made.predict(_pool(rows.X_test))
    return Normals(mean[None], np.full((1, len(mean)), sd))


def _pool(X: Any, y: Any = None) -> Any:
    """Return the rows with their categories as CatBoost takes them."""
    from catboost import Pool

    texts = [name for name in X if is_text(X[name])]
    return Pool(X.assign(**{name: X[name].fillna("missing").astype(str) for name in texts}), y, cat_features=texts)


def _boosted(rows: TableRows, settings: Settings, loss: str) -> tuple[Any, int]:
    """Fit CatBoost with the number of trees that is best on a fifth of the training rows."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    def labels(of: TableRows) -> Any:
        if loss.startswith("SurvivalAft"):
            times = np.exp(of.y)
            return np.stack([times, np.where(of.event == 1, times, -1.0)], axis=1)
        return of.y

    kind = CatBoostClassifier if loss in ("Logloss", "MultiClass") else CatBoostRegressor
    options = {"loss_function": loss, "random_seed": settings.seed, "thread_count": settings.threads, "verbose": False}
    options |= {"allow_writing_files": False, "learning_rate": 0.05}
    part = rows.parted(settings.seed)
    tuned = kind(iterations=2000, early_stopping_rounds=50, **options)
    tuned.fit(_pool(part.X, labels(part)), eval_set=_pool(part.X_test, labels(part.held)))
    trees = max(1, int(tuned.get_best_iteration()) + 1)
    return kind(iterations=trees, **options).fit(_pool(rows.X, labels(rows))), trees


def ngboost(rows: TableRows, settings: Settings) -> Scored:
    """Fit NGBoost: normal noise, classes, log-normal times; of counts, Poisson or normal."""
    if rows.kind == COUNT:
        return _best_of(rows, settings, [("Poisson", _ngboost), ("Normal", _ngboost)])
    variant = {REAL: "Normal", CLASS: "", CENSORED: "LogNormal"}[rows.kind]
    return scored(rows, _ngboost(rows, settings, variant), variant=variant)


def _ngboost(rows: TableRows, settings: Settings, variant: str) -> Forecast:
    """Predict by NGBoost with the number of trees that is best on a fifth of the training rows."""
    from ngboost import NGBClassifier, NGBRegressor, NGBSurvival
    from ngboost.distns import LogNormal, Normal, Poisson, k_categorical

    made = {REAL: NGBRegressor, COUNT: NGBRegressor, CLASS: NGBClassifier, CENSORED: NGBSurvival}[rows.kind]
    noise = {"Normal": Normal, "Poisson": Poisson, "LogNormal": LogNormal}
    X, X_test = as_numbers(rows)
    # Standard errors of a natural gradient from 5,000 rows are small beside the rate.
    options = {"Dist": noise[variant] if variant else k_categorical(rows.classes), "learning_rate": 0.03}
    options |= {"random_state": settings.seed, "verbose": False, "minibatch_frac": min(1.0, 5000 / len(X))}

    centre, scale = (rows.y.mean(), rows.y.std()) if variant == "Normal" else (0.0, 1.0)

    def targets(of: TableRows) -> tuple[Any, ...]:
        if rows.kind == CENSORED:
            return np.exp(of.y), of.event
        return ((of.y - centre) / scale if variant == "Normal" else of.y.astype(int),)

    part = rows.parted(settings.seed)
    X_part, X_held = as_numbers(part)
    names = ("T_val", "E_val") if rows.kind == CENSORED else ("Y_val",)
    watched = dict(zip(names, targets(part.held), strict=True))
    tuned = made(n_estimators=1000, **options)
    tuned.fit(X_part, *targets(part), X_val=X_held, **watched, early_stopping_rounds=30)
    trees = int(tuned.best_val_loss_itr or 999) + 1
    model = made(n_estimators=trees, **options)
    model.fit(X, *targets(rows))
    if rows.kind == CLASS:
        return Classes(model.predict_proba(X_test))
    found = model.pred_dist(X_test).params
    if variant == "Poisson":
        return Counts.negative_binomial(found["mu"], 1e-6, rows.n_counts)
    if variant == "LogNormal":
        return Normals(np.log(found["scale"])[None], found["s"][None])
    return Normals((centre + scale * found["loc"])[None], (scale * found["scale"])[None])


def gp(rows: TableRows, settings: Settings) -> Scored:
    """Fit an exact Gaussian process, the kernel of four and its parameters by marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    X, X_test = as_numbers(rows)
    centre, scale = rows.y.mean(), rows.y.std()
    d, bounds = X.shape[1], (1e-2, 1e4)
    # A length for each column, unless there are nearly as many as rows.
    lengths = [np.full(1, np.sqrt(d)), *([np.full(d, np.sqrt(d))] if 4 * d <= len(X) else [])]
    parts = [make(length, bounds) for length in lengths for make in (RBF, lambda *of: Matern(*of, nu=2.5))]
    tried = []
    for part in parts:
        kernel = ConstantKernel(1.0, (1e-3, 1e4)) * part + WhiteKernel(0.3, (1e-6, 10.0))
        model = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=settings.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tried.append(model.fit(X, (rows.y - centre) / scale))
    best = max(tried, key=lambda one: one.log_marginal_likelihood_value_)
    mean, sd = best.predict(X_test, return_std=True)
    return scored(rows, Normals((centre + scale * mean)[None], (scale * sd)[None]), kernel=str(best.kernel_)[:300])


def ensemble(rows: TableRows, settings: Settings) -> Scored:
    """Train the tuned deep ensemble, with a variance of each row or with classes."""
    import torch
    from deep_ensemble import fit_ensemble

    torch.set_num_threads(settings.threads)
    X, X_test = as_numbers(rows)
    is_class = rows.kind == CLASS
    centre, scale = (0.0, 1.0) if is_class else (rows.y.mean(), rows.y.std())
    made, tuned = fit_ensemble(X, (rows.y - centre) / scale, classes=rows.classes or None, seed=settings.seed)
    with torch.no_grad():
        outputs = made.outputs(torch.as_tensor(X_test, dtype=torch.float32)).double()
        probability = torch.softmax(outputs, dim=-1).mean(dim=0).numpy()
    remarks = {"learning_rate": tuned.rate, "epochs": tuned.epochs}
    if is_class:
        return scored(rows, Classes(probability), **remarks)
    mean, log_variance = outputs.numpy()[..., 0], outputs.numpy()[..., 1]
    sd = np.exp(0.5 * np.clip(log_variance, -14, 7))
    return scored(rows, Normals(centre + scale * mean, scale * sd), **remarks)


# Each side with the kinds of targets that it can predict, and the most training rows that it takes.
_NUMBERS = (REAL, COUNT)
SIDES: dict[str, tuple[Callable[[TableRows, Settings], Scored], tuple[str, ...], float]] = {
    "patrac": (patrac, (REAL, COUNT, CLASS, CENSORED), np.inf),
    "linear": (linear, (REAL, COUNT, CLASS, CENSORED), np.inf),
    "catboost": (catboost, (REAL, COUNT, CLASS, CENSORED), np.inf),
    "ngboost": (ngboost, (REAL, COUNT, CLASS, CENSORED), np.inf),
    "gp": (gp, _NUMBERS, 3000),
    "ensemble": (ensemble, (*_NUMBERS, CLASS), np.inf),
}
