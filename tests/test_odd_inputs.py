"""Inputs that would give wrong numbers without a word, or a traceback from deep inside: each is refused by name."""

from __future__ import annotations

import copy
import datetime
import functools
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.nn.utils import prune

import patrac_native as pn
import problems
from pages import script_of
from patrac_native import diagnostics, plots
from patrac_native.sampling.warmup import Phase
from patrac_native.validation import memory

PRIOR = pn.TraceClassPrior(1.5, 1.0, 1.0)


def network() -> pn.Network:
    return pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])


def posterior() -> pn.Posterior:
    X = np.linspace(-1, 1, 20)[:, None]
    return pn.Posterior(network(), pn.Mix(1), PRIOR, pn.Gaussian(1.0), X, X[:, 0])


# Masked arrays: NumPy would use the values behind the mask.

MASKED = np.ma.masked_array(np.ones((20, 1)), mask=[[row == 7] for row in range(20)])
PLAIN = np.linspace(-1, 1, 20)[:, None]
MASKED_THETA = np.ma.masked_array(np.zeros(4), [1, 0, 0, 0])
MASKED_USES: list[tuple[str, Callable[[], Any]]] = [
    ("X", lambda: pn.train([1, 2, 1], MASKED, PLAIN)),
    ("y", lambda: pn.train([1, 2, 1], PLAIN, MASKED)),
    ("X", lambda: pn.train([1, 2, 1], list(MASKED), PLAIN)),
    ("X", lambda: pn.Posterior(network(), pn.Mix(1), PRIOR, pn.Gaussian(1.0), MASKED, PLAIN)),
    ("y", lambda: pn.Posterior(network(), pn.Mix(1), PRIOR, pn.Gaussian(1.0), PLAIN, MASKED)),
    ("sample_weight", lambda: pn.train([1, 2, 1], PLAIN, PLAIN, sample_weight=MASKED[:, 0])),
    ("X", lambda: network().predict(MASKED)),
    ("theta", lambda: posterior().log_likelihood(MASKED_THETA)),
    ("theta", lambda: posterior().log_prior(MASKED_THETA.astype(np.float32))),
    ("f", lambda: diagnostics.convergence(MASKED.reshape(1, 20, 1))),
    (r"Custom: weight_masks\[0\]", lambda: pn.Custom([np.ma.masked_array([[1, 0]], [[1, 0]], dtype=bool)], [[True]])),
]


@pytest.mark.parametrize(("argument", "call"), MASKED_USES)
def test_masked_entries_are_refused(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} must not have masked entries; got 1, the first at \["):
        call()


def test_a_mask_without_entries_is_an_array() -> None:
    whole = np.ma.masked_array(PLAIN, mask=np.zeros(PLAIN.shape, dtype=bool))
    np.testing.assert_array_equal(network().predict(whole), network().predict(PLAIN))


# Data frames


@pytest.fixture(scope="module")
def frames() -> tuple[pd.DataFrame, pn.Network, pn.Draws]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"width": rng.normal(size=60), "age": rng.uniform(size=60)})
    y = X["width"].to_numpy() + 3 * X["age"].to_numpy()
    net = pn.train([2, 4, 1], X, y, l2=0.1, max_epochs=100, validation_fraction=0)
    post = pn.Posterior(net, pn.Mix(2), PRIOR, pn.Gaussian(1.0), X[["age", "width"]], y)
    np.testing.assert_array_equal(post.data.X, X.to_numpy())
    return X, net, pn.sample(post, chains=2, draws=10, warmup=100, seed=0)


def test_columns_are_matched_by_name(frames: tuple[pd.DataFrame, pn.Network, pn.Draws], tmp_path: Path) -> None:
    X, net, draws = frames
    assert net.input_names == ("width", "age")
    draws.save(tmp_path / "d")
    net.save(tmp_path / "n")
    swapped = X[["age", "width"]]
    mixture = pn.DrawsMixture([draws, draws])
    for predict in (
        net.predict,
        pn.Network.load(tmp_path / "n").predict,
        net.permuted([np.array([1, 0, 3, 2])]).predict,
        draws.predict,
        pn.Draws.load(tmp_path / "d").predict,
        mixture.predict,
        lambda X: draws.interval(X).lower,
        lambda X: draws.summary(X).mean,
    ):
        values = predict(X)
        np.testing.assert_array_equal(predict(swapped), values)
        np.testing.assert_array_equal(predict(X.to_numpy()), values)
        # The order matters to these numbers, so that a match by position would show.
        assert not np.array_equal(predict(swapped.to_numpy()), values)


