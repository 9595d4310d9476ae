"""Draws as a DataTree: variables and labels of theta, groups, and the way back; see test_arviz_functions.py too."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from problems import ARCHITECTURES, LIKELIHOODS

xr = pytest.importorskip("xarray", reason="xarray is not installed")

RUN: dict[str, Any] = {"chains": 2, "draws": 6, "thin": 2, "warmup": 10, "seed": 1, "threads": 1}


def drawn(
    architecture: str = "mix",
    likelihood: str = "gaussian",
    dtype: str = "float32",
    sizes: tuple[int, ...] = (2, 6, 5, 3),
) -> tuple[problems.Problem, pn.Draws]:
    """Return a random problem and a few draws."""
    rng = problems.rng_of("arviz", architecture, likelihood, dtype, sizes)
    problem = problems.problem(rng, sizes, 14, architecture, likelihood, dtype=dtype)
    return problem, pn.sample(problem.post, pn.PCN(0.1), **RUN)


def assert_equal(back: pn.Draws, draws: pn.Draws) -> None:
    """The same theta, statistics and settings, to the bit; tuples among the settings become lists, as in files."""
    assert back.theta.dtype == draws.theta.dtype
    assert_same_draws(back, draws)
    assert all(back.stats[name].dtype == values.dtype for name, values in draws.stats.items())
    assert back.settings == json.loads(json.dumps(draws.settings))
    assert repr(back) == repr(draws)


@pytest.mark.parametrize(
    ("architecture", "dtype"), problems.balanced([(name,) for name in ARCHITECTURES], ("float32", "float64"))
)
def test_labels_of_theta_are_nodes_of_the_network(architecture: str, dtype: str) -> None:
    """Each entry by its labels against the parameters of all draws in the network's own order; each entry once."""
    problem, draws = drawn(architecture, dtype=dtype)
    names = ["a", "b"]

    def index(label: Any) -> int:
        return names.index(label) if label in names else int(label)

    tree = draws.to_datatree(input_names=names)
    posterior, constant = tree["posterior"].to_dataset(), tree["constant_data"].to_dataset()
    weights, biases = draws.network.parameters_at(draws.theta.reshape(-1, problem.post.dim))
    entries = 0
    for name, variable in posterior.data_vars.items():
        kind, layer = str(name).split("_")
        whole = (weights if kind == "weights" else biases)[int(layer) - 1]
        entries += variable[0, 0].size
        axes = variable.dims[2:]
        if axes[0].startswith("weight_"):
            pairs = [constant[f"{axes[0]}_{end}"].values.tolist() for end in ("source", "node")]
            labels = variable[axes[0]].values.tolist()
            assert [f"{source}, {node}" for source, node in zip(*pairs, strict=True)] == labels
            places: tuple[Any, ...] = tuple([index(label) for label in part] for part in pairs[::-1])
        else:
            places = np.ix_(*([index(label) for label in variable[axis].values.tolist()] for axis in axes[::-1]))
            variable = variable.transpose("chain", "draw", *axes[::-1])  # the network has a row for each node
        np.testing.assert_array_equal(variable.values.reshape(12, *variable.shape[2:]), whole[(slice(None), *places)])
        assert variable.dtype == dtype
        for axis in axes:
            if axis.startswith("hidden"):
                order = draws.network.permutation[int(axis.removeprefix("hidden_"))]
                assert order[constant[f"{axis}_rank"]].tolist() == variable[axis].values.tolist()
    assert entries == problem.post.dim
    is_matrix = posterior["weights_3"].dims[2:] == ("hidden_2", "output")
    assert is_matrix == (architecture != "custom")  # whose random masks are no blocks


