"""Tests of `patrac fit --likelihood`: what is fitted, written, said and predicted for each, and what is refused."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.draws.draws_mixture import load_predictions
from patrac_native.fit.budget import steps_within
from patrac_native.fit.candidates import possible_candidates
from patrac_native.fit.dispersion import estimate_dispersion, most_likely_dispersion
from patrac_native.fit.estimator_settings import settings_of
from patrac_native.fit.evaluation import evaluate_regression
from patrac_native.fit.fit_data import DataRows, FitArrays
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.noise_settings import LIKELIHOODS
from patrac_native.fit.predict import load_preprocessing
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.remedies import FitRemedies
from patrac_native.verdict.remedies import Remedies

QUICK = "--hidden 5 --epochs 60 --l2 1 --chains 2 --draws 20 --thin 5 --warmup 400 --threads 1".split()
OPTIONS = {
    "student-t": ["--target", "weight", "--drop", "visits"],
    "heteroscedastic": ["--target", "weight", "--drop", "visits"],
    "poisson": ["--target", "visits", "--drop", "weight", "--exposure", "days"],
    "negative-binomial": ["--target", "visits", "--drop", "weight", "--test-fraction", "0"],
}


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"width": rng.uniform(-2, 2, n), "depth": rng.normal(size=n)})
    frame["days"] = rng.integers(1, 9, n)
    noise = rng.standard_t(3, n) * np.exp(0.5 * frame["depth"])
    frame["weight"] = 100.0 + 20.0 * (np.sin(2 * frame["width"]) + 0.1 * noise)
    frame["visits"] = rng.poisson(frame["days"] * np.exp(0.5 * frame["width"]))
    return frame


def settings(**given: Any) -> FitSettings:
    return FitSettings(data="table.csv", target="y", **given)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and a run of each likelihood, with what it printed."""
    folder = tmp_path_factory.mktemp("likelihoods")
    table().to_csv(folder / "t.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def runs(place: Path) -> dict[str, str]:
    import contextlib
    import io

    printed = {}
    for name, options in OPTIONS.items():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(
                ["fit", str(place / "t.csv"), "--likelihood", name, *options, *QUICK, "--out", str(place / name)]
            )
        assert code == 0
        printed[name] = out.getvalue()
    return printed


def summary_of(place: Path, name: str) -> Any:
    return json.loads((place / name / "summary.json").read_text(encoding="utf-8"))


def predictions(place: Path, name: str, new: pd.DataFrame, tmp_path: Path, *more: str) -> pd.DataFrame:
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    assert main(["predict", str(place / name), str(tmp_path / "new.csv"), "--out", str(out), "--overwrite", *more]) == 0
    return pd.read_csv(out)


def test_each_run_says_its_likelihood(place: Path, runs: dict[str, str]) -> None:
    for name, printed in runs.items():
        summary = summary_of(place, name)
        assert f"regression (as --likelihood {name} asks)" in printed
        assert summary["likelihood"]["name"].split("_")[0] == name.split("-")[0]
        assert summary["noise_variance"] is None and np.isfinite(summary["scores"]["nlpd"])
        html = (place / name / "report.html").read_text(encoding="utf-8")
        counts = summary["target"] == "visits"
        assert ("Counts are not standardised" in html) == counts == ("RMSE, CRPS and widths are counts" in html)
        assert ("The target is standardised" in html) == ("standardised target" in html) == (not counts)
    assert "Student&#39;s t distribution with 4 degrees of freedom" in (place / "student-t" / "report.html").read_text()
    assert "the network predicts" in (place / "heteroscedastic" / "report.html").read_text()
    assert "f is the logarithm of the mean count, for an exposure of one:" in runs["poisson"]
    assert "standardised target" not in runs["poisson"]
    assert "f is the mean and the log-variance of the standardised target" in runs["heteroscedastic"]


def test_student_t_has_sampled_scales_in_the_targets_units(place: Path, runs: dict[str, str], tmp_path: Path) -> None:
    draws, (prep, _) = load_predictions(place / "student-t" / "draws.npz"), load_preprocessing(str(place / "student-t"))
    scale = np.sqrt(draws.members[0].stats["variance"].mean()) * prep.target_scale
    assert summary_of(place, "student-t")["noise_scale"] == pytest.approx(scale, rel=1e-12)
    assert f"scale {scale:.4g} in the target's units" in runs["student-t"]
    new = table(30).drop(columns=["weight", "visits"])
    read = predictions(place, "student-t", new, tmp_path)
    assert list(read.columns) == ["mean", "sd", "lower", "upper", "sd_f", "outside"]
    assert (read.sd > read.sd_f).all() and (read.lower < read["mean"]).all() and (read["mean"] < read.upper).all()


def test_heteroscedastic_predictions_have_the_noise_of_each_row(
    place: Path, runs: dict[str, str], tmp_path: Path
) -> None:
    new = table(30).drop(columns=["weight", "visits"])
    read = predictions(place, "heteroscedastic", new, tmp_path)
    assert list(read.columns) == ["mean", "sd", "lower", "upper", "sd_f", "sd_noise", "outside"]
    prep, _ = load_preprocessing(str(place / "heteroscedastic"))
    draws = pn.Draws.load(place / "heteroscedastic" / "draws.npz")
    f = draws.predict_outputs(prep.transform(new)).reshape(-1, 30, 2).astype(np.float64)
    noise = np.sqrt(np.exp(f[..., 1]).mean(axis=0)) * prep.target_scale
    np.testing.assert_allclose(read.sd_noise, noise, rtol=1e-5)
    np.testing.assert_allclose(read.sd, np.hypot(read.sd_f, read.sd_noise), rtol=2e-5)
    assert read.sd_noise.std() > 0


def test_counts_have_whole_intervals_in_proportion_to_the_exposure(
    place: Path, runs: dict[str, str], tmp_path: Path
) -> None:
    prep, _ = load_preprocessing(str(place / "poisson"))
    assert prep.counts and prep.exposure == "days" and (prep.target_mean, prep.target_scale) == (0.0, 1.0)
    assert prep.names == ["width", "depth"]
    new = table(30).drop(columns=["weight", "visits"])
    read = predictions(place, "poisson", new, tmp_path)
    assert read.lower.dtype == read.upper.dtype == np.int64 and (read.lower >= 0).all()
    more = predictions(place, "poisson", new.assign(days=3 * new.days), tmp_path)
    np.testing.assert_allclose(more["mean"], 3 * read["mean"], rtol=2e-5)
    X, offset = prep.transform(new), prep.offset(new)
    draws = load_predictions(place / "poisson" / "draws.npz")
    np.testing.assert_allclose(read["mean"], draws.predict(X, offset=offset).mean(axis=(0, 1))[:, 0], rtol=1e-5)


def test_predictions_of_counts_are_scored_with_their_exposure(
    place: Path, runs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table(50).drop(columns="weight")
    predictions(place, "poisson", frame, tmp_path, "--scores", str(tmp_path / "s.json"))
    printed = capsys.readouterr().out
    assert "NLPD a row " in printed and "standardised target" not in printed
    prep, _ = load_preprocessing(str(place / "poisson"))
    draws = load_predictions(place / "poisson" / "draws.npz")
    X, y, offset = prep.transform(frame), prep.transform_target(frame), prep.offset(frame)
    expected = draws.nlpd(X, y, offset=offset).mean()
    scores = json.loads((tmp_path / "s.json").read_text())
    assert scores["nlpd"] == pytest.approx(expected, rel=1e-12) == scores["nlpd_in_units"]
    assert scores["nlpd_network"] == pytest.approx(draws.network_nlpd(X, y, offset=offset).mean(), rel=1e-12)
    without = evaluate_regression(draws, prep, X, y).scores["nlpd"]
    assert without > expected + 0.5
    assert main(["predict", str(place / "poisson"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "q.csv")]) == 0
    frame.drop(columns="days").to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(place / "poisson"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "r.csv")]) == 2
    assert "the table lacks the column 'days' of the exposure of the counts" in capsys.readouterr().err