def test_missing_and_extra_columns_are_named(frames: tuple[pd.DataFrame, pn.Network, pn.Draws]) -> None:
    X, net, draws = frames
    for predict in (net.predict, draws.predict, draws.summary, pn.DrawsMixture([draws]).predict):
        with pytest.raises(ValueError, match="X must have the columns of the training, 'width', 'age'; it lacks"):
            predict(X.rename(columns={"age": "agee"}))
        with pytest.raises(ValueError, match="it also has 'id'"):
            predict(X.assign(id=1))
    with pytest.raises(ValueError, match="X has two columns named 'age'; rename one"):
        draws.predict(X.set_axis(["age", "age"], axis=1))


# Names of columns that are no text, of which two in another order are two others.
NAMES: dict[str, list[Any]] = {
    "years": [2019, 2020],
    "dates": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)],
    "tuples": [("a", 1), ("a", 2)],
    "bytes": [b"a", b"b"],
    "mixed": [None, "a"],
    "positions": [0, 1],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("as_table", [pd.DataFrame, pyarrow.Table.from_pandas], ids=["frame", "Arrow"])
def test_columns_of_any_names_are_matched(
    names: list[Any], as_table: Callable[[pd.DataFrame], Any], frames: tuple[pd.DataFrame, pn.Network, pn.Draws]
) -> None:
    values = frames[0]
    X = pd.DataFrame(values.to_numpy(), columns=pd.Index(names, dtype=object, tupleize_cols=False))
    X = X if as_table is pd.DataFrame else X.set_axis(list(map(str, names)), axis=1)
    y, swapped = X.iloc[:, 0] + 3 * X.iloc[:, 1], as_table(X.iloc[:, ::-1])
    net = pn.train([2, 4, 1], as_table(X), y, l2=0.1, max_epochs=100, validation_fraction=0)
    post = pn.Posterior(net, pn.Mix(2), PRIOR, pn.Gaussian(1.0), swapped, y)
    np.testing.assert_array_equal(post.data.X, X.to_numpy())
    draws = pn.sample(post, chains=2, draws=5, warmup=10, seed=0)
    for predict in (net.predict, draws.predict):
        np.testing.assert_array_equal(predict(swapped), predict(X.to_numpy()))
        np.testing.assert_array_equal(predict(as_table(X)), predict(X.to_numpy()))
        assert not np.array_equal(predict(swapped.to_pandas().to_numpy() if as_table is not pd.DataFrame
                                          else swapped.to_numpy()), predict(swapped))  # fmt: skip


def test_columns_without_names_are_in_the_order_of_the_training(
    frames: tuple[pd.DataFrame, pn.Network, pn.Draws],
) -> None:
    """A frame of pandas' own names, 0 and 1, is an array; other names that the training lacks are refused."""
    X, net, draws = frames
    for predict in (net.predict, draws.predict):
        np.testing.assert_array_equal(predict(X.set_axis([0, 1], axis=1)), predict(X.to_numpy()))
        for names in ([0, "age"], [1, 0], [2019, 2020]):
            with pytest.raises(ValueError, match="X must have the columns of the training, 'width', 'age'; it lacks"):
                predict(X.set_axis(names, axis=1))
        with pytest.raises(ValueError, match="X has two columns named '1'; rename one"):
            predict(X.set_axis([1, "1"], axis=1))

    class Unreadable:
        column_names = ("age", "width")

    with pytest.raises(TypeError, match="X is a Unreadable, whose columns cannot be read; give a pandas DataFrame"):
        net.predict(Unreadable())


def linear(X: pd.DataFrame) -> pn.Posterior:
    net = pn.Network([[[1.0, -2.0]]], [[0.0]])
    return pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, [0.0, 1.0, 2.0])


AB = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 5.0]})


