"""The rerun error that one run states beside the spread of complete reruns, on sets whose chains meet and do not meet.

`python bench/quality/reruns.py --data FOLDER --out FILE` runs every problem 20 times, each with a seed of its own for
networks and chains (what a fit chooses does not depend on it), and prints for the ends of 90% intervals of y, the ends
of 90% bands of f and the mean (for classes the probabilities): the standard deviation over reruns, median and 90th
percentile of at most 100 held-out rows, in units of the interval's width; the ratio of what the reruns state to it, of
root mean squares; and the share of reruns whose own stated margin (90%) holds the mean of all. The twin states the
error as if draws were the unit: the same draws, dealt to the chains at random. Of draws of another sampler there is the
usual Monte Carlo standard error of the mean and of quantiles of f too, from their effective sample size. Results do not
depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from comparison import Array, Results
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from uci_sets import SETS, load_split, standardised

import patrac_native as pn
from patrac_native.studies.tables import format_table

ROWS, COVERAGE = 100, 0.9
# Full with eight networks and noise of each row, whose chains do not meet on any of these sets.
UNMET: dict[str, Any] = {"architecture": "full", "likelihood": "heteroscedastic", "chains": 8, "draws": 250}
QUANTITIES = {"y": ("lower", "upper"), "f": ("band_lower", "band_upper"), "mean": ("mean",)}


def spread_rows(X: Array) -> Array:
    """Return at most 100 rows, evenly spread."""
    rows: Array = X[np.linspace(0, len(X) - 1, min(ROWS, len(X))).astype(int)]
    return rows


def of_estimator(make: Callable[..., Any], X: Array, y: Array, X_test: Array, seed: int, **parameters: Any) -> Any:
    """Return draws, inputs of the network at the test rows, and what was chosen."""
    made = make(random_state=1_000 * seed, **parameters).fit(X, y)
    members = getattr(made.draws_, "members", (made.draws_,))
    label = f"{members[0].network.architecture.label()} {made.draws_.likelihood.label} x{len(members)}"
    return made.draws_, made.preprocessor_.transform(spread_rows(X_test)), label


def of_uci(name: str, seed: int, *, data: Path, rows: int | None, **parameters: Any) -> Any:
    """Run the estimator on split 0 of a UCI set, or on the first of its training rows."""
    of = load_split(data / "uci", name, 0)
    return of_estimator(pn.PatracRegressor, of.X[:rows], of.y[:rows], of.X_test, seed, **parameters)


def of_digits(seed: int, *, data: Path, rows: int | None, **parameters: Any) -> Any:
    """Run the estimator on scikit-learn's digits, or on the first of their training rows."""
    X, X_test, y, _ = train_test_split(*load_digits(return_X_y=True), test_size=0.3, random_state=0)
    return of_estimator(pn.PatracClassifier, X[:rows], y[:rows], X_test, seed, **parameters)


