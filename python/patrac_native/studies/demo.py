"""The demonstration: a real table and the paper's sine problem, from data to posterior, with a report."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.engine import thread_count
from patrac_native.report import Report, write_json
from patrac_native.studies import figures
from patrac_native.studies.experiment import Outcome, Scores, derived_seed, run_architecture, score_network
from patrac_native.studies.options import SamplingSettings, StudyOptions
from patrac_native.studies.output import RHAT_USABLE
from patrac_native.studies.problems import Problem, sine_mean, sine_problem
from patrac_native.studies.replicates import train_network
from patrac_native.studies.tables import COVERAGE, Columns, Table, format_table, score_table, wrapped

# Full takes most of the time of sampling; this many steps give it more than a thousand effective draws of f.
STEPS, DRAWS, CHAINS = 60_000, 1_000, 4
# The usual requirement for reported quantiles (Vehtari et al. 2021, Rank-normalization, folding, and localization: an
# improved R-hat for assessing convergence of MCMC).
_RHAT_GOOD, _ESS_GOOD = 1.01, 400
_LEGEND = (
    "NLL as in the paper's Table 1 (sum over test rows, mean over draws; some 500 are due to the noise alone). NLPD: "
    "mean negative log predictive density. RMSE: of the posterior mean against sin(x). In 99/95/65%: percent of test "
    "rows whose sin(x) lies in that interval of f. R-hat: largest of f on a grid. ESS: effective draws of f, all "
    "chains (Geyer). Seconds: sampling with its warm-up."
)
# The first row of the table, the network's, often has the best scores; this explains why.
_READING = (
    "One data set decides little (patrac study sine runs many), and the network may well score best on it: NLL, a mean "
    "over draws, charges a posterior for its spread, and which curve lies nearest to the sine is partly chance. What a "
    "posterior adds are the intervals; the network claims no uncertainty at all."
)

# The real table: steps between kept draws, and in the warm-up.
_WINE_THIN, _WINE_WARMUP = 40, 2_000


def wine_scores(seed: int, *, threads: int, warmup: int | None, max_epochs: int | None) -> Scores:
    """Predict the flavanoids of 54 wines from their other measurements, by a posterior and by its plain network.

    The plain network takes the mean squared residual of its training rows for the noise, as one does without more.
    """
    from sklearn.datasets import load_wine

    table = load_wine()
    target = table.feature_names.index("flavanoids")
    rows = np.random.default_rng(seed).permutation(len(table.data))
    train, test = rows[: len(rows) * 7 // 10], rows[len(rows) * 7 // 10 :]
    values = (table.data - table.data[train].mean(axis=0)) / table.data[train].std(axis=0)
    X, y = np.delete(values, target, axis=1), values[:, target]
    started = time.perf_counter()
    epochs: dict[str, Any] = {} if max_epochs is None else {"max_epochs": max_epochs}
    net = pn.train(
        [X.shape[1], 50, 50, 1], X[train], y[train], likelihood=pn.Gaussian(0.1), seed=seed, progress=False, **epochs
    )
    trained = time.perf_counter()
    prior = pn.GaussianPrior(scales=pn.SampledScales())
    post = pn.Posterior(net, pn.Full(), prior, pn.Gaussian("sampled"), X[train], y[train])
    thin, warmup = (_WINE_THIN, _WINE_WARMUP) if warmup is None else (1, warmup)
    draws = pn.sample(
        post, chains=CHAINS, draws=250, thin=thin, warmup=warmup, seed=seed, threads=threads, progress=False
    )
    sampled = time.perf_counter()
    predicted = draws.distribution(X[test])
    variance = float(np.mean((net.predict(X[train])[:, 0] - y[train]) ** 2))
    error = y[test] - net.predict(X[test])[:, 0]
    return {
        "rows": {"training": len(train), "test": len(test)},
        "nlpd": predicted.nlpd(y[test]),
        "nlpd_network": float(np.mean(0.5 * np.log(2 * np.pi * variance) + error**2 / (2 * variance))),
        "nlpd_network_noise_of_unseen_rows": predicted.network().nlpd(y[test]),
        "inside": int(predicted.inside(y[test], 0.9).sum()),
        "inside_network": int((np.abs(error) < 1.6449 * np.sqrt(variance)).sum()),
        "inside_network_noise_of_unseen_rows": int(predicted.network().inside(y[test], 0.9).sum()),
        "max_rhat": draws.summary(X[test]).function.max_rhat,
        "training_seconds": trained - started,
        "sampling_seconds": sampled - trained,
    }


def wine_words(wine: Scores) -> str:
    """Return what the posterior of the real table gains and what it costs, in two sentences."""
    n = wine["rows"]["test"]
    plain, fairer = (wine[f"nlpd_network{name}"] - wine["nlpd"] for name in ("", "_noise_of_unseen_rows"))
    return (
        f"Gained: on {n} wines that no side has seen, the posterior gives the measured flavanoids "
        f"{math.exp(plain):.2g} times the density that its plain network gives ({math.exp(fairer):.2g} times, if "
        f"the network takes its noise from unseen rows), and its 90% intervals hold {wine['inside']} of them, the "
        f"network's {wine['inside_network']} ({0.9 * n:.0f} would be right). Cost: {wine['sampling_seconds']:.1f} s "
        f"of sampling after {wine['training_seconds']:.1f} s of training."
    )


def wine_table(wine: Scores) -> Table:
    """Return the table of the real data."""
    n = wine["rows"]["test"]
    names = ("network, noise of its training rows", "network, noise of unseen rows", "posterior (Full)")
    ends = ("_network", "_network_noise_of_unseen_rows", "")
    header = ["predictions of wine", "NLPD", "in 90%"]
    rows = [
        [name, f"{wine[f'nlpd{end}']:.3f}", f"{wine[f'inside{end}']} of {n}"]
        for name, end in zip(names, ends, strict=True)
    ]
    return header, rows


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    threads: int | None = None,
    steps: int = STEPS,
    draws: int = DRAWS,
    warmup: int | None = None,
    max_epochs: int | None = None,
) -> None:
    """Train a network, sample four architectures, print a table, and write report.html and summary.json."""
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    settings = SamplingSettings(
        steps=steps,
        draws=draws,
        chains=CHAINS,
        warmup="auto" if warmup is None else warmup,
        kernel="auto",
        threads=min(thread_count(threads), CHAINS),
        progress=None,
    )
    print(
        "A real table: flavanoids of 178 wines from twelve other measurements (scikit-learn's load_wine).", flush=True
    )
    wine = wine_scores(seed, threads=settings.threads, warmup=warmup, max_epochs=max_epochs)
    print(f"\n{format_table(*wine_table(wine))}\n\n{wrapped(wine_words(wine))}\n", flush=True)
    # With the same seed, data and training are those of the first replicate of `patrac study sine`.
    problem = sine_problem(derived_seed(seed, 0, 0))
    print("The paper's sine problem: y = sin(x) + N(0, 1), 100 rows to learn from, 1000 to test on.")
    net = train_network(problem, derived_seed(seed, 0, 1), StudyOptions(out, max_epochs=max_epochs))
    network = score_network(problem, net)
    prior = pn.TraceClassPrior.fit(net)
    print(f"Trained a 1-50-50-1 tanh network: {network['epochs']} epochs, {network['training_seconds']:.1f} s.")

    outcomes = []
    for index, architecture in enumerate((pn.Full(), pn.Sep(5), pn.Mix(5), pn.Out(45))):
        outcome = run_architecture(problem, net, prior, architecture, settings, seed=derived_seed(seed, 0, 2, index))
        print(
            f"Sampled {outcome.label}: {CHAINS} chains x {settings.steps:,} steps, {outcome.scores['seconds']:.1f} s.",
            flush=True,
        )
        outcomes.append(outcome)
    columns: Columns = {
        "K": ("dim", 0),
        "NLL": ("nll", 1),
        "NLPD": ("nlpd", 4),
        "RMSE": ("rmse", None),
        **COVERAGE,
        "R-hat": ("max_rhat", 3),
        "ESS": ("ess", 0),
        "ESS/s": ("ess_per_second", None),
        "accept": ("acceptance_rate", 2),
        "steps/s": ("steps_per_second", None),
        "seconds": ("seconds", 1),
    }
    runs = [outcome.scores for outcome in outcomes]
    table = score_table({"network": [network]} | {run["architecture"]: [run] for run in runs}, columns)
    print(f"\n{format_table(*table)}\n\n{wrapped(_LEGEND)}\n\n{wrapped(_READING)}\n\n{wrapped(verdict(runs))}")

    _write_report(out / "report.html", problem, net, network["epochs"], prior, outcomes, settings, table, wine)
    seconds = time.perf_counter() - started
    write_json(
        out / "summary.json",
        {
            "command": "demo",
            "seed": seed,
            "seconds": seconds,
            "threads": settings.threads,
            "training": dict(net.history.settings) if net.history else {},
            "prior": prior.to_dict(),
            "network": network,
            "runs": runs,
            "wine": wine,
            "verdict": verdict(runs),
        },
    )
    report, summary = out / "report.html", out / "summary.json"
    print(f"\nReport: {report}  (numbers: {summary}); {seconds:.0f} s in all.", flush=True)


def verdict(runs: Sequence[Scores]) -> str:
    """Return a sentence on whether the chains have converged."""
    worst = max(runs, key=lambda run: float(run["max_rhat"]))
    least = min(runs, key=lambda run: float(run["min_ess_bulk"]))
    facts = (
        f"the worst R-hat of f is {worst['max_rhat']:.3f} ({worst['architecture']}), the smallest bulk ESS of f at any "
        f"grid point {least['min_ess_bulk']:.0f} ({least['architecture']})"
    )
    if worst["max_rhat"] <= _RHAT_GOOD and least["min_ess_bulk"] >= _ESS_GOOD:
        return f"Chains: good. Here {facts}; up to {_RHAT_GOOD} and from {_ESS_GOOD} on is good."
    if worst["max_rhat"] <= RHAT_USABLE:
        return (
            f"Chains: look. They serve for means and bands: {facts}. For reported quantiles one wants an R-hat of "
            f"{_RHAT_GOOD} or less and an ESS of {_ESS_GOOD} or more, which takes more steps."
        )
    return f"Chains: do not use. They disagree: {facts}; run more steps."


def _write_report(
    path: Path,
    problem: Problem,
    net: pn.Network,
    epochs: int,
    prior: pn.TraceClassPrior,
    outcomes: Sequence[Outcome],
    settings: SamplingSettings,
    table: Table,
    wine: Scores,
) -> None:
    """Write the HTML page."""
    runs = [outcome.scores for outcome in outcomes]
    history: Any = net.history
    report = Report("patrac demo: a table of wines, and the sine problem")
    report.heading("A real table")
    report.text(
        "178 wines with thirteen chemical measurements, a table that scikit-learn has: flavanoids from the other "
        "twelve. A network 12-50-50-1 is trained on 124 wines, and the posterior of all its parameters, of the noise "
        "and of the scales of the prior is sampled around it."
    )
    report.text(wine_words(wine))
    report.table(
        *wine_table(wine),
        caption="NLPD: mean negative log predictive density of the standardised target, lower is better. In 90%: wines "
        "inside their 90% interval. Noise of unseen rows: of those that the choice of the penalty kept out.",
    )
    report.heading("The sine problem")
    report.text(
        "100 observations y = sin(x) + N(0, 1) with x uniform on [-5, 5]. A 1-50-50-1 tanh network is trained on them, "
        "and four posteriors around it are sampled: every parameter Bayesian (Full), a separate small network beside "
        "the trained one (Sep), the top five nodes of each layer (Mix), and the larger part of the output layer (Out). "
        "The last three have 46 Bayesian parameters, Full has 2,701. The question is how much of Full's honest "
        "uncertainty the small ones keep, and at what price."
    )
    report.text(verdict(runs))
    report.heading("Results")
    report.table(*table, caption=_LEGEND)
    full, others = runs[0], runs[1:]
    quickest = max(others, key=lambda run: float(run["ess_per_second"]))
    report.text(
        f"Price: Full gives {full['ess_per_second']:,.0f} effective draws of f a second, {quickest['architecture']} "
        f"{quickest['ess_per_second']:,.0f}, on {settings.threads} threads. Honesty: the true sine lies in the 95% "
        f"interval at {full['coverage']['0.95']:.0%} of the test inputs for Full, and at "
        + ", ".join(f"{run['coverage']['0.95']:.0%} for {run['architecture']}" for run in others)
        + ". Coverage of a single curve moves together along x."
    )
    report.text(_READING)
    report.heading("What the posteriors look like")
    report.figure(
        figures.bands_figure(problem, net, outcomes, sine_mean),
        "Orange: 100 functions drawn from each posterior. Dashed purple: pointwise 95% interval of f. Light blue: "
        "that of new observations. Dotted green: "
        "the true sine. Blue: the trained network. Dots: the data. A good band is wide where data leave f open, and "
        "holds the green curve nearly everywhere. (The paper's Figure 2.)",
    )
    report.heading("Are predictions calibrated?")
    report.figure(
        figures.pit_figure(outcomes, of="y"),
        "PIT: where each test observation falls among the draws of y predicted for it. Flat is right; a U means "
        "intervals too narrow, a hump too wide, a slope predictions off to one side. The noise of this problem is "
        "large beside the uncertainty of f, so the architectures look alike here.",
    )
    report.heading("Did the chains mix?")
    report.figure(
        figures.trace_figure(outcomes, [-2.0], "-2"),
        f"{settings.chains} chains in four colours, a draw every {settings.thin} steps. They should look like one band "
        "without trends: no chain apart from the others, no slow wandering. "
        "Judge by f and by the log-likelihood: single weights are not identified (several settings of them make the "
        "same function), so a weight may wander or differ between chains in a good run. (The "
        "paper's trace plots, its Appendix D.)",
    )
    report.figure(
        figures.autocorrelation_figure(outcomes),
        "Autocorrelation of f, averaged over a grid of 21 inputs, a line for each chain, against the lag in steps. The "
        "faster it falls to zero, the more a step is worth.",
    )
    report.heading("Settings")
    report.text(
        f"Training: Adam, learning rate {history.settings['learning_rate']:g}, l2 {history.settings['l2']:g}, "
        f"{epochs} epochs, loss {history.best_loss:.2f} (negative log-likelihood {history.data_loss:.2f}; the "
        f"best constant has {history.constant_loss:.2f}).\n"
        f"Prior, fitted to the trained network: alpha {prior.alpha:.3f}, sigma_w^2 {prior.sigma2_w:.3f}, sigma_b^2 "
        f"{prior.sigma2_b:.3f}.\n"
        f"Sampling: {settings.chains} chains of {settings.steps:,} steps after the warm-up, {settings.draws:,} draws "
        "of each kept for scores; ESS from every "
        + ", ".join(f"{run['ess_thin']}th ({run['architecture']})" for run in runs)
        + " step."
    )
    for outcome, run in zip(outcomes, runs, strict=True):
        report.text(
            f"{run['architecture']}: {run['kernel']}, {run['warmup_steps']:,} warm-up steps, "
            + ("" if math.isnan(run["step_size"]) else f"step size {run['step_size']:.3g}, ")
            + f"prior variances rescaled by {outcome.draws.network.rescaling:.3g}."
        )
    report.write(path)
