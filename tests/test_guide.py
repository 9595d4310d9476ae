"""docs/guide.md runs when it is pasted from top to bottom: one namespace, with shorter runs and trainings."""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from pages import DOCS, blocks_of


@pytest.mark.filterwarnings("ignore::UserWarning")  # of runs that are too short
def test_the_guide_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers of draws are the page's own, so that the shapes in its comments can be compared."""
    import matplotlib

    matplotlib.use("Agg")

    def shorter(function: Any, **instead: Any) -> Any:
        return lambda *arguments, **keywords: function(*arguments, **{**keywords, **instead})

    for name in ("sample", "sample_many"):
        monkeypatch.setattr(pn, name, shorter(getattr(pn, name), thin=1, warmup=400))
    for name in ("train", "train_many"):
        monkeypatch.setattr(pn, name, shorter(getattr(pn, name), l2=1.0, max_epochs=40))
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("guide.md")
    assert len(blocks) > 12
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/guide.md, block {number}", "exec"), names)
    said = capsys.readouterr().out
    shapes = re.findall(r"^print\(.*\.shape\) +# (\(.*\))$", "\n".join(blocks), re.MULTILINE)
    assert len(shapes) >= 2 and all(shape in said for shape in shapes)
    assert np.isfinite(names["mean"]).all()


@pytest.mark.slow
def test_the_readmes_scripts_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """README's Python blocks: the estimator, with a smaller network and budget, and the parts, with a shorter run."""
    estimator, parts = blocks_of("../README.md")
    quick = partial(pn.PatracRegressor, hidden_layer_sizes=5, max_iter=50, minutes=0.005)
    monkeypatch.setattr(pn, "PatracRegressor", quick)
    names: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore"):
        exec(compile(estimator, "README.md", "exec"), names)
    assert names["std"].shape == (111,) and (names["lower"] < names["upper"]).all()
    assert "verdict" in capsys.readouterr().out
    sample = pn.sample
    monkeypatch.setattr(pn, "sample", lambda post, **keywords: sample(post, **{**keywords, "thin": 1}))
    exec(compile(parts, "README.md", "exec"), names)
    assert names["f"].shape == (4, 1000, 50, 1) and "verdict" in capsys.readouterr().out


SOURCES = {
    "gpu.md": ("| `Full` | 36.8 | 37.5 | 52.6 | 210 | 828 | 20.1 | 203 |", "1,066 microseconds"),
    "choosing-a-kernel.md": ("| `Full()` | 60 | 930 | 2,060 | 38 | 48 | 52 (31-68) | 34 (27-55) |", "85 (69-114)"),
    "performance.md": (
        "| BlackJAX NUTS on our density, `Mix(5)`, ESS/s | 1,868 |  | 146, density in JAX |",
        "| BlackJAX NUTS on our density, `Full`, ESS/s | 121 |  | 54.9, density in JAX |",
        "lower than the ensemble's on seven of eight sets; on wine the two are\nequal within their error",
        "| RMSE on airfoil by the protocol of bde, two seeds | 0.116 |  | 0.123, bde",
        "| NLL on airfoil by the protocol of bde, two seeds | -0.912 |  | -0.848, bde (-0.913 in its paper) |",
        "| core-seconds on airfoil by the protocol of bde, two seeds | 197 |  | 548, bde |",
        "| Mean NLL of classes on digits, five splits | 0.082 |  | 0.082, ensemble |",
    ),
}


@pytest.mark.parametrize("page", SOURCES)
def test_the_readmes_figures_stand_in_their_sources(page: str) -> None:
    """A figure that is measured again must change in README too, such as 34, 85, 1,868, 121, 197, 548 and 0.082."""
    text = (DOCS / page).read_text(encoding="utf-8")
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert f"docs/{page}" in readme and all(source in text for source in SOURCES[page])


def test_the_picture_is_small() -> None:
    picture = DOCS / "pictures" / "sine.png"
    assert picture.stat().st_size < 60_000 and "docs/pictures/sine.png" in (DOCS.parent / "README.md").read_text()