def test_laplace_matches_columns_by_name() -> None:
    X, swapped = AB, AB[["b", "a"]]
    laplace = pn.Laplace(linear(X))
    for one, other in zip(laplace.predict(swapped), laplace.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(laplace.linearised(swapped, 5), laplace.linearised(X, 5))
    assert not np.array_equal(laplace.predict(swapped.to_numpy())[0], laplace.predict(X)[0])
    for call in (laplace.predict, lambda X: laplace.linearised(X, 5)):
        with pytest.raises(ValueError, match="it lacks 'b'"):
            call(X[["a"]])
    with pytest.raises(ValueError, match="seed must be at least 0; got -1"):
        laplace.sample(3, seed=-1)


def test_the_posteriors_frame_names_the_inputs_of_a_network_without_names() -> None:
    swapped = AB[["b", "a"]]
    draws, other = (pn.sample(linear(X), draws=10, seed=0) for X in (AB, swapped))
    np.testing.assert_array_equal(draws.predict(swapped), draws.predict(AB))
    with pytest.raises(ValueError, match="members must have the same inputs in the same order"):
        pn.DrawsMixture([draws, other])


# torch modules that compute something else than their layers say


def sequential() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1))


def altered(change: Callable[[nn.Sequential], object]) -> nn.Sequential:
    module = sequential()
    change(module)
    return module


def replace_forward(module: nn.Module) -> None:
    module.forward = lambda x: x  # type: ignore[method-assign]  # as users do


NO_FORWARD = (lambda *_: None,)
ALTERED: dict[type[Exception], list[tuple[str, nn.Module]]] = {
    TypeError: [
        (r"module 0 \(Sequential\) has a forward h", altered(lambda m: m.register_forward_hook(*NO_FORWARD))),
        (
            r"module 2 \(Linear\) has a forward pre-hook",
            altered(lambda m: m[2].register_forward_pre_hook(*NO_FORWARD)),
        ),
        (r"module 1 \(Tanh\) has a forward hook", altered(lambda m: m[1].register_forward_hook(*NO_FORWARD))),
        (r"module 0 \(Linear\) has a forward method of its own", altered(lambda m: replace_forward(m[0]))),
        (r"module 0 .*pre-hook.*prune\.remove", altered(lambda m: prune.l1_unstructured(m[0], "weight", 1))),
        (
            r"0: Conv2d.*train a head on its features: a Network on trunk\(X\).*docs/trunk\.md",
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(2, 1)),
        ),
        # The imaginary parts would be left out.
        (
            r"layer 0 \(Linear\) has parameters of dtype torch\.complex64; a Network has real",
            sequential().to(torch.complex64),
        ),
    ],
    ValueError: [
        (r"layer 0 \(Linear\) is on the meta device and holds no numbers; load them", sequential().to("meta")),
        (
            r"layer 0 \(LazyLinear\) is not initialised yet; call the module once",
            nn.Sequential(nn.LazyLinear(2), nn.Tanh(), nn.Linear(2, 1)),
        ),
        (
            "layer 1 .LogSoftmax.* Leave it out: `Categorical` applies softmax",
            nn.Sequential(nn.Linear(1, 2), nn.LogSoftmax(-1)),
        ),
    ],
}


@pytest.mark.parametrize(("error", "message", "module"), problems.refusals(ALTERED))
def test_a_module_that_a_network_cannot_follow_is_refused(
    error: type[Exception], message: str, module: nn.Module
) -> None:
    with pytest.raises(error, match=message):
        pn.Network.from_torch(module)


def test_the_page_on_trunks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(script_of("trunk.md", "Conv2d"), "docs/trunk.md", "exec"), names)
    # The bright row tells the class of nearly every image, which chance would not.
    top = names["draws"].predict_proba(names["inputs"](names["images"])).mean(axis=(0, 1)).argmax(axis=1)
    assert (top == names["labels"]).mean() > 0.9
    assert capsys.readouterr().out.count("[") == 6


