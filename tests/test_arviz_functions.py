"""Functions of ArviZ on draws: tables and leave-one-out predictions, in every version that is installed.

Its plots are those of docs/bridges/arviz.md, whose scripts run in test_bridge_pages.py.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems

pytest.importorskip("xarray", reason="xarray is not installed")

N = 30
LIKELIHOODS = ("gaussian", "categorical", "poisson")


@cache
def drawn(likelihood: str = "gaussian", architecture: str = "mix") -> tuple[problems.Problem, pn.Draws]:
    """Return a problem and draws of it, without sample weights."""
    rng = problems.rng_of("arviz functions", likelihood)
    m = 3 if likelihood == "categorical" else 1
    net = problems.random_network(rng, (2, 6, 5, m))
    data = problems.random_data(likelihood, rng, N, 2, m)
    data.sample_weight = None
    chosen = {"mix": pn.Mix(2), "full": pn.Full()}[architecture]
    problem = problems.posed(net, chosen, data, rng)
    return problem, pn.sample(problem.post, chains=4, draws=150, thin=5, warmup=1000, seed=1, threads=1)


class Library:
    """The functions of one of ArviZ's packages, with draws in the form that they take."""

    def __init__(self, name: str) -> None:
        self.name = name
        with warnings.catch_warnings(action="ignore"):
            self.functions: Any = importlib.import_module("arviz_stats" if name == "arviz-stats" else "arviz")

    def data(self, draws: pn.Draws, problem: problems.Problem) -> Any:
        """Return draws with all groups."""
        arguments: dict[str, Any] = {"offset": problem.data.offset, "prior_draws": 50}
        method = draws.to_inferencedata if self.name == "arviz 0.x" else draws.to_datatree
        return method(problem.data.X, problem.data.y, **arguments)


def installed(name: str) -> Library:
    """Return one of the packages; skip with the reason if it is not installed."""
    module = "arviz_stats" if name == "arviz-stats" else "arviz"
    if importlib.util.find_spec(module) is None or importlib.util.find_spec("arviz_base") is None:
        pytest.skip(f"{name} is not installed")
    version = importlib.metadata.version(module)
    if module == "arviz" and version.startswith("0.") != (name == "arviz 0.x"):
        pytest.skip(f"{name} is not installed, but {version}" + "; 1.x needs Python 3.12" * (name == "arviz 1.x"))
    return Library(name)


@pytest.fixture(params=["arviz 0.x", "arviz-stats", "arviz 1.x"])
def library(request: pytest.FixtureRequest) -> Library:
    """Return each of the packages in turn."""
    return installed(request.param)


def test_summary_has_a_row_for_each_parameter(library: Library) -> None:
    """Means and R-hat of every entry of theta, by its label; ArviZ rounds them."""
    problem, draws = drawn()
    data = library.data(draws, problem)
    table = library.functions.summary(data, round_to=6)
    assert len(table) == problem.post.dim
    rhat = pn.diagnostics.convergence(draws.theta[..., None]).rhat[:, 0]
    nodes = draws.network.permutation
    for index, (layer, row, column) in enumerate(problem.post.parameters.tolist()):
        place = [nodes[layer][row]] if column < 0 else [nodes[layer - 1][column], nodes[layer][row]]
        found = table.loc[f"{'biases' if column < 0 else 'weights'}_{layer}[{', '.join(map(str, place))}]"]
        assert float(found["mean"]) == pytest.approx(draws.theta[..., index].mean(), abs=1e-6)
        assert float(found["r_hat"]) == pytest.approx(rhat[index], abs=1e-5)


