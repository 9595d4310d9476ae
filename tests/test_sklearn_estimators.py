"""The estimators of scikit-learn: their choices are those of `patrac fit`, and they behave as its users expect."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.posterior.partial_network import PartialNetwork

SMALL: dict[str, Any] = {
    "hidden_layer_sizes": (6,),
    "max_iter": 150,
    "l2": 0.3,
    "chains": 2,
    "draws": 60,
    "thin": 10,
    "warmup": 1000,
    "random_state": 3,
}
FULL = {**SMALL, "architecture": "full"}
Array = npt.NDArray[Any]


def rows(n: int = 90) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, 3)) * [1, 10, 0.1] + [0, 50, 2], 3)
    return X, np.round(20 + 4 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + rng.normal(size=n), 3)


@pytest.fixture(scope="module")
def fitted() -> pn.PatracRegressor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pn.PatracRegressor(**FULL).fit(*rows())


@pytest.fixture(scope="module")
def labelled() -> tuple[pn.PatracClassifier, pd.DataFrame]:
    X, y = rows(120)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [33, 37])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pn.PatracClassifier(**{**SMALL, "k": 3}).fit(frame, labels), frame.assign(y=labels)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_fit_has_the_draws_of_the_command(task: str, tmp_path: Path) -> None:
    """The automatic choice included: the same seed and data give the same networks, posterior and draws, to the bit."""
    X, y = rows()
    if task == "classification":
        y = (y > 35).astype(int)
    pd.DataFrame(np.column_stack([X, np.full(len(y), 7.0), y]), columns=[*"abcdy"]).to_csv(tmp_path / "t.csv")
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--task", task, "--drop", "0", "--test-fraction", "0"]
    size = "--hidden 8 --epochs 60 --l2 1 --minutes 0.001 --chains 2 --draws 60 --seed 5".split()
    assert main([*command, *size, "--out", str(tmp_path / "run")]) == 0
    load = pn.Draws.load if task == "regression" else pn.DrawsMixture.load
    of_command = load(tmp_path / "run" / "draws.npz")
    kind = pn.PatracRegressor if task == "regression" else pn.PatracClassifier
    # A constant column is left out in either case.
    est = kind(8, max_iter=60, l2=1, minutes=0.001, chains=2, draws=60, random_state=5)
    est.fit(np.column_stack([X, np.full(len(y), 7.0)]), y)
    assert len(of_command.members) == len(est.draws_.members)
    for one, other in zip(of_command.members, est.draws_.members, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
    assert "without 1 constant columns, column 3" in str(est.report_)


def test_intervals_quantiles_and_moments_are_those_of_one_distribution(fitted: pn.PatracRegressor) -> None:
    X, y = rows()
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(fitted.predict(X), mean)
    lower, upper = fitted.predict_interval(X, coverage=0.8)
    quantiles = fitted.predict_quantiles(X, [0.1, 0.5, 0.9])
    # The search for a quantile ends with steps below 1e-10 of the scale of the noise.
    np.testing.assert_allclose(quantiles[:, [0, 2]], np.stack([lower, upper], axis=1), rtol=0, atol=1e-10 * y.std())
    assert (np.diff(quantiles, axis=1) > 0).all()
    parts = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(parts.total, std**2, rtol=1e-12)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, rtol=1e-12)
    assert (parts.epistemic > 0).all()
    # The mean noise variance is that of the draws in the units of y: one number for all rows.
    noise = fitted.draws_.stats["variance"].mean() * np.std(y) ** 2
    np.testing.assert_allclose(parts.aleatoric, noise, rtol=1e-6)
    # Samples: each standard error is that of independent noise around the draws, of which 120 are used once each.
    samples = fitted.sample_y(X, 120, random_state=1)
    assert samples.shape == (len(X), 120)
    assert stats.kstest((samples.mean(axis=1) - mean) / std * np.sqrt(120), "norm").statistic < 0.25
    below = (samples < quantiles[:, [0]]).mean()
    assert abs(below - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 120)
    np.testing.assert_array_equal(fitted.sample_y(X, 2, random_state=1), samples[:, :2])
    assert fitted.sample_y(X[:2], 300).shape == (2, 300)
    assert 0.7 < fitted.score(X, y) < 1
    with pytest.raises(ValueError, match="coverage must be between 0 and 1; got 90"):
        fitted.predict_interval(X, 90)
    with pytest.raises(ValueError, match="quantiles must be between 0 and 1; got 5"):
        fitted.predict_quantiles(X, 5)


def test_a_sample_evaluates_each_row_once(fitted: pn.PatracRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = rows()
    evaluated: list[int] = []
    whole = PartialNetwork.predict

    def counted(network: PartialNetwork, theta: Any, inputs: Any, **options: Any) -> Any:
        evaluated.append(len(inputs))
        return whole(network, theta, inputs, **options)

    monkeypatch.setattr(PartialNetwork, "predict", counted)
    fitted.sample_y(X, 5)
    assert sum(evaluated) == len(X)


def test_string_labels_and_data_frames(labelled: tuple[pn.PatracClassifier, pd.DataFrame]) -> None:
    clf, table = labelled
    X = table[["a", "b", "c"]]
    assert clf.classes_.tolist() == ["high", "low", "middle"] and clf.feature_names_in_.tolist() == ["a", "b", "c"]
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (clf.predict(X) == clf.classes_[p.argmax(axis=1)]).all() and clf.score(X, table.y) > 0.7
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), p, rtol=1e-12)
    total, aleatoric, epistemic = clf.predict_uncertainty(X)
    np.testing.assert_allclose(total, aleatoric + epistemic, atol=1e-12)
    np.testing.assert_allclose(total, stats.entropy(p, axis=1), atol=1e-6)
    drawn = clf.sample_y(X, 120)
    share = (drawn == "low").mean()
    assert drawn.shape == (120, 120) and abs(share - p[:, 1].mean()) < 0.02
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(X[["b", "a", "c"]])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_several_targets_have_their_own_units_and_noise() -> None:
    X, y = rows()
    rng = np.random.default_rng(1)
    Y = np.column_stack([y, 1000 * (X[:, 0] + rng.normal(size=len(y)))])
    reg = pn.PatracRegressor(**FULL).fit(X, Y)
    mean, std = reg.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape and reg.n_outputs_ == 2
    lower, upper = reg.predict_interval(X, 0.9)
    inside = ((lower <= Y) & (Y <= upper)).mean(axis=0)
    # Three standard errors of the coverage of 90 rows.
    assert (np.abs(inside - 0.9) < 3 * np.sqrt(0.09 / len(y))).all()
    noise = reg.predict_uncertainty(X).aleatoric.mean(axis=0)
    assert 0.5 < noise[0] < 2 and 0.5e6 < noise[1] < 2e6
    assert reg.predict_quantiles(X, [0.5]).shape == (len(y), 2, 1)
    assert reg.sample_y(X, 4).shape == (len(y), 2, 4)
    column = pn.PatracRegressor(**FULL).fit(X, y[:, None])
    assert column.predict(X).shape == (len(y), 1)
    assert "coverage of 90% intervals" in str(reg.report_)


def test_files_and_pickles_predict_to_the_bit(
    fitted: pn.PatracRegressor, labelled: tuple[pn.PatracClassifier, pd.DataFrame], tmp_path: Path
) -> None:
    X, _ = rows()
    fitted.save(tmp_path / "reg")
    assert b"pickle" not in (tmp_path / "reg").read_bytes()
    for copy in (pn.PatracRegressor.load(tmp_path / "reg"), pickle.loads(pickle.dumps(fitted))):
        for one, other in zip(fitted.predict_interval(X), copy.predict_interval(X), strict=True):
            np.testing.assert_array_equal(one, other)
        assert str(copy.report_) == str(fitted.report_) and str(copy) == str(fitted)
        assert copy.get_params() == fitted.get_params() and copy.n_iter_ == fitted.n_iter_
        with pytest.raises(AttributeError, match=r"posterior_ is not part of the files and pickles.*fit again"):
            _ = copy.posterior_
    assert fitted.posterior_.data.n_rows == len(X)
    clf, table = labelled
    clf.save(tmp_path / "clf")
    copy = pn.PatracClassifier.load(tmp_path / "clf")
    np.testing.assert_array_equal(copy.predict(table[["a", "b", "c"]]), clf.predict(table[["a", "b", "c"]]))
    with pytest.raises(ValueError, match=r"holds a PatracClassifier; read it with PatracClassifier\.load"):
        pn.PatracRegressor.load(tmp_path / "clf")
    with pytest.raises(ValueError, match="holds an estimator, not draws"):
        pn.Draws.load(tmp_path / "clf")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        clf.save(tmp_path / "clf")
    for method in ("predict", "predict_interval", "predict_quantiles", "sample_y", "predict_uncertainty"):
        with pytest.raises(NotFittedError):
            getattr(pn.PatracRegressor(), method)(X)
    for method in ("predict_proba", "sample_y", "predict_uncertainty"):
        with pytest.raises(NotFittedError):
            getattr(pn.PatracClassifier(), method)(X)
    with pytest.raises(NotFittedError):
        pn.PatracRegressor().save(tmp_path / "no")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_parameters_that_are_objects_are_part_of_files(tmp_path: Path) -> None:
    X, y = rows()
    given = {**FULL, "likelihood": pn.StudentT(4.0, 2.0), "kernel": pn.PCNL(0.1), "warmup": pn.Warmup((pn.Phase(500),))}
    reg = pn.PatracRegressor(**given).fit(X, y)
    assert reg.draws_.settings["kernel"]["name"] == "pcnl" and reg.draws_.settings["warmup_steps"] == 500
    # The scale is given in the units of y.
    assert reg.draws_.likelihood.scale == pytest.approx(2.0 / np.std(y))
    reg.save(tmp_path / "t")
    copy = pn.PatracRegressor.load(tmp_path / "t")
    assert {name: str(value) for name, value in copy.get_params().items()} == {
        name: str(value) for name, value in reg.get_params().items()
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_likelihoods() -> None:
    X, y = rows()
    fixed = pn.PatracRegressor(likelihood=pn.Gaussian(4.0), **FULL).fit(X, y)
    np.testing.assert_allclose(fixed.predict_uncertainty(X).aleatoric, 4.0, rtol=1e-9)
    varying = pn.PatracRegressor(likelihood=pn.HeteroscedasticGaussian(), **FULL).fit(X, y)
    assert np.ptp(varying.predict_uncertainty(X).aleatoric) > 0
    counts = np.random.default_rng(0).poisson(np.exp(0.2 * X[:, 1] - 8))
    poisson = pn.PatracRegressor(likelihood=pn.Poisson(), **FULL).fit(X, counts)
    lower, upper = poisson.predict_interval(X, 0.9)
    assert (lower % 1 == 0).all() and ((lower <= counts) & (counts <= upper)).mean() > 0.8
    assert (poisson.predict(X) > 0).all()
    two = np.column_stack([y, 1000 * y])
    with pytest.raises(ValueError, match="one variance for targets that are standardised by different scales"):
        pn.PatracRegressor(likelihood=pn.Gaussian("sampled", pooled=True), **FULL).fit(X, two)
    with pytest.raises(TypeError, match=r"likelihood must be one of numbers.*PatracClassifier"):
        pn.PatracRegressor(likelihood=pn.Categorical(), **FULL).fit(X, y)
    with pytest.raises(TypeError, match=r"likelihood must be Categorical\(\)"):
        pn.PatracClassifier(likelihood=pn.Gaussian(1.0), **FULL).fit(X, y > 35)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_scaling_rows_reach_the_network_as_they_are() -> None:
    X, y = rows()
    reg = pn.PatracRegressor(standardize=False, **FULL).fit(X, y)
    np.testing.assert_array_equal(reg.posterior_.data.X, X)
    np.testing.assert_array_equal(reg.posterior_.data.y[:, 0], y)
    assert "X: 3 columns, as they are" in str(reg.report_)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pipelines_grid_search_and_cross_validation() -> None:
    X, y = rows()
    model = make_pipeline(StandardScaler(), pn.PatracRegressor(**SMALL))
    search = GridSearchCV(model, {"patracregressor__k": [1, 3]}, cv=3).fit(X, y)
    best = search.best_estimator_[-1]
    assert best.draws_.members[0].network.architecture == pn.Mix(search.best_params_["patracregressor__k"])
    assert search.best_score_ > 0.5
    scores = cross_val_score(pn.PatracRegressor(**FULL), X, y, cv=3)
    assert scores.shape == (3,) and (scores > 0.5).all()
    copy = clone(pn.PatracRegressor(likelihood=pn.Gaussian(4.0), **FULL))
    assert copy.likelihood == pn.Gaussian(4.0) and not hasattr(copy, "draws_")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_row_weights_are_routed() -> None:
    import sklearn

    X, y = rows()
    weights = np.where(np.arange(len(y)) < 60, 1.0, 1e-6)
    with sklearn.config_context(enable_metadata_routing=True):
        reg = pn.PatracRegressor(**FULL).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        fitted = make_pipeline(scaler, reg).fit(X, y, sample_weight=weights)[-1]
    assert fitted.posterior_.row_weights.sum() == pytest.approx(weights.sum())


def test_a_fit_that_has_not_converged_warns_with_a_remedy() -> None:
    X, y = rows()
    short = pn.PatracRegressor((30, 30), architecture="full", l2=0.3, max_iter=50, minutes=0.0005, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"(?s)PatracRegressor: the chains have not converged.*minutes=0\.0"):
        short.fit(X, y)
    assert not short.report_.converged and "thin=" not in str(short.report_.verdict)
    given = clone(short).set_params(thin=1, draws=20)
    with pytest.warns(ConvergenceWarning, match=r"run longer, thin=\d+"):
        given.fit(X, y)


def test_a_fit_prints_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reg = pn.PatracRegressor(**FULL).fit(X, y)
        assert capsys.readouterr() == ("", "")
        pn.PatracRegressor(verbose=True, **FULL).fit(X, y)
    said = capsys.readouterr().out
    assert "training [3, 6, 1] tanh" in said and "sampling Full" in said
    # The wall-clock times of the two fits differ.
    told = [
        line
        for line in said.splitlines()
        if not any(word in line for word in ("time:", "steps/s", "per second")) and " s" not in line[-2:]
    ]
    assert set(told) <= set(str(reg.report_).splitlines()) and "verdict: " in said
    assert reg._repr_html_() if hasattr(reg, "_repr_html_") else reg._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"minutes": 0}, ValueError, r"^minutes must be positive and finite; got 0"),
        ({"max_iter": 0}, ValueError, r"^max_iter must be at least 1; got 0"),
        ({"hidden_layer_sizes": ()}, ValueError, r"^hidden_layer_sizes must hold positive widths"),
        ({"hidden_layer_sizes": "50"}, TypeError, r"^hidden_layer_sizes must be an integer, or one for each"),
        ({"k": 9, "hidden_layer_sizes": 6}, ValueError, r"^k must be .*got 9 for .* 6 nodes.*hidden_layer_sizes"),
        ({"architecture": "full", "k": 3}, ValueError, r"^k has no meaning for architecture='full'"),
        ({"architecture": "all"}, ValueError, r"^architecture must be one of auto, full, mix, out, sep; got 'all'"),
        ({"prior": "gaussian", "prior_alpha": 2.0}, ValueError, r"^prior_alpha is a parameter of prior='trace-class'"),
        ({"draws": 2.5}, TypeError, r"^draws must be an integer or None; got 2.5"),
        ({"draws": 10, "chains": 2, "k": 1}, ValueError, r"^draws must be at least 13 for 2 chains of each network"),
        ({"l2": "1"}, TypeError, r"^l2 must be a number or None; got '1'"),
        ({"warmup": "long"}, ValueError, r'^warmup must be a number of steps or "paper"; got \'long\''),
        ({"n_jobs": 0}, ValueError, r"^n_jobs must not be 0"),
        ({"kernel": "nuts"}, ValueError, r'^kernel must be "auto" or a kernel'),
        ({"standardize": "X"}, TypeError, r"^standardize must be True or False"),
        ({"random_state": -1}, ValueError, r"^random_state must be at least 0"),
    ],
)  # fmt: skip
def test_messages_name_parameters(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        pn.PatracRegressor(**{"l2": 1.0, "max_iter": 5, **given}).fit(*rows())
    assert "--" not in str(raised.value)


def test_refused_rows() -> None:
    X, y = rows()
    with pytest.raises(ValueError, match=r"8 training rows are too few to estimate the noise.*likelihood=Gaussian"):
        pn.PatracRegressor(**FULL).fit(X[:8], y[:8])
    with pytest.raises(ValueError, match="y is 2 in every row"):
        pn.PatracRegressor(**FULL).fit(X, np.full(len(X), 2.0))
    with pytest.raises(ValueError, match="every column of X is constant"):
        pn.PatracRegressor(**FULL).fit(np.ones((len(X), 2)), y)
    with pytest.raises(ValueError, match="y has one class only, 'a'"):
        pn.PatracClassifier(**SMALL).fit(X, np.full(len(X), "a"))


def test_masked_entries_and_lone_extremes_are_refused(fitted: pn.PatracRegressor) -> None:
    """scikit-learn would use the values behind a mask, and one 1e300 would remove its column without a word."""
    X, y = rows()
    hidden = np.ma.masked_array(X, X > 60)
    of_y = np.ma.masked_array(y, y > 36)
    for call in (lambda: pn.PatracRegressor(**FULL).fit(hidden, y), lambda: fitted.predict(hidden)):
        with pytest.raises(ValueError, match=r"^X must not have masked entries; got \d+, the first at \["):
            call()
    with pytest.raises(ValueError, match=r"^y must not have masked entries"):
        pn.PatracRegressor(**FULL).fit(X, of_y)
    with pytest.raises(ValueError, match=r"^X must not have masked entries"):
        pn.PatracClassifier(**SMALL).fit(hidden, y > 36)
    with pytest.raises(ValueError, match=r"^sample_weight must not have masked entries"):
        pn.PatracRegressor(**FULL).fit(X, y, sample_weight=np.ma.masked_array(np.ones(len(y)), y > 36))
    for extreme in (1e300, 1e12):
        with pytest.raises(
            ValueError, match=r"^column 1 of X has 1e\+\d+, beside which the other values are all alike"
        ):
            pn.PatracRegressor(**FULL).fit(np.where(np.arange(X.size).reshape(X.shape) == 4, extreme, X), y)
        with pytest.raises(ValueError, match=r"^y has 1e\+\d+, beside which the other values are all alike"):
            pn.PatracRegressor(**FULL).fit(X, np.where(np.arange(len(y)) == 3, extreme, y))
    with pytest.raises(ValueError, match=r"^y has 1e\+09 and 1 more such, beside .*remove those rows"):
        pn.PatracRegressor(**FULL).fit(X, np.where(np.arange(len(y)) < 2, 1e9, y))


def test_without_scikit_learn_one_line_names_the_extra() -> None:
    """Importing the package works, and so do the names that do not need it."""
    code = """
        import sys
        sys.modules["sklearn"] = None
        import patrac_native as pn
        print(pn.Mix(2).k, hasattr(pn, "nothing"))
        pn.PatracRegressor
    """
    done = subprocess.run(
        [sys.executable, "-c", re.sub("^ +", "", code, flags=re.M)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "2 False\n" and done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line == (
        "ImportError: pn.PatracRegressor needs sklearn, which is not installed: pip install 'patrac_native[sklearn]'"
    )
