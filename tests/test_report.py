"""Tests of the report: it is self-contained, escaped and complete, and its JSON is strict."""

import base64
import json
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import patrac_native as pn
import problems
from patrac_native.report import run_sections
from patrac_native.report.report import Report, format_number, write_json
from patrac_native.report.run_sections import add_run_sections

PNG = b"\x89PNG\r\n\x1a\n"


class Page(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles, of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def assert_self_contained(html: str) -> Page:
    """Assert that there are no scripts, and that every reference is to the page itself or contains its data."""
    page = Page(html)
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#"))
    assert "http:" not in html and "https:" not in html
    assert "@import" not in html and "url(" not in html
    return page


def small_draws() -> tuple[pn.Draws, pn.Posterior, np.ndarray]:
    X = np.linspace(-2, 2, 25)[:, None]
    net = problems.random_network(np.random.default_rng(0), (1, 4, 4, 1))
    post = pn.Posterior(net, pn.Mix(2), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(0.5), X, np.sin(X[:, 0]))
    draws = pn.sample(post, chains=2, draws=60, thin=2, warmup=400, seed=3, progress=False)
    return draws, post, X


def test_every_part_is_there_in_order(tmp_path: Path) -> None:
    report = Report("The title")
    report.heading("First part")
    report.text("A paragraph.")
    report.table(["model", "RMSE"], [["Mix(5)", 2.08123], ["network", float("nan")]], caption="The caption.")
    report.preformatted("a  b\n c")
    report.heading("A detail", level=3)
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    report.figure(figure, "The picture.")
    path = tmp_path / "report.html"
    report.write(path)
    html = path.read_text(encoding="utf-8")
    text = assert_self_contained(html).text
    places = [
        text.index(part)
        for part in (
            "The title",
            "First part",
            "A paragraph.",
            "The caption.",
            "RMSE",
            "2.081",
            "A detail",
            "The picture.",
        )
    ]
    assert places[1:] == sorted(places[1:])
    assert "<pre>a  b\n c</pre>" in html
    assert not list(tmp_path.glob("*.partial"))


def test_all_text_is_escaped() -> None:
    evil = "<script>alert('x')</script> & \"quoted\""
    report = Report(evil)
    report.heading(evil)
    report.text(evil)
    report.table([evil], [[evil]], caption=evil)
    report.preformatted(evil)
    figure = Figure(figsize=(1, 1))
    report.figure(figure, evil)
    page = assert_self_contained(report.html())
    # Title, page title, heading, text, header, cell, caption, preformatted, figure caption; the picture's alt beside.
    assert page.text.count(evil) == 9
    assert [attributes["alt"] for tag, attributes in page.tags if tag == "img"] == [evil]


def test_figures_are_png_of_the_asked_size_and_closed() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots(figsize=(3, 2))
    number = figure.number
    report = Report("t")
    report.figure(figure, "c")
    assert not plt.fignum_exists(number)
    (image,) = [attributes for tag, attributes in Page(report.html()).tags if tag == "img"]
    source = image["src"]
    assert source is not None
    png = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    assert png.startswith(PNG)
    # The header's width and height: twice the 90 pixels an inch that the page shows.
    assert int.from_bytes(png[16:20], "big") == 3 * 180 and int.from_bytes(png[20:24], "big") == 2 * 180
    assert image["width"] == str(3 * 90)


def test_names_with_dollar_signs_are_no_formulas() -> None:
    """Two of them begin and end one; what is no valid formula ended the report."""
    pictures = []
    for name in ("profit_$_per_$_spent", "$a_b$", "a_b"):
        fig = Figure(figsize=(4, 3))
        axes = fig.subplots()
        axes.semilogy([1, 1000], label=name)
        axes.set_xticks([0, 1], [name, "other"])
        axes.set_xlabel(name)
        axes.legend()
        report = Report("t")
        report.figure(fig, "f")
        texts = [text for text in fig.findobj(Text) if "$" in text.get_text()]
        literal = {text.get_text() for text in texts if not text.get_parse_math()}
        assert literal == ({name} if "$" in name else set())
        assert any(r"\mathdefault" in text.get_text() for text in texts)  # powers of ten stay formulas
        pictures.append(report._parts[-1]["data"])
    assert pictures[1] != pictures[2]


def test_tables_refuse_rows_of_another_length_and_headings_another_level() -> None:
    report = Report("t")
    with pytest.raises(ValueError, match=r"rows\[1\] has 1 cells, but there are 2 headers"):
        report.table(["a", "b"], [[1, 2], [3]])
    with pytest.raises(ValueError, match="level of a heading must be 2 or 3; got 1"):
        report.heading("x", level=1)


def test_columns_of_numbers_are_flush_right() -> None:
    report = Report("t")
    report.table(["name", "share", "value"], [["a", "97.5%", 1.0], ["b", "3%", None]])
    cells = [attributes.get("class") for tag, attributes in Page(report.html()).tags if tag == "td"]
    assert cells == ["short", "number", "number"] * 2


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (np.float32(0.25), "0.25"),
        (2.084999, "2.085"),
        (123456.7, "123,457"),
        (1234567, "1,234,567"),
        (1.5e-7, "1.5e-07"),
        (float("inf"), "inf"),
        (True, "yes"),
        ("1e3", "1e3"),
    ],
)
def test_numbers_in_tables(cell: object, shown: str) -> None:
    assert format_number(cell) == shown


