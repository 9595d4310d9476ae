"""Log-normal survival regression by `CensoredGaussian` beside lifelines' log-normal AFT model, on held-out rows.

`python bench/quality/survival.py` splits the 686 women of the German Breast Cancer Study Group 2 (lifelines ships them)
several times, fits both models to the logarithm of the time to recurrence or death in the training rows, and prints for
the test rows the mean log density, of a censored row the log probability of a longer time, and Brier scores: of
survival beyond two, three and five years, weighted by the inverse probability of censoring (Graf et al. 1999), which is
estimated by Kaplan-Meier on the training rows. Higher log densities and lower Brier scores are better; the sides
share splits and inputs. "patrac" is a network with two hidden layers of 16 nodes, all of it Bayesian under a Gaussian
prior of sampled scales, and "patrac, linear" one without a hidden layer, the Bayesian twin of the AFT model. It needs
lifelines (`pip install lifelines`).
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn

Array = npt.NDArray[np.float64]
HORIZONS = (730.0, 1095.0, 1825.0)  # days
SIDES = ("lifelines", "patrac, linear", "patrac")


def load() -> tuple[Array, Array, Array]:
    """Return inputs (n, 8), counts and receptors as log(1 + x), times in days, and whether each ended in an event."""
    from lifelines.datasets import load_gbsg2

    frame = load_gbsg2()
    columns = [
        (frame["horTh"] == "yes").to_numpy(float),
        frame["age"].to_numpy(float),
        (frame["menostat"] == "Post").to_numpy(float),
        frame["tsize"].to_numpy(float),
        frame["tgrade"].map({"I": 1.0, "II": 2.0, "III": 3.0}).to_numpy(float),
        *(np.log1p(frame[name].to_numpy(float)) for name in ("pnodes", "progrec", "estrec")),
    ]
    return np.stack(columns, axis=1), frame["time"].to_numpy(float), frame["cens"].to_numpy(float)


def censoring_survival(time: Array, event: Array, at: Array) -> Array:
    """Return the Kaplan-Meier probability that censoring comes later than the given times."""
    ends = np.unique(time[event == 0])
    at_risk = (time[None] >= ends[:, None]).sum(axis=1)
    censored = ((time == ends[:, None]) & (event == 0)).sum(axis=1)
    steps = np.concatenate([[1.0], np.cumprod(1.0 - censored / at_risk)])
    return steps[np.searchsorted(ends, at, side="right")]


def brier(survival: Array, time: Array, event: Array, horizon: float, training: tuple[Array, Array]) -> float:
    """Return the Brier score of survival probabilities (n,) at a horizon, weighted by the inverse of censoring."""
    died, lives = (time <= horizon) & (event == 1), time > horizon
    before = censoring_survival(*training, np.nextafter(time, 0.0))
    beyond = censoring_survival(*training, np.full(1, horizon))
    weighted = np.where(died, survival**2 / before, np.where(lives, (1.0 - survival) ** 2 / beyond, 0.0))
    return float(weighted.mean())


def fit_lifelines(X: Array, time: Array, event: Array, X_test: Array) -> tuple[Array, Array]:
    """Return mean (n,) and standard deviation (1,) of log time by the AFT model."""
    import pandas as pd
    from lifelines import LogNormalAFTFitter

    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(time=time, event=event)
    model = LogNormalAFTFitter().fit(frame, "time", "event")
    coefficients = model.params_["mu_"]
    mean = coefficients["Intercept"] + X_test @ coefficients[names].to_numpy()
    return mean, np.exp(np.atleast_1d(float(model.params_["sigma_"].iloc[0])))


def scores(
    log_density: Array, survival: list[Array], time: Array, event: Array, training: tuple[Array, Array]
) -> dict[str, float]:
    """Return the scores of one side on test rows."""
    found = {"log density": float(log_density.mean())}
    for horizon, probability in zip(HORIZONS, survival, strict=True):
        found[f"Brier {horizon / 365:.0f} y"] = brier(probability, time, event, horizon, training)
    return found


def bounds_of(log_time: Array, event: Array) -> Array:
    """Return bounds (n, 2): equal where the event was seen, open above where the row was censored."""
    return np.stack([log_time, np.where(event == 1, log_time, np.inf)], axis=1)


def known(value: float, n: int) -> Array:
    """Return bounds (n, 2) of a known target."""
    return np.full((n, 2), value)


def score_lifelines(
    X: Array, time: Array, event: Array, X_test: Array, t_test: Array, e_test: Array
) -> dict[str, float]:
    """Fit and score the AFT model."""
    mean, sd = fit_lifelines(X, time, event, X_test)
    likelihood = pn.CensoredGaussian(float(sd[0] ** 2))
    rows = likelihood.log_likelihood_rows(mean[:, None], bounds_of(np.log(t_test), e_test)[:, None])
    mixture = likelihood.mixture(mean[None, :, None])
    survival = [1.0 - mixture.cdf(np.log(horizon)) for horizon in HORIZONS]
    return scores(rows, survival, t_test, e_test, (time, event))


def score_patrac(
    hidden: list[int], X: Array, time: Array, event: Array, X_test: Array, t_test: Array, e_test: Array, seed: int
) -> dict[str, float]:
    """Fit and score a Bayesian network on the standardised logarithm of the time."""
    centre, unit = float(np.log(time).mean()), float(np.log(time).std())
    y = bounds_of((np.log(time) - centre) / unit, event)
    likelihood = pn.CensoredGaussian("sampled")
    sizes = [X.shape[1], *hidden, 1]
    # Full() keeps nothing of the network but where chains start, so its penalty is not worth a validation.
    start = {"l2": 1.0, "validation_fraction": 0.0, "max_epochs": 500, "seed": seed}
    net = pn.train(sizes, X, y, likelihood=likelihood, progress=False, **start)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(scales=pn.SampledScales()), likelihood, X, y)
    draws = pn.sample(post, chains=4, draws=500, thin=20, warmup=8000, seed=seed, progress=False)
    distribution = draws.distribution(X_test)
    # Of log time: the density of a target in other units has the factor 1 / unit, a probability has not.
    scaled = bounds_of((np.log(t_test) - centre) / unit, e_test)
    rows = distribution.log_density(scaled) - np.log(unit) * e_test
    n = len(X_test)
    survival = [1.0 - distribution.cdf(known((np.log(h) - centre) / unit, n))[:, 0] for h in HORIZONS]
    return scores(rows, survival, t_test, e_test, (time, event))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--splits", type=int, default=5, help="number of random splits; a fifth of the rows are test rows"
    )
    parser.add_argument("--out", type=Path, help="write all scores as JSON")
    options = parser.parse_args()
    X, time, event = load()
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for split in range(options.splits):
        order = np.random.default_rng(split).permutation(len(X))
        test, training = order[: len(X) // 5], order[len(X) // 5 :]
        mean, sd = X[training].mean(axis=0), X[training].std(axis=0)
        parts = [(X[rows] - mean) / sd for rows in (training, test)]
        data = (parts[0], time[training], event[training], parts[1], time[test], event[test])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results["lifelines"].append(score_lifelines(*data))
            results["patrac, linear"].append(score_patrac([], *data, seed=split))
            results["patrac"].append(score_patrac([16, 16], *data, seed=split))
        for side in SIDES:
            line = ", ".join(f"{name} {value:.4f}" for name, value in results[side][-1].items())
            print(f"split {split} {side}: {line}", flush=True)
    base = results["lifelines"]
    for side in SIDES:
        print(f"\n{side}, mean over {options.splits} splits, and difference to lifelines with its standard error")
        for name in base[0]:
            values = np.array([one[name] for one in results[side]])
            gap = values - np.array([one[name] for one in base])
            error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
            print(f"  {name}: {values.mean():.4f}  ({gap.mean():+.4f} +- {error:.4f})")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
