"""Reports in headless Chromium: nothing overflows, fails or is fetched at three widths; figures are described."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from patrac_native.cli.main import main
from patrac_native.report.report import Report
from test_report import assert_self_contained

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUICK = "--hidden-layer-sizes 4 --max-iter 40 --l2 1 --chains 2 --draws 20 --thin 2 --warmup 400 --n-jobs 1".split()
# What only the test adds to a page: a policy that allows nothing to be fetched, a record of errors and of violations of
# the policy, and a report to the outer page of the widest content beside the width of the view, and of the width of the
# narrowest large figure.
CATCH = """<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<script>const errors = [], fetched = []; console.error = m => errors.push(m);
window.addEventListener('error', e => errors.push(e.message));
document.addEventListener('securitypolicyviolation', e => fetched.push(e.blockedURI));</script>"""
PROBE = """<script>window.addEventListener('load', () => setTimeout(() => {
  const root = document.documentElement;
  const drawn = Math.min(...[...document.querySelectorAll('img.wide')].map(image => image.clientWidth), 9999);
  const found = [root.scrollWidth, root.clientWidth, drawn, fetched.length, errors.length, ...fetched, ...errors];
  parent.document.body.textContent = 'PROBE ' + found.join(' ');
}, 50));</script>"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A regression with a long name and a classification of two classes."""
    place = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"a_measurement_with_a_long_name_{j}": rng.normal(size=80) for j in range(8)})
    frame["strength"] = frame.iloc[:, 0] + 0.1 * rng.normal(size=80)
    frame.to_csv(place / "numbers.csv", index=False)
    frame.assign(strength=np.where(frame["strength"] > 0, "strong", "weak")).to_csv(place / "classes.csv", index=False)
    found = {}
    for name, options in (("numbers", ["--architecture", "full", "--noise-variance", "0.1"]), ("classes", [])):
        out = place / name
        assert (
            main(["fit", str(place / f"{name}.csv"), "--target", "strength", *QUICK, *options, "--out", str(out)]) == 0
        )
        found[name] = out / "report.html"
    return found


def probe(page: Path, width: int, folder: Path) -> tuple[int, int, int, int, int, str]:
    """Return widths of content, view and the narrowest large figure, numbers of blocked requests and errors, and both.

    The page is shown in a frame, because a window of Chromium is at least 500 pixels wide.
    """
    assert CHROMIUM is not None
    text = (
        page.read_text(encoding="utf-8").replace("<head>", f"<head>{CATCH}", 1).replace("</body>", f"{PROBE}</body>", 1)
    )
    outer = folder / "outer.html"
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>'
    outer.write_text(f"<!doctype html><meta charset=utf-8><body>{frame}</body>", encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000", "--dump-dom", outer.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"PROBE (\d+) (\d+) (\d+) (\d+) (\d+) ?([^<]*)", done.stdout)
    assert found is not None, done.stdout[-500:]
    return (*(int(group) for group in found.groups()[:5]), found[6])  # type: ignore[return-value]  # five numbers


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
@pytest.mark.parametrize("name", ["numbers", "classes"])
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_overflows_fails_or_is_fetched(name: str, width: int, reports: dict[str, Path], tmp_path: Path) -> None:
    content, view, drawn, fetched, failed, errors = probe(reports[name], width, tmp_path)
    assert 0.95 * width <= view <= width and content <= view and fetched == 0 and failed == 0, errors
    # A figure of 945 pixels that is drawn at two thirds of its size has letters of 8 pixels; narrower ones scroll.
    assert 630 <= drawn < 9999


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
def test_the_probe_finds_an_overflow_and_a_request(tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    body = '<div style="width:3000px">x</div><img src="https://example.org/none.png"><script>f()</script>'
    bad = f"<html><head></head><body>{body}</body></html>"
    (folder / "report.html").write_text(bad)
    content, view, _, fetched, failed, _ = probe(folder / "report.html", 800, tmp_path)
    assert content > view and fetched == 1 and failed >= 1


@pytest.mark.parametrize(("name", "figures"), [("numbers", 9), ("classes", 6)])
def test_every_figure_has_a_description_and_nothing_is_external(
    name: str, figures: int, reports: dict[str, Path]
) -> None:
    page = assert_self_contained(reports[name].read_text(encoding="utf-8"))
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == figures and all(len(image["alt"] or "") > 30 for image in images)


def test_reports_are_worded_for_their_task(reports: dict[str, Path]) -> None:
    """Residuals stand against each of eight inputs; R-hat is one word; a sentence begins with a capital."""
    numbers = reports["numbers"].read_text(encoding="utf-8")
    assert "Residuals against each input, in the units of the table" in numbers
    assert re.search(r"\. Noise variance [\d.e-]+ in the target&#39;s units squared", numbers)
    assert "bands are not to be used, and predictions only if scores" in numbers
    assert numbers.count('<span class="short">R-hat</span></th>') == 1


def test_letters_that_a_font_lacks_are_said_once() -> None:
    from matplotlib.figure import Figure

    fig = Figure()
    axes = fig.subplots()
    axes.set_xlabel("\N{CJK UNIFIED IDEOGRAPH-65E5}\N{CJK UNIFIED IDEOGRAPH-672C}")
    axes.set_xticks([0, 1], ["\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{CJK UNIFIED IDEOGRAPH-672C}"])
    report = Report("t")
    with pytest.warns(UserWarning) as caught:
        report.figure(fig, "letters of another script")
    assert len(caught) == 1
    assert str(caught[0].message).startswith("figures show a box for '\u65e5', '\u672c', which")
    assert axes.get_xlabel() == "\N{WHITE SQUARE}" * 2


@pytest.mark.parametrize(("grade", "colour"), [("good", "green"), ("look", "amber"), ("do not use", "red")])
def test_a_banner_says_its_colour(grade: str, colour: str) -> None:
    report = Report("t")
    report.banner(grade, "<all> is said")
    text = report.html()
    assert f'class="banner {colour}"' in text and f"<strong>{grade}</strong> <span>({colour})</span>" in text
    assert "&lt;all&gt; is said" in text
    with pytest.raises(ValueError, match="grade must be one of good, look, do not use; got 'fine'"):
        report.banner("fine", "")