def test_json_is_strict_and_takes_numpy(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    content = {
        "scalar": np.float32(0.5),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "array": np.array([[1.0, np.nan], [np.inf, 2.0]]),
        "nested": {"tuple": (1, None, "ü"), "path": tmp_path},
    }
    write_json(path, content)

    def refuse(constant: str) -> None:
        raise AssertionError(f"not strict JSON: {constant}")

    read = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert read == {
        "scalar": 0.5,
        "count": 3,
        "flag": True,
        "array": [[1.0, None], [None, 2.0]],
        "nested": {"tuple": [1, None, "ü"], "path": str(tmp_path)},
    }


def test_json_names_what_it_cannot_hold_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError, match=r"content\['b'\]\[1\] must be .* got set"):
        write_json(path, {"b": [1, {2}]})
    assert json.loads(path.read_text()) == {"a": 1}


def test_run_sections_hold_table_traces_autocorrelation_and_words() -> None:
    draws, post, X = small_draws()
    report = Report("run")
    summary = add_run_sections(report, draws, X, description=post.describe(), point=5, point_label="-1")
    html = report.html()
    page = assert_self_contained(html)
    assert sum(tag == "img" for tag, _ in page.tags) == 3  # traces, chains apart, autocorrelation
    assert "Mix(2): chains" in page.text
    assert f"{summary.function.max_rhat:.3f}" in page.text
    assert "2 x 60 (2)" in page.text
    for line in post.describe().splitlines():
        assert line in unescape(html)
    # One row of the chain table for each chain, with its own step size.
    for chain in range(2):
        assert format_number(float(draws.stats["step_size"][chain].mean())) in page.text


def test_run_sections_trace_probabilities_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.linspace(-2, 2, 25)[:, None]
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(4, 1)), rng.normal(size=(3, 4))], [np.zeros(4), np.zeros(3)])
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    post = pn.Posterior(net, pn.Mix(2), prior, pn.Categorical(), X, rng.integers(0, 3, size=25))
    draws = pn.sample(post, chains=2, draws=60, thin=2, warmup=400, seed=3, progress=False)
    drawn: dict[str, np.ndarray] = {}
    original = pn.plots.trace

    def record(values: np.ndarray, *, label: str, **options: Any) -> Any:
        drawn[label] = values
        return original(values, label=label, **options)

    monkeypatch.setattr(run_sections, "trace", record)
    summary = add_run_sections(Report("run"), draws, X, classes=["red", "green", "blue"])
    row = int(summary.function.rhat.max(axis=1).argmax())
    likeliest = int(summary.mean[row].argmax())
    label = f"P({['red', 'green', 'blue'][likeliest]} | row {row})"
    assert list(drawn)[:2] == ["log-likelihood", "log prior"] and list(drawn)[3] == label
    assert np.array_equal(drawn[label], draws.predict_proba(X)[:, :, row, likeliest])


def test_run_sections_say_when_chains_have_not_mixed() -> None:
    draws, _, X = small_draws()
    apart = pn.Draws(draws.theta.copy(), draws.stats, draws.network, draws.likelihood, draws.settings)
    apart.theta[1] += 3.0
    report = Report("run")
    summary = add_run_sections(report, apart, X)
    assert summary.function.max_rhat > 1.05
    text = Page(report.html()).text
    assert "Mix(2): predictions of y: " in text and "posterior of f: do not use" in text
    assert "the chains disagree: the largest R-hat of f is" in text