def of_sine(seed: int, *, data: Path, **_: Any) -> Any:
    """Sample Mix(5) of one network, whose chains meet; a rerun repeats the chains."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (100, 1)), axis=0)
    y = 3 * np.sin(X[:, 0]) + rng.normal(size=100)
    net = pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), seed=0, progress=False)
    post = pn.Posterior(net, pn.Mix(5), pn.TraceClassPrior.fit(net), pn.Gaussian(1.0), X, y)
    return (
        pn.sample(post, chains=8, draws=250, thin=20, seed=seed, progress=False),
        X,
        post.network.architecture.label(),
    )


def of_yacht_out(seed: int, *, data: Path, **_: Any) -> Any:
    """Sample Out(45) of one network on yacht, whose chains meet; a rerun repeats the chains."""
    rows = standardised(load_split(data / "uci", "yacht", 0))
    net = pn.train(
        [rows.X.shape[1], 50, 50, 1], rows.X, rows.y, likelihood=pn.Gaussian("sampled"), seed=0, progress=False
    )
    post = pn.Posterior(net, pn.Out(45), pn.TraceClassPrior.fit(net), pn.Gaussian("sampled"), rows.X, rows.y)
    draws = pn.sample(post, chains=8, draws=250, thin=20, seed=seed, progress=False)
    return draws, spread_rows(rows.X_test), post.network.architecture.label()


@functools.cache
def posterior_for_nuts(name: str, data: Path) -> Any:
    """Return Mix(2) of one network with the noise variance of its validation rows, and held-out rows."""
    if name == "diabetes":
        X, X_test, y, _ = train_test_split(*load_diabetes(return_X_y=True), test_size=0.1, random_state=0)
        centre, scale = X.mean(axis=0), X.std(axis=0)
        X, X_test, y = (X - centre) / scale, (X_test - centre) / scale, (y - y.mean()) / y.std()
    else:
        rows = standardised(load_split(data / "uci", name, 0))
        X, X_test, y = rows.X, rows.X_test, rows.y
    net = pn.train([X.shape[1], 50, 50, 1], X, y, likelihood=pn.Gaussian("sampled"), seed=0, progress=False)
    noise = pn.Gaussian(float(np.mean(net.history.validation_mse)))
    return pn.Posterior(net, pn.Mix(2), pn.TraceClassPrior.fit(net), noise, X, y), spread_rows(X_test)


@functools.cache
def nuts(name: str, data: Path, warmup: int = 500, draws: int = 250) -> Callable[[Array, int], Array]:
    """Return a function of a start z and a seed: whitened states (draw, K) of BlackJAX's NUTS after its warm-up."""
    import blackjax
    import jax

    log_density = posterior_for_nuts(name, data)[0].to_jax("posterior", "whitened")
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)

    @jax.jit
    def run(start: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        (state, parameters), _ = adaptation.run(first, start, num_steps=warmup)
        step = blackjax.nuts(log_density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(second, draws))[1]

    return lambda start, seed: np.asarray(run(start.astype(np.float32), jax.random.key(seed)))


def of_nuts(name: str, seed: int, *, data: Path, **_: Any) -> Any:
    """Sample Mix(2) of one network by eight chains of BlackJAX's NUTS; a rerun repeats the chains."""
    post, X = posterior_for_nuts(name, data)
    scale, rng = np.sqrt(post.prior_variance), np.random.default_rng(seed)
    run, starts = nuts(name, data), np.sqrt(0.75) * post.theta_map / scale + 0.5 * rng.normal(size=(8, post.dim))
    states = np.stack([run(start, 1_000 * seed + chain) for chain, start in enumerate(starts)])
    return pn.Draws.from_array(post, states * scale, sampler="BlackJAX NUTS"), X, post.network.architecture.label()


PROBLEMS: dict[str, Callable[..., Any]] = {
    **{f"{name}, Full": partial(of_uci, name, **UNMET) for name in SETS},
    **{name: partial(of_uci, name) for name in SETS},
    "digits": of_digits,
    "digits, Out(50)": partial(of_digits, architecture="out", k=50, networks=8),
    "sine, Mix(5)": of_sine,
    "yacht, Out(45)": of_yacht_out,
    **{f"{name}, Mix(2), NUTS": partial(of_nuts, name) for name in ("diabetes", "yacht")},
}
DEFAULT = [
    *("concrete, Full", "energy, Full", "boston, Full", "yacht, Full", "kin8nm, Full"),
    *("concrete", "energy", "boston", "yacht", "digits", "sine, Mix(5)", "yacht, Out(45)"),
]


def shuffled(draws: Any, seed: int) -> Any:
    """Return the draws of one posterior dealt to its chains at random."""
    order = np.random.default_rng(seed).permutation(draws.n_chains * draws.n_draws)

    def dealt(values: Array) -> Array:
        return values.reshape(-1, *values.shape[2:])[order].reshape(values.shape)

    found = draws[:, :]
    found.theta[:] = dealt(found.theta)
    found.stats.update({name: dealt(found.stats[name]) for name in ("variance", "prior_scales") if name in found.stats})
    return found


def rerun(problem: Callable[..., Any], seed: int, **arguments: Any) -> dict[str, Any]:
    """Run a problem once; return the ends that a user sees, and what the run states of their error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what the verdict says
        draws, X, label = problem(seed, **arguments)
    at, error = draws.distribution(X), draws.rerun_error(X, COVERAGE)
    ends: dict[str, Array] = {"mean": at.probabilities() if error.is_class else at.mean()}
    values = draws.predict_proba(X) if error.is_class else draws.predict(X)
    ends["band_lower"], ends["band_upper"] = pn.diagnostics.credible_interval(values, COVERAGE)
    if not error.is_class:
        ends["lower"], ends["upper"] = at.interval(COVERAGE)
    usual = None if "sampler" not in getattr(draws, "settings", {}) else usual_errors(values)
    twin = None if isinstance(draws, pn.DrawsMixture) else shuffled(draws, seed).rerun_error(X, COVERAGE)
    own = [name for names in QUANTITIES.values() for name in names if name in ends]
    verdict = draws.summary(X).verdict()
    return {
        "label": label,
        "replicates": error.replicates,
        "unit": error.unit,
        "grades": [part.grade for part in verdict.parts],
        "findings": [one.kind for one in verdict.findings],
        "ends": {name: ends[name].tolist() for name in own},
        "stated": {name: getattr(error, name).tolist() for name in own},
        "margin": {name: error.margin(name).tolist() for name in own},
        "usual": usual and {name: usual[name].tolist() for name in own if name in usual},
        "max_rhat": pn.diagnostics.convergence(values).max_rhat,
        "twin": None if twin is None else {name: getattr(twin, name).tolist() for name in own},
    }


def usual_errors(values: Array) -> dict[str, Array]:
    """Return the usual Monte Carlo standard errors of mean and quantiles of f (chain, draw, n, t)."""
    found = pn.diagnostics.convergence(values, quantiles=(0.5 * (1 - COVERAGE), 0.5 * (1 + COVERAGE)))
    return {"mean": found.mcse_mean, "band_lower": found.mcse_quantiles[0], "band_upper": found.mcse_quantiles[1]}


def comparison(runs: Sequence[dict[str, Any]], quantity: str) -> dict[str, float] | None:
    """Return actual and stated errors of a quantity over reruns; None if the targets have none."""
    names = [name for name in QUANTITIES[quantity] if name in runs[0]["ends"]]
    if not names:
        return None
    ends, stated, margin = (
        np.array([[run[kind][name] for name in names] for run in runs]) for kind in ("ends", "stated", "margin")
    )
    other = QUANTITIES["y" if "lower" in runs[0]["ends"] and quantity != "f" else "f"]
    # Probabilities have a width of one.
    width: Any = 1.0
    if "lower" in runs[0]["ends"]:
        width = np.mean([np.subtract(run["ends"][other[1]], run["ends"][other[0]]) for run in runs], axis=0)
    actual = ends.std(axis=0, ddof=1) / width
    of_rows, medians = (
        np.sqrt((actual**2).mean(axis=0)),
        np.median(np.sqrt((stated**2).mean(axis=1)) / width, axis=(1, 2)),
    )

    def ratio(values: Array) -> float:
        return float(np.sqrt(np.mean((values / width) ** 2) / np.mean(actual**2)))

    inside = np.abs(ends - ends.mean(axis=0)) <= np.sqrt(1 - 1 / len(runs)) * margin
    others = {}
    for kind in ("twin", "usual"):
        known = runs[0].get(kind) is not None and names[0] in runs[0][kind]
        others[kind] = ratio(np.array([[run[kind][name] for name in names] for run in runs])) if known else np.nan
    return {
        "actual_median": float(np.median(of_rows)),
        "actual_90": float(np.quantile(of_rows, 0.9)),
        "stated_median": float(np.median(medians)),
        "stated_least": float(medians.min()),
        "stated_most": float(medians.max()),
        "ratio": ratio(stated),
        "inside": float(inside.mean()),
        **others,
    }


def main() -> None:
    """Run all reruns of all problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=DEFAULT, metavar="NAME")
    parser.add_argument("--reruns", type=int, default=20, help="default 20")
    parser.add_argument("--minutes", type=float, default=0.25, help="of each fit; default 0.25")
    parser.add_argument("--rows", type=int, help="of UCI sets and digits: at most so many training rows; default all")
    parser.add_argument("--out", type=Path, help="JSON file of all results; a later run goes on from it")
    options = parser.parse_args()
    results, rows = Results(options.out), []
    for name in options.problems:
        runs = []
        for seed in range(options.reruns):
            settings = {"data": options.data, "minutes": options.minutes, "rows": options.rows}
            one, some = (
                partial(rerun, PROBLEMS[name], seed, **settings),
                f" {options.rows} rows" if options.rows else "",
            )
            runs.append(results.get(f"{name}{some} {options.minutes:g} {1_000 * seed}", one))
            print(f"{name} {seed}: {runs[-1]['label']}, {runs[-1]['grades']}, {runs[-1]['findings']}", flush=True)
        labels = ", ".join(f"{label} ({count})" for label, count in Counter(run["label"] for run in runs).items())
        for quantity in QUANTITIES:
            found = comparison(runs, quantity)
            if found is None:
                continue
            rows.append(
                [
                    name,
                    f"{runs[0]['replicates']} {runs[0]['unit']}",
                    quantity,
                    f"{found['actual_median']:.3f}, {found['actual_90']:.3f}",
                    f"{found['stated_median']:.3f} ({found['stated_least']:.3f} to {found['stated_most']:.3f})",
                    f"{found['ratio']:.2f}",
                    f"{found['inside']:.0%}",
                    *("" if np.isnan(found[kind]) else f"{found[kind]:.2f}" for kind in ("twin", "usual")),
                ]
            )
        print(f"{name}: {labels}", flush=True)
    headers = [
        "",
        "replicates",
        "of",
        "actual: median, 90%",
        "stated: median (range)",
        "ratio",
        "inside 90%",
        "twin",
        "usual",
    ]
    print(format_table(headers, rows))


if __name__ == "__main__":
    main()