# Numbers that no machine can hold: the message comes before the memory is taken.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pn.sample(posterior(), chains=10**12, draws=10, warmup=10),
            r"chains=1000000000000, draws=10: the draws of 4 parameters would take 496 TB of memory; this machine has",
        ),
        (lambda: pn.sample(posterior(), chains=1, draws=10**15, warmup=10), "draws=1000000000000000: .* 48,000 TB"),
        (lambda: pn.sample(posterior(), draws=10, thin=10**30), "ask for fewer than 2\\^62"),
        (lambda: pn.train([1, 10**9, 10**9, 1], PLAIN, PLAIN), r"layer_sizes=.*would take 16,000,000 TB"),
        (lambda: pn.train_many([1, 2, 1], PLAIN, PLAIN, networks=10**12), r"networks=1000000000000: .*56 TB"),
        (lambda: posterior().sample_prior(10**15), r"draws=1000000000000000: the draws of 4 parameters.*16,000 TB"),
        (lambda: posterior().prior_predict(PLAIN, 10**15), r"draws=1000000000000000: the draws of 4 param.*Take fewer"),
        (lambda: pn.Laplace(posterior()).sample(10**12), r"draws=1000000000000: the draws of 4 parameters .*96 TB"),
    ],
)
def test_numbers_beyond_the_machine_name_the_memory(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_memory_is_compared_with_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws of 2 chains take 2 (100 (4 * 4 + 4 * 8) + 4 * 4) bytes: 9,632."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 9_632)
    assert pn.sample(posterior(), chains=2, draws=100, warmup=100).n_draws == 100
    monkeypatch.setattr(memory, "machine_memory", lambda: 9_631)
    with pytest.raises(ValueError, match=r"would take 9\.632 kB of memory; this machine has 9\.631 kB"):
        pn.sample(posterior(), chains=2, draws=100, warmup=100)


# What is no array or no path


class Failing:
    """An array of another library, whose conversion fails."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("of its own")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            np.array(["a", "b", pd.NA, "a"], dtype=object),
            r"^y is missing in row 2 \(counted from 0\), 1 in all; remove",
        ),
        (pd.Series(["a", "b", None, "a"], dtype="string"), r"^y is missing in row 2"),
        (
            np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
            "^y holds dates or times; labels are numbers or text",
        ),
        (np.array([datetime.date(2020, 1, 1)] * 2, dtype=object), r"^y holds dates or times.*make them text"),
    ],
)
def test_what_is_no_label_is_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pn.PatracClassifier().fit(np.zeros((len(labels), 1)), labels)


def test_without_standard_error_there_are_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in pythonw and services, also where a bar is asked for."""
    monkeypatch.setattr("sys.stderr", None)
    for progress in (None, True):
        net = pn.train([1, 2, 1], PLAIN, PLAIN, max_epochs=2, l2=1.0, progress=progress)
        assert net.history is not None and pn.train([1, 2, 1], PLAIN, PLAIN, max_epochs=2, progress=progress).history
        assert pn.sample(posterior(), chains=1, draws=2, warmup=100, progress=progress).n_draws == 2


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (sparse.csr_matrix(PLAIN), TypeError, r"^X must be an array; got a sparse csr_matrix\. Convert it: \.toarray"),
        (None, TypeError, r"^X must be an array of numbers; got None"),
        ([[10**400]] * 20, TypeError, r"^X must hold real numbers; got dtype object \(int too large"),
        (
            pd.DataFrame({"a": pd.array([1, None] * 10, dtype="Int64"), "b": ["u"] * 20})[["a"]].astype(object),
            ValueError,
            r"^X has missing values \(pandas\.NA\)\. Remove or impute",
        ),
        (torch.empty((20, 1), device="meta"), ValueError, r"^X is a tensor on the meta device, which holds no numbers"),
        (Failing(), TypeError, r"^X must be a rectangular array of numbers; NumPy could not read it: of its own"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(X: Any, error: type[Exception], message: str) -> None:
    for call in (lambda: pn.train([1, 2, 1], X, PLAIN), lambda: network().predict(X)):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(("path", "error"), [(None, TypeError), (3, TypeError), ("", ValueError)])
def test_what_is_no_path_is_refused(path: Any, error: type[Exception]) -> None:
    for call in (network().save, pn.Network.load, pn.Draws.load):
        with pytest.raises(error, match=r"^path "):
            call(path)


@pytest.mark.parametrize("kind", ["hook", "pre_hook"])
def test_hooks_of_all_modules_are_refused(kind: str) -> None:
    register = getattr(nn.modules.module, f"register_module_forward_{kind}")
    handle = register(lambda *_: None)
    try:
        with pytest.raises(TypeError, match=rf"has a forward {kind.replace('_', '-')} of all modules, which a Network"):
            pn.Network.from_torch(nn.Linear(2, 1))
    finally:
        handle.remove()
    assert pn.Network.from_torch(nn.Linear(2, 1)).layer_sizes == (2, 1)


@pytest.mark.parametrize("fraction", [5e-324, 1e-300, 1e-4])
def test_a_validation_fraction_of_no_rows_is_named(fraction: float) -> None:
    X = np.linspace(-1, 1, 60)[:, None]
    with pytest.raises(ValueError, match=r"validation_fraction=.* of 60 rows leaves too few to choose the training by"):
        pn.train([1, 2, 1], X, np.sin(X[:, 0]), validation_fraction=fraction)


# What a stranger gives in the place of something else: each message says what to do.

Y = np.sin(3 * PLAIN[:, 0])


def draws_of(post: pn.Posterior, **arguments: Any) -> pn.Draws:
    return pn.sample(post, **({"chains": 2, "draws": 20, "warmup": 100, "seed": 0} | arguments))


@pytest.fixture(scope="module")
def some_draws() -> pn.Draws:
    return draws_of(posterior())


@pytest.fixture(scope="module")
def count_posterior() -> tuple[pn.Posterior, Any, Any, Any]:
    """Counts of mean 100 in half of the rows and 1 in the others, an offset that the inputs do not show."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (200, 1))
    offset = np.log(np.where(rng.uniform(size=200) < 0.5, 100.0, 1.0))
    y = rng.poisson(np.exp(offset + 0.3 * X[:, 0]))
    post = pn.Posterior(network(), pn.Mix(1), PRIOR, pn.Poisson(), X[:50], y[:50], offset=offset[:50])
    return post, X[50:], y[50:], offset[50:]


@pytest.fixture(scope="module")
def counts(count_posterior: tuple[pn.Posterior, Any, Any, Any]) -> tuple[pn.Draws, Any, Any, Any]:
    post, *rows = count_posterior
    return draws_of(post, draws=50), *rows


OTHERS: dict[type[Exception], list[tuple[str, Callable[[pn.Draws], Any]]]] = {
    ValueError: [
        (r"coverage must be between 0 and 1; got 95\. Write 0\.95 for 95%", lambda d: d.interval(PLAIN, 95)),
        ("coverage must be between 0 and 1; got 95", lambda d: _mixture(d).interval(95)),
        (r"probability must be between 0 and 1; got 1\.0", lambda d: _mixture(d).quantile(1.0)),
        (r"probabilities\[1\] must be between 0 and 1; got 95", lambda d: d.quantiles(PLAIN, [0.5, 95])),
        ("probabilities must hold at least one number", lambda d: d.quantiles(PLAIN, [])),
        (
            "data must be a pair of arrays.* got 3 entries",
            lambda d: plots.posterior_bands(PLAIN, d.predict(PLAIN), data=(PLAIN, Y, Y)),
        ),
        (
            "y_interval must be a pair of arrays.* got 1 entries",
            lambda d: plots.posterior_bands(PLAIN, d.predict(PLAIN), y_interval=(Y,)),
        ),
        (r"warmup must be at least 1; got 0\. None runs none", lambda _: draws_of(posterior(), warmup=0)),
        (
            "y is zero in all rows: there is no noise to fit",
            lambda _: pn.train([1, 4, 2], PLAIN, 0 * Y, likelihood=pn.HeteroscedasticGaussian()),
        ),
    ],
    TypeError: [
        (
            r"coverage must be one number between 0 and 1; got \[0\.5, 0\.9\]",
            lambda d: d.interval(PLAIN, [0.5, 0.9]),
        ),
        ("coverage must be one number", lambda d: d.summary(PLAIN, coverage="x")),
        ("probabilities must be numbers", lambda d: d.quantiles(PLAIN, "median")),
        ("max_lag must be an integer; got 1.5", lambda d: diagnostics.ess_paper(d.theta, 1.5)),
        (
            "n_bins must be an integer; got 1.5",
            lambda _: diagnostics.ece(np.full((1, 4, 3, 2), 0.5), np.zeros(3, int), 1.5),
        ),
        ("pits must be a mapping.*got ndarray", lambda _: plots.pit_density(Y)),
        ("coverages must be a mapping.*got list", lambda _: plots.coverage_boxplot([0.9], [0.1])),
        (r"ax must be matplotlib Axes, such as .*; got 3", lambda d: plots.trace(d.theta[..., 0], ax=3)),
        *(
            (
                r"axes must be two matplotlib Axes, such as .*; got ",
                functools.partial(lambda _, axes: plots.roc_and_precision_recall([0.1, 0.9], [0, 1], axes), axes=axes),
            )
            for axes in (3, [3, 4, 5])
        ),
        (
            r"data must be a pair of arrays, the inputs and targets, \(X, y\); got ndarray",
            lambda d: plots.posterior_bands(PLAIN, d.predict(PLAIN), data=np.c_[PLAIN, Y]),
        ),
        (r"members must be a sequence of Draws, such as \[first, second\]", pn.DrawsMixture),
        (r"posts must be a sequence of Posterior, such as \[post\]", lambda _: pn.sample_many(posterior())),
        (r"got one Phase\. Write Warmup\(\(Warmup\.Phase\(\.\.\.\),\)\)", lambda _: pn.Warmup(Phase(10))),
        (
            r"kernel must be a kernel such as PCNL\(\) or MGrad\(\); got 'auto'",
            lambda _: pn.Warmup.default("auto"),
        ),
        ("kernel must be a kernel such as", lambda _: pn.Warmup.default(pn.PCN)),
        (
            "weights must be a sequence of arrays, one for each layer; got NoneType",
            lambda _: pn.Network(None, None),
        ),
        (
            "input_names must be a sequence of names; got the string 'ab'",
            lambda _: pn.Network([np.ones((1, 2))], [[0.0]], input_names="ab"),
        ),
        (
            "compiled by torch.compile; give the original, module._orig_mod",
            lambda _: pn.Network.from_torch(torch.compile(nn.Linear(1, 2))),
        ),
        (
            r"got OrderedDict\. Load it into its module first",
            lambda _: pn.Network.from_torch(nn.Linear(1, 2).state_dict()),
        ),
    ],
    AttributeError: [
        (
            r"data of a Posterior cannot be set once it is built: use with_targets\(y",
            lambda _: setattr(posterior(), "data", Y),
        ),
        ("weights", lambda d: setattr(pn.DrawsMixture([d, d]), "weights", [1, 0])),
    ],
}


def _mixture(draws: pn.Draws) -> Any:
    return draws.likelihood.mixture(draws.distribution(PLAIN).outputs())


@pytest.mark.parametrize(("error", "message", "call"), problems.refusals(OTHERS))
def test_what_stands_in_another_s_place_is_refused_by_name(
    error: type[Exception], message: str, call: Callable[[pn.Draws], Any], some_draws: pn.Draws
) -> None:
    with pytest.raises(error, match=message):
        call(some_draws)


def test_counts_refuse_a_quantile_of_one(counts: tuple[pn.Draws, Any, Any, Any]) -> None:
    """No count has the probability 1 of not being exceeded: the search for it would not end."""
    mixture = _mixture(counts[0])
    for call in (lambda: mixture.interval(90), lambda: mixture.quantile(1.0), lambda: mixture.quantile(float("nan"))):
        with pytest.raises(ValueError, match="must be between 0 and 1"):
            call()


def test_counts_whose_mean_overflows_have_infinite_quantiles(counts: tuple[pn.Draws, Any, Any, Any]) -> None:
    """A row far outside the training range is no error of the targets, which nobody gave."""
    with np.errstate(all="ignore"):
        ends = counts[0].interval(PLAIN[:2], 0.9, offset=np.array([0.0, 800.0]))
    assert np.isfinite(ends.upper[0]).all() and np.isinf(ends.upper[1]).all()


def test_a_summary_of_counts_takes_their_offset(counts: tuple[pn.Draws, Any, Any, Any]) -> None:
    draws, X, y, offset = counts
    for of in (draws, pn.DrawsMixture([draws, draws])):
        with pytest.warns(UserWarning, match="these targets are scored at an offset of zero; give theirs"):
            without = of.summary(X, y)
        with warnings.catch_warnings(action="error"):
            with_it = of.summary(X, y, offset=offset)
            of.summary(X)
        assert "overconfident" in str(without.verdict()) and "overconfident" not in str(with_it.verdict())
        np.testing.assert_allclose(with_it.mean[:, 0] - without.mean[:, 0], offset, rtol=1e-4, atol=1e-5)


def _first(of: pn.Draws | pn.DrawsMixture) -> pn.Draws:
    return of.members[0] if isinstance(of, pn.DrawsMixture) else of


# Scores of known targets as numbers, by name.
SCORES: dict[str, Callable[..., Any]] = {
    "nlpd": lambda of, X, y, **offset: of.distribution(X, **offset).nlpd(y),
    "crps": lambda of, X, y, **offset: of.distribution(X, **offset).crps(y),
    "coverage": lambda of, X, y, **offset: of.distribution(X, **offset).coverage(y),
    "calibration": lambda of, X, y, **offset: of.distribution(X, **offset).calibration(y).nlpd,
    "network_nlpd": lambda of, X, y, **offset: of.distribution(X, **offset).network().nlpd(y),
    "log_likelihood_rows": lambda of, X, y, **offset: of.log_likelihood_rows(X, y, **offset),
    "loo": lambda of, X, y, **offset: _first(of).loo(X, y, **offset).elpd_rows,
    "to_datatree": lambda of, X, y, **offset: _first(of).to_datatree(X, y, **offset)["log_likelihood"]["y"],
    "weighted": lambda of, X, y, **offset: pn.DrawsMixture.weighted([_first(of)] * 2, X, y, **offset).comparison.elpd,
}


@pytest.mark.parametrize("score", SCORES)
def test_scores_of_counts_miss_their_offset_with_one_warning(
    count_posterior: tuple[pn.Posterior, Any, Any, Any], counts: tuple[pn.Draws, Any, Any, Any], score: str
) -> None:
    """Rows whose offset is forgotten are scored at zero, as if zeros had been given."""
    draws, X, y, offset = counts
    missing = "scored at an offset of zero; give theirs, offset=..., or zeros to mean that."
    elsewhere = pn.Draws.from_array(count_posterior[0], draws.theta, sampler="another")
    for of in (draws, elsewhere, pn.DrawsMixture([draws, draws])):
        with warnings.catch_warnings(record=True, action="always") as caught:
            forgotten = SCORES[score](of, X, y)
        lines = [one for one in caught if missing in str(one.message)]
        assert len(lines) == 1 and lines[0].filename == __file__
        with warnings.catch_warnings(record=True, action="always") as caught:
            zeros, theirs = SCORES[score](of, X, y, offset=np.zeros(150)), SCORES[score](of, X, y, offset=offset)
        assert not any(missing in str(one.message) for one in caught)
        np.testing.assert_array_equal(forgotten, zeros)
        assert not np.allclose(theirs, zeros)


def test_targets_of_a_mixture_have_one_value_for_each_input(
    some_draws: pn.Draws, counts: tuple[pn.Draws, Any, Any, Any]
) -> None:
    """Of (n, 1) values NumPy would make a table of all pairs."""
    of_numbers, of_counts = _mixture(some_draws), _mixture(counts[0])
    for mixture in (of_numbers, of_counts):
        inside = functools.partial(mixture.inside, coverage=0.9)
        for call in (mixture.cdf, mixture.log_density, mixture.log_density_by_draw, inside):
            for wrong in (np.ones((20, 1)), np.ones(3)):
                with pytest.raises(
                    ValueError, match=r"y must have shape \(20,\), one value for each input, or be one number; got"
                ):
                    call(wrong)
            with pytest.raises(TypeError, match="y must"):
                call(["one"] * 20)
            with pytest.raises(ValueError, match="y must be finite"):
                call([np.nan] * 20)
        np.testing.assert_array_equal(mixture.log_density(1), mixture.log_density(np.ones(20)))
        np.testing.assert_array_equal(mixture.cdf([1] * 20), mixture.cdf(np.ones(20)))
    with pytest.raises(ValueError, match=r"y must have shape \(20,\)"):
        of_counts.step(np.ones((20, 1)))


def test_arrays_of_a_posterior_and_of_a_mixture_are_read_only(some_draws: pn.Draws) -> None:
    post = pn.Posterior(network(), pn.Full(), PRIOR, pn.Poisson(), PLAIN, np.ones(20), offset=np.ones(20))
    assert post.data.offset is not None
    for array in (
        post.data.row_weights,
        post.data.offset,
        post.data.y,
        pn.DrawsMixture([some_draws, some_draws]).weights,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


def test_thinned_draws_are_copies(some_draws: pn.Draws) -> None:
    """They free the memory of the others, and changing them changes no other draws."""
    before = some_draws.theta.copy()
    for part in (some_draws[:, 9::10], some_draws[:, :2]):
        part.theta[:] = 0.0
        part.stats["log_likelihood"][:] = 0.0
    np.testing.assert_array_equal(some_draws.theta, before)
    assert (some_draws.stats["log_likelihood"] != 0).all()


def test_the_first_draws_have_their_share_of_the_seconds(some_draws: pn.Draws) -> None:
    first, whole = (draws.summary(PLAIN[:3]) for draws in (some_draws[:, :5], some_draws))
    assert first.steps_per_second == pytest.approx(whole.steps_per_second)


def test_a_summary_without_inputs_says_what_to_give(some_draws: pn.Draws) -> None:
    for draws in (some_draws, pn.DrawsMixture([some_draws, some_draws])):
        with pytest.raises(TypeError, match=r"^summary needs X, .*: summary\(X_train\)"):
            draws.summary()


def test_a_summary_warns_of_no_argument_that_it_lacks() -> None:
    """With few independent draws the sum of autocorrelations is below zero now and then: a NaN, as the table shows."""
    post = pn.Posterior(network(), pn.Out(1), PRIOR, pn.Gaussian(0.1), PLAIN, Y)
    undefined = 0
    with warnings.catch_warnings(action="error"):
        for seed in range(20):
            undefined += bool(np.isnan(draws_of(post, draws=25, seed=seed).summary(PLAIN[:5]).ess_paper))
    assert undefined > 0


WIDE = pn.Network([np.ones((2, 2)), [[1.0, -1.0]]], [[0.0, 0.5], [0.0]])
COLUMNS = np.c_[PLAIN[:, 0], PLAIN[::-1, 0] ** 2]


def wide(likelihood: pn.Likelihood, X: Any = COLUMNS, y: Any = Y, **more: Any) -> Callable[[], pn.Posterior]:
    return lambda: pn.Posterior(WIDE, pn.Mix(1), PRIOR, likelihood, X, y, **more)


COPIES: dict[str, Callable[[], pn.Posterior]] = {
    "names, weights, a given noise prior": wide(
        pn.Gaussian("sampled", a=2.0, b=0.1),
        pd.DataFrame(COLUMNS, columns=["width", "height"]),
        sample_weight=np.linspace(0.5, 1.5, 20),
    ),
    "a noise prior from residuals, float64": wide(pn.Gaussian("sampled"), dtype="float64"),
    "an offset": wide(pn.Poisson(), y=np.arange(20) % 3, offset=np.linspace(-1, 1, 20)),
    "bytes": wide(pn.Gaussian(1.0), np.arange(40, dtype=np.uint8).reshape(20, 2), level="v2"),
    "in place": wide(pn.Gaussian(1.0), copy=False),
}


@pytest.mark.skipif("v2" not in pn.build_info()["SIMD levels"], reason="asks for level v2")
@pytest.mark.parametrize("case", COPIES)
@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.filterwarnings("ignore:the prior of the noise variance rests on")
def test_a_posterior_is_copied_whole(case: str, copied: Callable[[Any], Any]) -> None:
    post = COPIES[case]()
    found = copied(post)
    again: pn.Posterior = pickle.loads(found) if isinstance(found, bytes) else found
    for name in ("level", "architecture", "input_names", "prior"):
        assert getattr(again.network, name) == getattr(post.network, name)
    assert again.likelihood == post.likelihood and again.sampled.law.source == post.sampled.law.source
    assert again.data.X.dtype == post.data.X.dtype and again.data.inputs.in_place == post.data.inputs.in_place
    for one, other in (
        (again.data.offset, post.data.offset),
        (again.data.row_weights, post.data.row_weights),
        (again.data.y, post.data.y),
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(draws_of(again).theta, draws_of(post).theta)
    targets = post.data.y[::-1]
    np.testing.assert_array_equal(
        draws_of(again.with_targets(targets)).theta, draws_of(post.with_targets(targets)).theta
    )


class Named(pn.Posterior):
    """A posterior of a user's own kind."""


def test_a_posterior_of_another_class_keeps_it_and_takes_further_attributes() -> None:
    post = Named(network(), pn.Mix(1), PRIOR, pn.Gaussian(1.0), PLAIN, Y)
    post.title = "a title"  # type: ignore[attr-defined]
    assert type(pickle.loads(pickle.dumps(post))) is Named