def test_masks_that_are_blocks_are_matrices() -> None:
    rng = problems.rng_of("arviz, custom blocks")
    net = problems.random_network(rng, (3, 4, 2))
    weights, biases = [np.zeros((4, 3), bool), np.zeros((2, 4), bool)], [np.zeros(4, bool), np.zeros(2, bool)]
    weights[0][np.ix_([0, 2], [1])] = True
    weights[1][:, [0, 2]] = True
    X, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))

    def posterior() -> Any:
        post = pn.Posterior(net, pn.Custom(weights, biases), problems.PRIOR, pn.Gaussian(1.0), X, y)
        return pn.sample(post, pn.PCN(0.1), **RUN).to_datatree(prior_draws=0)["posterior"]

    assert posterior()["weights_1"].sel(hidden_1=2, input=1).shape == (2, 6)
    biases[0][1] = True  # now the set of nodes of the weights is not that of the biases
    tree = posterior()
    assert tree["weights_1"].dims == ("chain", "draw", "weight_1")
    assert sorted(tree["weight_1"].values.tolist()) == ["1, 0", "1, 2"]
    assert tree["biases_1"]["hidden_1"].values.tolist() == [1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_way_back_is_exact(architecture: str, tmp_path: Path) -> None:
    """The largest seed among the settings, which files must keep too."""
    problem, draws = drawn(architecture)
    draws.settings["seed"] = 2**64 - 1
    tree = draws.to_datatree()
    assert_equal(pn.Draws.from_datatree(problem.post, tree), draws)
    tree.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as read:
        assert_equal(pn.Draws.from_datatree(problem.post, read), draws)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_groups_of_each_likelihood(likelihood: str, n_targets: int) -> None:
    if likelihood.startswith("categorical"):
        n_targets += 1  # classes
    n_outputs = n_targets
    if likelihood == "discrete_values":
        n_targets = 1
    problem, draws = drawn("mix", likelihood, sizes=(2, 6, 5, n_outputs))
    post, data = problem.post, problem.data
    names = ["first", "second", "third"][:n_targets]
    tree = draws.to_datatree(
        data.X, data.y, offset=data.offset, target_names=names, prior_draws=5, seed=3, input_names=["u", "v"]
    )
    assert_equal(pn.Draws.from_datatree(post, tree), draws)
    groups = {name: tree[name].to_dataset() for name in tree.children}
    assert set(groups) == {
        *("posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data", "constant_data"),
        *("prior", "prior_predictive", "function"),
    }

    def same(found: Any, expected: npt.NDArray[Any], last: str | None) -> None:
        """Equal to the bit, the axis of a single target left out."""
        squeezed = expected[..., 0] if last == "target" and n_targets == 1 else expected
        assert found.dims[-1] == (last if squeezed is expected and last else "row")
        np.testing.assert_array_equal(found.values, squeezed)

    is_class = likelihood.startswith("categorical")
    last = None if is_class else "target"
    predictive, function = groups["posterior_predictive"], groups["function"]
    same(predictive["y"], draws.predictive(data.X, offset=data.offset, seed=3), last)
    same(groups["prior_predictive"]["y"][0], post.prior_predictive(data.X, 5, offset=data.offset, seed=3), last)
    same(groups["observed_data"]["y"], post.likelihood.typical(post.data.y), last)
    same(groups["log_likelihood"]["y"], draws.log_likelihood_rows(data.X, data.y, offset=data.offset), None)
    if is_class:
        same(function["p"], draws.predict_proba(data.X), "output")
        assert function["output"].values.tolist() == names
    elif likelihood == "bernoulli":
        same(function["p"], draws.predict_proba(data.X), "target")
    else:
        same(function["f"], draws.predict(data.X, offset=data.offset), "target")
    if n_targets > 1 and not is_class:
        assert predictive["target"].values.tolist() == names
    np.testing.assert_array_equal(groups["constant_data"]["X"], data.X)
    assert ("offset" in groups["constant_data"]) == (data.offset is not None)
    outputs = groups["posterior"]["output"].values.tolist()
    variances = [f"log variance of {name}" for name in names] if likelihood.startswith("hetero") else []
    assert outputs == (names + variances if post.likelihood.values is None else post.likelihood.values.tolist())
    # The prior's variables, put together again, are the prior's draws.
    parts = [np.moveaxis(values.values[0], -1, 1).reshape(5, -1) for values in groups["prior"].data_vars.values()]
    whole = np.concatenate(parts, axis=1)
    np.testing.assert_array_equal(whole, post.sample_prior(5, seed=3))


@pytest.mark.parametrize(
    "likelihood",
    [
        pn.Gaussian("sampled", a=2.0, b=1.0),
        pn.Gaussian("sampled", a=2.0, b=[1.0, 2.0]),
        pn.StudentT(4.0, "sampled", a=2, b=1),
    ],
    ids=str,
)
def test_sampled_variances_and_scales_are_parameters(likelihood: pn.Likelihood, tmp_path: Path) -> None:
    net, X, y = problems.regression(problems.rng_of("arviz, sampled"), (2, 5, 2), 20)
    post = pn.Posterior(net, pn.Mix(2), pn.GaussianPrior(scales="sampled"), likelihood, X, y)
    draws = pn.sample(post, pn.PCNL(0.1), **RUN)
    tree = draws.to_datatree(X, y, prior_draws=40, seed=5)
    posterior, prior = tree["posterior"], tree["prior"]
    np.testing.assert_array_equal(posterior["variance"], draws.stats["variance"])
    np.testing.assert_array_equal(posterior["prior_scales"], draws.stats["prior_scales"])
    assert posterior["scale"].values.tolist() == list(post.network.scale_names)
    assert posterior["variance"].dims[2:] == (("output",) if draws.stats["variance"].ndim == 3 else ())
    assert not {"variance", "prior_scales"} & set(tree["sample_stats"].data_vars)
    # Theta of the prior has the prior's scales: whitened by them, its entries are standard normal.
    theta = post.sample_prior(40, seed=5)
    scales = prior["prior_scales"].values[0]
    white = theta / np.sqrt(post.network.variance_at(scales))
    expected = post.network.sample_prior(40, seed=5) / np.sqrt(post.prior_variance)
    np.testing.assert_allclose(white, expected, rtol=1e-5)  # three roundings to float32
    # And the prior predictive noise has the prior's variances: with the seed's own stream, y follows again.
    stream = np.random.default_rng(5)
    variance = prior["variance"].values[0]
    stream.gamma(2.0, size=(40, variance.size // 40))
    again = likelihood.sample_at(post.network.predict(theta, X), stream, variance)
    np.testing.assert_array_equal(tree["prior_predictive"]["y"].values[0], again)
    tree.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as read:
        assert_equal(pn.Draws.from_datatree(post, read), draws)
    with pytest.raises(ValueError, match="no variable 'prior_scales' in its group 'posterior'"):
        del tree["posterior"]["prior_scales"]
        pn.Draws.from_datatree(post, tree)


def test_statistics_and_attributes() -> None:
    problem, draws = drawn()
    tree = draws.to_datatree(prior_draws=0)
    stats = tree["sample_stats"]
    np.testing.assert_array_equal(stats["lp"], draws.stats["log_likelihood"] + draws.stats["log_prior"])
    np.testing.assert_array_equal(stats["total_log_likelihood"], draws.stats["log_likelihood"])
    assert "log_likelihood" not in stats  # which ArviZ 0.x would take for that of single rows
    attributes = tree.attrs
    for name, value in draws.settings.items():
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        assert (attributes[name] if plain else json.loads(attributes[name])) == (
            value if plain else json.loads(json.dumps(value))
        )
    assert attributes["inference_library"] == "patrac_native"
    assert attributes["inference_library_version"] == pn.__version__
    assert attributes["seed"] == 1 and attributes["tuning_steps"] == 10
    assert attributes["architecture"] == problem.post.network.architecture.label()
    assert set(tree.children) == {"posterior", "sample_stats", "constant_data"}


def test_columns_of_a_data_frame_name_the_inputs() -> None:
    problem, draws = drawn()
    frame = pd.DataFrame(problem.data.X, columns=["height", "width"])
    tree = draws.to_datatree(frame)
    assert tree["posterior"]["input"].values.tolist() == ["height", "width"]
    assert tree["constant_data"]["X"].sel(input="width").values.tolist() == frame["width"].tolist()
    # Names of the posterior's own frame order the columns of another one.
    net, law = problem.post.network.net, problem.data.likelihood
    post = pn.Posterior(net, pn.Mix(2), problems.PRIOR, law, frame, problem.data.y)
    named = pn.sample(post, pn.PCN(0.1), **RUN)
    for given in (frame, frame[["width", "height"]]):
        constant = named.to_datatree(given)["constant_data"]
        np.testing.assert_array_equal(constant["X"], problem.data.X)
        assert constant["input"].values.tolist() == ["height", "width"]
    assert named.to_datatree()["posterior"]["input"].values.tolist() == ["height", "width"]
    assert_equal(pn.Draws.from_datatree(post, named.to_datatree()), named)


def test_draws_of_another_sampler_and_parts_of_chains() -> None:
    problem, own = drawn()
    draws = pn.Draws.from_array(problem.post, own.theta, sampler="NumPyro NUTS")
    tree = draws.to_datatree()
    assert tree.attrs["sampler"] == "NumPyro NUTS"
    assert_equal(pn.Draws.from_datatree(problem.post, tree), draws)
    part = pn.Draws.from_datatree(problem.post, own.to_datatree(prior_draws=0).isel(chain=[1], draw=slice(1, 4)))
    np.testing.assert_array_equal(part.theta, own.theta[1:, 1:4])
    np.testing.assert_array_equal(part.stats["acceptance_rate"], own.stats["acceptance_rate"][1:, 1:4])
    np.testing.assert_array_equal(part.stats["nonfinite"], own.stats["nonfinite"][1:])


def test_trees_of_another_posterior_are_refused() -> None:
    problem, draws = drawn()
    net, X, y = problem.post.network.net, problem.post.data.X, problem.post.data.y
    tree = draws.to_datatree(prior_draws=0)
    other = problems.random_network(problems.rng_of("another network"), net.layer_sizes)
    chosen, law = problem.post.network.architecture, problem.data.likelihood
    for post, words in (
        (pn.Posterior(other, chosen, problems.PRIOR, law, X, y), "network of other weights"),
        (pn.Posterior(net, pn.Full(), problems.PRIOR, law, X, y), "architecture .*not {'name': 'full'}"),
        (pn.Posterior(net, chosen, pn.TraceClassPrior(1.6, 1.0, 0.5), law, X, y), "prior .*1.6"),
        (pn.Posterior(net, chosen, problems.PRIOR, pn.Gaussian(0.8), X, y), "likelihood .*0.8"),
        (pn.Posterior(net, chosen, problems.PRIOR, law, X, y, dtype="float64"), "dtype float32, not float64"),
    ):
        with pytest.raises(ValueError, match=f"tree holds draws of another posterior than post: {words}"):
            pn.Draws.from_datatree(post, tree)


def test_trees_of_another_kind_are_refused() -> None:
    problem, draws = drawn()
    with pytest.raises(TypeError, match="post must be a Posterior; got Draws"):
        pn.Draws.from_datatree(draws, draws.to_datatree())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"tree must be an xarray.DataTree, as to_datatree returns it; got dict"):
        pn.Draws.from_datatree(problem.post, {})  # type: ignore[arg-type]
    foreign = xr.DataTree.from_dict({"/posterior": xr.Dataset(), "/sample_stats": xr.Dataset()})
    with pytest.raises(ValueError, match=r"lacks its attribute 'patrac_native'.*Draws.from_array"):
        pn.Draws.from_datatree(problem.post, foreign)
    for group, name, words in (
        ("posterior", "weights_1", "no variable 'weights_1' in its group 'posterior'"),
        ("sample_stats", "total_log_likelihood", "no variable 'total_log_likelihood' in its group 'sample_stats'"),
        ("sample_stats", None, "lacks the group 'sample_stats'"),
    ):
        tree = draws.to_datatree(prior_draws=0)
        if name is None:
            del tree[group]
        else:
            del tree[group][name]
        with pytest.raises(ValueError, match=words):
            pn.Draws.from_datatree(problem.post, tree)
    tree = draws.to_datatree(prior_draws=0)
    with pytest.raises(ValueError, match=r"weights_1 must have \(2, 5\) entries; got \(2, 1\)"):
        pn.Draws.from_datatree(problem.post, tree.isel(hidden_1=[0]))
    with pytest.raises(ValueError, match="weights_1 must have the dimensions"):
        pn.Draws.from_datatree(problem.post, tree.isel(input=0))


def test_refused_arguments() -> None:
    problem, draws = drawn()
    X, y = problem.data.X, problem.data.y
    for arguments, kind, words in (
        ({"y": y}, ValueError, "y must be left out without X"),
        ({"offset": y}, ValueError, "offset must be left out without X"),
        ({"X": X[:, :1]}, ValueError, "X must have 2 columns"),
        ({"X": X, "y": y[:3]}, ValueError, "y must have"),
        ({"X": X, "offset": y}, ValueError, "offset must be left out: Gaussian"),
        ({"input_names": ["a"]}, ValueError, "input_names must hold 2 different names, one for each input; got .'a'"),
        ({"input_names": ["a", "a"]}, ValueError, "input_names must hold 2 different names"),
        ({"input_names": "ab"}, ValueError, "input_names must hold 2 different names"),
        ({"target_names": ["a"]}, ValueError, "target_names must hold 3 different names, one for each target"),
        ({"prior_draws": -1}, ValueError, "prior_draws must be at least 0; got -1"),
        ({"prior_draws": 2.0}, TypeError, "prior_draws must be an integer"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ):
        with pytest.raises(kind, match=words):
            draws.to_datatree(**arguments)  # type: ignore[arg-type]
    none = draws._with(draws.theta[:, :0], draws.stats, draws.settings)
    with pytest.raises(ValueError, match="there are no draws"):
        none.to_datatree()


def test_draws_of_a_target() -> None:
    target = problems.normal_target(3)
    draws = pn.sample(target, pn.PCN(0.5), **RUN)
    tree = draws.to_datatree(names=["a", "b", "c"])
    np.testing.assert_array_equal(tree["posterior"]["theta"], draws.theta)
    np.testing.assert_array_equal(tree["posterior"]["theta"].sel(parameter="b"), draws.theta[..., 1])
    np.testing.assert_array_equal(tree["sample_stats"]["acceptance_rate"], draws.stats["acceptance_rate"])
    assert tree.attrs["seed"] == 1
    with pytest.raises(ValueError, match="names must hold 3 different names, one for each entry of theta"):
        draws.to_datatree(names=["a"])


def test_a_missing_xarray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, draws = drawn()
    for name in [name for name in sys.modules if name.split(".")[0] in ("xarray", "arviz")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"to_datatree needs xarray, .* pip install 'patrac_native\[arviz\]'"):
        draws.to_datatree()


def test_a_missing_or_later_arviz_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, draws = drawn()
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"to_inferencedata needs arviz, .* pip install 'patrac_native\[arviz\]'"):
        draws.to_inferencedata()
    later = ModuleType("arviz")
    later.__version__ = "1.0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arviz", later)
    with pytest.raises(
        ImportError, match=r"ArviZ 0\.x; the installed version 1\.0\.0 has no InferenceData: its functions"
    ):
        draws.to_inferencedata()


def test_xarray_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is made without importing any part of ArviZ but its array functions."""
    problem, draws = drawn()
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] in ("arviz", "arviz_base", "arviz_stats", "arviz_plots"):
            raise AssertionError(f"imports {name}")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    tree = draws.to_datatree(problem.data.X, problem.data.y)
    pn.Draws.from_datatree(problem.post, tree)
