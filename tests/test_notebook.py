"""What notebooks show: tables of posteriors, draws and summaries, and progress bars."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.plots.progress import is_notebook, progress_bar, shows_progress
from patrac_native.plots.table import html_list, html_table
from test_report import Page

# The elements of a table or a list.
ALLOWED = frozenset({"div", "p", "b", "table", "tbody", "tr", "th", "td", "ul", "li"})


def text_of(shown: Any) -> str:
    """Return the text of an object's HTML, which is at most 4 kB, of plain elements without colours."""
    html = shown._repr_html_()
    assert len(html) < 4096
    page = Page(html)
    assert not page.open
    for tag, attributes in page.tags:
        assert tag in ALLOWED and set(attributes) <= {"style"} and "color" not in (attributes.get("style") or "")
    return "\n".join(page.words)


@pytest.fixture(scope="module")
def problem() -> problems.Problem:
    """Return a small problem of two targets."""
    return problems.problem(problems.rng_of("notebook"), (2, 6, 5, 2), 20, "mix")


@pytest.fixture(scope="module")
def draws(problem: problems.Problem) -> pn.Draws:
    """Return a short run."""
    return pn.sample(problem.post, pn.PCN(0.2), chains=3, draws=40, warmup=100, seed=7, threads=1)


def test_a_posterior_shows_its_model(problem: problems.Problem) -> None:
    text = text_of(problem.post)
    for word in ("20 rows", "[2, 6, 5, 2] tanh network", "Gaussian(variance=0.7)", "alpha 1.5", repr(problem.post)):
        assert word in text
    top = problem.post.permutation[1][: len(set(problem.post.parameters["row"][problem.post.parameters["layer"] == 1]))]
    assert ", ".join(map(str, top)) + " (in rank order, from 0)" in text
    for architecture in problems.ARCHITECTURES:
        text_of(problems.problem(problems.rng_of(architecture), (2, 6, 5, 3), 9, architecture).post)


def test_draws_show_their_run(draws: pn.Draws) -> None:
    text = text_of(draws)
    for word in (repr(draws), "PCN(", "3 chains x 40 draws (thin 1) after 100 warm-up steps", "seed\n7", "s on cpu"):
        assert word in text
    rates = ", ".join(f"{rate:.2f}" for rate in draws.stats["acceptance_rate"].mean(axis=1))
    rhat = pn.diagnostics.convergence(draws.stats["log_likelihood"]).max_rhat
    assert f"acceptance by chain\n{rates}" in text and f"R-hat {rhat:.3f}" in text


def test_draws_of_other_kinds_show_too(problem: problems.Problem, draws: pn.Draws) -> None:
    assert "NumPyro NUTS" in text_of(pn.Draws.from_array(problem.post, draws.theta, sampler="NumPyro NUTS"))
    few = text_of(draws[:, :2])
    assert "x 2 draws" in few and "R-hat" not in few
    stats = {name: values[:, :0] if values.shape[1:2] == (40,) else values for name, values in draws.stats.items()}
    none = draws._with(draws.theta[:, :0], stats, draws.settings)
    assert "x 0 draws" in text_of(none)
    cut = draws._with(draws.theta, draws.stats, draws.settings | {"completed": False})
    assert "interrupted" in text_of(cut) and "interrupted" not in text_of(draws)
    target = problems.normal_target(2)
    assert "TargetDraws(K=2" in text_of(pn.sample(target, pn.PCN(0.5), chains=2, draws=4, warmup=None, seed=1))


def test_a_summary_shows_what_its_string_says(problem: problems.Problem, draws: pn.Draws) -> None:
    """Every word of the string, in its order, is in the table."""
    for summary in (
        draws.summary(problem.data.X),
        pn.DrawsMixture([draws, draws]).summary(problem.data.X),
    ):
        shown = iter(text_of(summary).replace(":", " ").split())
        words = str(summary).replace(":", " ").replace(" - ", " ").split()
        assert all(word in shown for word in words)  # `in` goes on from where it stands
        assert summary.verdict().grade in text_of(summary.verdict())


def test_scales_of_the_prior_are_in_the_table() -> None:
    net, X, y = problems.regression(problems.rng_of("notebook, scales"), (2, 4, 1), 15)
    post = pn.Posterior(net, pn.Mix(2), pn.GaussianPrior(scales="sampled"), pn.Gaussian(1.0), X, y)
    summary = pn.sample(post, pn.PCN(0.2), chains=2, draws=30, warmup=50, seed=1).summary(X)
    assert summary.prior_scales is not None
    for name, mean in zip(summary.prior_scales.names, summary.prior_scales.mean, strict=True):
        assert f"{name}" in text_of(summary) and f"{mean:.3g}" in text_of(summary)
    assert "  sampled sigma2 of the prior (max R-hat" in str(summary)


def test_text_is_escaped() -> None:
    bad = "<script>alert('x')</script> & \"y\""
    for html in (html_table(bad, [(bad, bad)]), html_list(bad, [bad])):
        assert "<script" not in html and "&lt;script&gt;" in html and "&amp;" in html
        assert bad in Page(html).words
    problem = problems.problem(problems.rng_of("notebook, names"), (1, 3, 1), 9)
    theta = np.zeros((2, 5, problem.post.dim))
    assert "<b onload" not in pn.Draws.from_array(problem.post, theta, sampler="<b onload=x>")._repr_html_()


def jupyter(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None) -> None:
    """Pretend to run in a shell of IPython with this configuration; None means no shell."""
    shell = None if config is None else SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_bars_show_in_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_notebook() and not shows_progress(None) and shows_progress(True) and not shows_progress(False)
    jupyter(monkeypatch, None)
    assert not is_notebook()
    jupyter(monkeypatch, {"TerminalIPythonApp": {}})
    assert not is_notebook()
    jupyter(monkeypatch, {"IPKernelApp": {}})
    assert is_notebook() and shows_progress(None) and not shows_progress(False)
    jupyter(monkeypatch, None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert shows_progress(None)


def test_a_bar_names_the_chains_that_it_counts(
    problem: problems.Problem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bar for the chains of each posterior, which ends at the steps of all of them, without a warning."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run: dict[str, Any] = {"chains": 2, "draws": 50, "thin": 4, "warmup": 100, "seed": 1, "progress": True}
    with warnings.catch_warnings(action="error"):
        pn.sample(problem.post, pn.PCN(0.2), **run)
        assert "sampling, 2 chains: 100%" in capsys.readouterr().err
        pn.sample(problem.post, pn.PCN(0.2), **(run | {"chains": 1}))
        assert "sampling, 1 chain: 100%" in capsys.readouterr().err
        pn.sample_many([problem.post, problem.post, problem.post], kernel=pn.PCN(0.2), **run)
        err = capsys.readouterr().err
        assert all(f"sampling, posterior {number} of 3, 2 chains: 100%" in err for number in (1, 2, 3))


def test_a_disabled_bar_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(total=3, disable=True) as bar:
        bar.update()
    assert list(progress_bar(iterable=[1, 2], disable=True)) == [1, 2]
    assert capsys.readouterr().err == ""


def test_ipython_shows_strings_instead_of_arrays(problem: problems.Problem, draws: pn.Draws) -> None:
    pretty = pytest.importorskip("IPython.lib.pretty", reason="IPython is not installed")
    summary = draws.summary(problem.data.X)
    for shown in (summary, pn.DrawsMixture([draws, draws]).summary(problem.data.X), summary.verdict()):
        assert pretty.pretty(shown) == str(shown)