def test_the_dispersion_is_estimated_and_said(place: Path, runs: dict[str, str]) -> None:
    said = re.search(r"dispersion (\S+), the most likely one on 24 training rows around", runs["negative-binomial"])
    found = summary_of(place, "negative-binomial")["likelihood"]["dispersion"]
    assert said is not None and float(said[1]) == pytest.approx(found, rel=0.01)
    assert "whose variance is mean + " in runs["negative-binomial"]


def test_leave_one_out_scores_of_counts_stand_beside_the_validation_loss(place: Path, runs: dict[str, str]) -> None:
    scores = summary_of(place, "negative-binomial")["scores"]
    net = load_predictions(place / "negative-binomial" / "draws.npz").members[0].network.net
    assert net.history is not None and scores["rmse_network"] is None
    assert scores["nlpd_network"] == net.history.settings["validation"]["loss"]


def test_the_most_likely_dispersion_is_found() -> None:
    """Its standard error is 1 / sqrt(information), about sqrt(2) dispersion / sqrt(rows) where means are large."""
    rng = np.random.default_rng(1)
    f = rng.uniform(2, 5, size=(2000, 1))
    rates = np.exp(f) * rng.gamma(1 / 0.3, 0.3, size=f.shape)
    assert most_likely_dispersion(f, rng.poisson(rates)) == pytest.approx(0.3, abs=5 * 0.3 * np.sqrt(2 / 2000) * 1.5)
    assert most_likely_dispersion(f, rng.poisson(np.exp(f))) < 0.01
    # Counts that do not vary at all.
    assert most_likely_dispersion(f, np.round(np.exp(f))) == 1e-4