def test_summary_of_the_function(library: Library) -> None:
    problem, draws = drawn()
    data = library.data(draws, problem)
    table = library.functions.summary(data, group="function")
    assert len(table) == N
    np.testing.assert_allclose(
        table["mean"].to_numpy(dtype=float), draws.predict(problem.data.X).mean(axis=(0, 1))[:, 0], atol=0.006
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_loo_is_that_of_the_draws(library: Library, likelihood: str) -> None:
    """With the tails of independent draws (reff=1), arviz-stats returns the same numbers.

    ArviZ 0.x fits the tails by code of its own: its numbers agree within the Monte Carlo error of the weighted means.
    """
    problem, draws = drawn(likelihood)
    with warnings.catch_warnings(action="ignore"):
        own = draws.loo(problem.post.data.X, problem.post.data.y, offset=problem.post.data.offset)
        theirs = library.functions.loo(library.data(draws, problem), reff=1.0, pointwise=True)
    if library.name == "arviz 0.x":
        values = draws.log_likelihood_rows(problem.post.data.X, problem.post.data.y, offset=problem.post.data.offset)
        weights = pn.diagnostics.leave_one_out(values).weights
        ratios = np.exp(values.reshape(weights.shape) - own.elpd_rows)
        errors = np.sqrt((weights**2 * (ratios - 1) ** 2).sum(axis=0))
        assert (abs(np.asarray(theirs.loo_i) - own.elpd_rows) < errors).all()
        assert abs(theirs.elpd_loo - own.elpd) < np.sqrt((errors**2).sum())
    else:
        assert float(theirs.elpd) == pytest.approx(own.elpd, rel=1e-9)
        assert float(theirs.p) == pytest.approx(own.p_loo, rel=1e-7)
        # Before 1.0 the variance of the rows was divided by n.
        is_old = importlib.metadata.version("arviz_stats").startswith("0.")
        assert float(theirs.se) == pytest.approx(own.se * np.sqrt(1 - 1 / N if is_old else 1), rel=1e-9)
        np.testing.assert_allclose(np.asarray(theirs.elpd_i), own.elpd_rows, rtol=1e-9)
        np.testing.assert_allclose(np.asarray(theirs.pareto_k), own.khat, rtol=1e-6, atol=1e-9)
    assert f"elpd {own.elpd:.2f}" in str(own) and f"largest {own.khat.max():.2f}" in str(own)


def test_compare_ranks_by_loo(library: Library) -> None:
    problem, mix = drawn()
    _, full = drawn(architecture="full")
    with warnings.catch_warnings(action="ignore"):
        compare = library.functions.compare
        exact = {"round_to": "none"} if "round_to" in inspect.signature(compare).parameters else {}
        table = compare({"Mix": library.data(mix, problem), "Full": library.data(full, problem)}, **exact)
        found = {
            name: draws.loo(problem.post.data.X, problem.post.data.y).elpd
            for name, draws in (("Mix", mix), ("Full", full))
        }
    assert list(table.index) == sorted(found, key=found.__getitem__, reverse=True)
    # Its elpd differ from ours in the length of the smoothed tail, which ArviZ derives from the effective sample size.
    column = "elpd_loo" if "elpd_loo" in table else "elpd"
    for name, elpd in found.items():
        assert float(table.loc[name, column]) == pytest.approx(elpd, abs=0.5)


def test_inferencedata_has_the_groups_of_the_tree_and_comes_back() -> None:
    installed("arviz 0.x")
    problem, draws = drawn()
    with warnings.catch_warnings(action="error"):  # such as the one on groups that ArviZ does not define
        warnings.filterwarnings("ignore", message="to_datatree: leave-one-out")
        data = draws.to_inferencedata(problem.data.X, problem.data.y)
    tree = draws.to_datatree(problem.data.X, problem.data.y)
    assert set(data.groups()) == set(tree.children)
    assert data.attrs == tree.attrs
    back = pn.Draws.from_datatree(problem.post, data.to_datatree())
    np.testing.assert_array_equal(back.theta, draws.theta)
    with pytest.raises(TypeError, match=r"got InferenceData. Call its to_datatree\(\) first"):
        pn.Draws.from_datatree(problem.post, data)