def test_too_few_rows_for_the_dispersion_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.poisson(3.0, 60)
    prep = Preprocessor("regression", "y", (), ("y",), counts=True)
    with pytest.raises(
        ValueError, match=r"60 training rows are too few .* a fifth of them; give --dispersion, or more"
    ):
        estimate_dispersion(FitArrays(X, y, X[:0], y[:0], 1, prep), settings())


@pytest.mark.parametrize(("name", "likelihood"), [("student-t", pn.StudentT(3, "sampled")), ("poisson", pn.Poisson())])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_estimator_has_the_draws_of_the_command(
    name: str, likelihood: pn.Likelihood, place: Path, tmp_path: Path
) -> None:
    frame = table()[["width", "depth", "weight", "visits"]]
    target = "weight" if name == "student-t" else "visits"
    frame[["width", "depth", target]].to_csv(tmp_path / "t.csv", index=False)
    extra = ["--df", "3"] if name == "student-t" else []
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", target, "--likelihood", name, *extra, *QUICK]
    options = ["--test-fraction", "0", "--draws", "30", "--architecture", "mix", "--k", "3", "--out"]
    assert main([*arguments, *options, str(tmp_path / "run")]) == 0
    reg = pn.PatracRegressor(
        5, max_iter=60, l2=1.0, k=3, chains=2, draws=30, thin=5, warmup=400, likelihood=likelihood, random_state=0
    )
    reg.fit(frame[["width", "depth"]], frame[target])
    stored = load_predictions(tmp_path / "run" / "draws.npz")
    np.testing.assert_array_equal(reg.draws_.members[0].theta, stored.members[0].theta)
    assert reg.draws_.likelihood == stored.likelihood


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ["--target", "weight", "--likelihood", "poisson"],
            "the target 'weight' must hold counts 0, 1, 2, ... for a likelihood of counts; got ",
        ),
        (
            ["--target", "grade", "--likelihood", "student-t"],
            "--likelihood student-t is a distribution of numbers, and this is a classification; leave it out, or",
        ),
        (
            ["--target", "visits", "--task", "classification", "--likelihood", "poisson"],
            "--likelihood poisson is a distribution of numbers, and this is a classification",
        ),
        (
            ["--target", "weight", "--likelihood", "student-t", "--noise-variance", "4"],
            "--noise-variance belongs to --likelihood gaussian, and the likelihood is --likelihood student-t; give",
        ),
        (
            ["--target", "weight", "--df", "4"],
            "--df belongs to --likelihood student-t, and the likelihood is not given; give --likelihood",
        ),
        (
            ["--target", "visits", "--exposure", "days"],
            "--exposure belongs to --likelihood poisson or --likelihood negative-binomial, and the likelihood is",
        ),
        (["--target", "weight", "--likelihood", "student-t", "--df", "0.5"], "--df must be from 1 to 1e+08; got 0.5"),
        (["--target", "weight", "--likelihood", "student-t", "--df", "nan"], "--df must be from 1 to 1e+08; got nan"),
        (
            ["--target", "visits", "--likelihood", "negative-binomial", "--dispersion", "0"],
            "--dispersion must be at least 1e-08 and finite; got 0. --likelihood poisson is the limit of dispersion 0",
        ),
        (
            ["--target", "visits", "--likelihood", "poisson", "--exposure", "depth"],
            "the exposure 'depth' must be positive; got -",
        ),
        (
            ["--target", "visits", "--likelihood", "poisson", "--exposure", "visits"],
            "--exposure names 'visits', which --target names too",
        ),
        (
            ["--target", "visits", "--likelihood", "poisson", "--exposure", "month"],
            "--exposure must be a column's name or its number in 0..5; got 'month'",
        ),
    ],
)
def test_what_a_likelihood_does_not_take_is_refused_by_name(
    extra: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(30).assign(grade=["a", "b", "c"] * 10).to_csv(tmp_path / "t.csv", index=False)
    assert main(["fit", str(tmp_path / "t.csv"), "--epochs", "5", *extra, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("patrac fit: error: ") and message in line
    assert not (tmp_path / "run").exists()


def test_zeros_and_ones_are_counts_where_so_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two different numbers are otherwise taken for classes; too few rows for Student-t noise name another option."""
    pd.DataFrame({"a": [0.5, 1.5, 2.0, 3.0], "y": [0, 1, 1, 0]}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--test-fraction", "0", "--out", str(tmp_path / "r")]
    assert main([*arguments, "--likelihood", "negative-binomial"]) == 2
    read = capsys.readouterr()
    assert "target 'y': regression (as --likelihood negative-binomial asks)" in read.out
    assert "4 training rows are too few to estimate the dispersion on a fifth of them" in read.err
    assert main([*arguments, "--likelihood", "student-t"]) == 2
    assert "give --likelihood gaussian with --noise-variance, or more rows" in capsys.readouterr().err


def test_every_candidate_takes_every_likelihood() -> None:
    """The choice is the same for all numbers: each posterior can be built, and the budget counts its steps."""
    rng = np.random.default_rng(0)
    X, chosen = rng.normal(size=(40, 3)), settings(hidden=(8, 8), dispersion=0.5, likelihood="negative-binomial")
    for name in LIKELIHOODS:
        (likelihood,) = settings(likelihood=name).likelihoods_of("regression", 0.5)
        likelihood = likelihood.with_prior_guess([1.0])
        y = rng.poisson(2.0, 40) if likelihood.targets == "count" else rng.normal(size=40)
        found = possible_candidates(chosen, [likelihood])
        assert [(one.architecture.label(), one.prior, one.networks) for one in found] == [
            ("Full", "gaussian", 1),
            ("Full", "trace-class", 1),
            ("Mix(5)", "trace-class", 4),
        ]
        m = likelihood.outputs_per_target
        nets = [
            pn.Network(
                [rng.normal(size=(8, 3)), rng.normal(size=(8, 8)), rng.normal(size=(m, 8))],
                [rng.normal(size=8), rng.normal(size=8), np.zeros(m)],
            )
        ]
        for one in found:
            (post,) = one.posteriors(nets, DataRows(X, y), chosen)
            variance = {"variance": 1.0} if likelihood.is_sampled else {}
            assert np.isfinite(post.log_likelihood(post.theta_map, **variance))
            assert steps_within(1.0, post, one.n_chains) > 1000


def test_remedies_for_intervals_name_other_likelihoods() -> None:
    e: Any = SimpleNamespace(architecture=pn.Mix)
    full: Any = SimpleNamespace(architecture=pn.Full)
    command = settings()
    gaussian = FitRemedies(command, pn.Gaussian("sampled"))
    assert gaussian.for_narrow_intervals(e) == (
        "let the noise depend on the inputs, --likelihood heteroscedastic; or take a larger architecture, "
        "--architecture full, without fixed nodes."
    )
    varying = FitRemedies(command, pn.HeteroscedasticGaussian())
    assert varying.for_narrow_intervals(full) == "predict by several networks, --networks 8."
    assert varying.for_wide_intervals(e) == "try other noise, --likelihood student-t."
    assert (
        FitRemedies(settings(networks=2), pn.HeteroscedasticGaussian()).for_narrow_intervals(full) == "take more rows."
    )
    assert "--likelihood student-t" in gaussian.for_wide_intervals(e)
    # What the fit has tried is no remedy.
    tried = FitRemedies(command, pn.Gaussian("sampled"), [pn.HeteroscedasticGaussian(), pn.Gaussian("sampled")])
    assert tried.for_narrow_intervals(full) == "predict by several networks, --networks 4."
    assert tried.for_wide_intervals(e) == "let the noise have outliers, --likelihood student-t."
    assert "--likelihood negative-binomial" in FitRemedies(command, pn.Poisson()).for_narrow_intervals(e)
    assert "give a larger --dispersion" in FitRemedies(command, pn.NegativeBinomial(0.1)).for_narrow_intervals(e)
    assert "sample the noise variance" in FitRemedies(command, pn.Gaussian(1.0)).for_narrow_intervals(e)
    estimator = FitRemedies(settings_of(pn.PatracRegressor().get_params()), pn.Poisson())
    assert "likelihood=NegativeBinomial(dispersion)" in estimator.for_narrow_intervals(e)
    classes = FitRemedies(command, pn.Categorical()).for_poor_predictions()
    assert classes == "the model does not suit: choose another --prior or --architecture."


@pytest.mark.parametrize(
    ("likelihood", "narrow", "wide"),
    [
        (pn.Gaussian(1.0), 'sample the noise variance, Gaussian("sampled")', "or let the noise depend on the inputs"),
        (pn.Gaussian("sampled"), "depend on the inputs, HeteroscedasticGaussian()", "HeteroscedasticGaussian()"),
        (
            pn.StudentT(5.0),
            'the scale of the noise, StudentT(df, "sampled")',
            'StudentT(df, "sampled"), or let the noise',
        ),
        (pn.StudentT(5.0, "sampled"), "depend on the inputs, HeteroscedasticGaussian()", "HeteroscedasticGaussian()"),
        (pn.HeteroscedasticGaussian(), "predict by several networks", 'outliers, StudentT(df, "sampled")'),
        (pn.Poisson(), "NegativeBinomial(dispersion)", "vary less than Poisson's"),
        (pn.NegativeBinomial(0.1), "a larger dispersion", "a smaller dispersion, or Poisson()"),
    ],
)
def test_remedies_in_python_name_what_is_not_there_already(likelihood: Any, narrow: str, wide: str) -> None:
    full, mix = (SimpleNamespace(architecture=one, likelihood=likelihood) for one in (pn.Full, pn.Mix))
    assert narrow in Remedies().for_narrow_intervals(full) and wide in Remedies().for_wide_intervals(full)
    assert "Full()" not in Remedies().for_narrow_intervals(full) and "Full()" in Remedies().for_narrow_intervals(mix)


def test_earlier_preprocessing_is_read() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": [3, 5, 4]})
    content = Preprocessor.fit(frame, "y", task="regression").to_dict()
    for name in ("counts", "exposure"):
        del content[name]
    read = Preprocessor.from_dict({**content, "format": 2})
    assert not read.counts and read.exposure is None and read.targets == "real"
    np.testing.assert_array_equal(read.transform_target(frame), Preprocessor.from_dict(content).transform_target(frame))
