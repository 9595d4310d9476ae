"""bench/claims.py: measured claims stand on their pages, README has no other figures, and a wrong figure is found."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from scripts import process

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"

# What README says in figures that nobody measured: definitions, versions, dates, names and settings.
NOT_MEASURED = [
    r"\(2025\)",
    r"arxiv\.org/abs/[\d.]+",
    r"on 100 rows: dashed lines hold 95% of the draws of the function f, the light band 95% of new",
    r"`(Mix|Sep|Out)\(\d+\)`",
    r"#9-laplace-approximation",
    r"Python 3\.11( or newer| to 3\.14 on Linux)",
    r"x86-64|aarch64|arm64|UTF-8",
    r"glibc 2\.28|C\+\+20|GCC 11|Clang 14|CUDA 12|-2\.0",
    r"1-50-50-1",
    r"k = \d+:",
    r"σ²",
    r"`precision=0\.05` adds networks until it is at most 5% of",
    r"n = 100 rows",
    r"draws=1000|float32",
    r"on 22 tables",
    r"\(5 repeats, with other work",
    r"jax 0\.10\.2, 2026-11-22",
    r"AMD\s+EPYC Zen 4, level v4",
    r"\bH100\b",
]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    import claims

    return claims


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_claim_stands_on_its_page_once(claims: ModuleType) -> None:
    """It fails if a sentence or a row changes without its claim, and for claims without a quick form or a reason."""
    for claim in claims.CLAIMS:
        assert claim.stated(), claim.text
        assert bool(claim.quick) == bool(claim.tolerance) != bool(claim.elsewhere), claim.text


def test_figures_of_readme_are_claims(claims: ModuleType) -> None:
    """It fails if a figure is written into README that no command measures."""
    text = page("README.md")
    left = list(text)
    known = [match.span() for pattern in NOT_MEASURED for match in re.finditer(pattern, text)]
    known += [match.span() for match in re.finditer(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)]  # code
    for claim in claims.CLAIMS:
        if claim.page == "README.md":
            found = claim.found(text)
            known += [found.span(group + 1) for group in range(len(found.groups()))]
    for start, end in known:
        left[start:end] = ["\n" if char == "\n" else " " for char in text[start:end]]
    lines = zip(text.splitlines(), "".join(left).splitlines(), strict=True)
    assert [line for line, rest in lines if re.search(r"\d", rest)] == []


def test_patterns_of_readme_are_needed() -> None:
    """Exceptions that nothing needs any more would hide a new figure."""
    text = page("README.md")
    assert [pattern for pattern in NOT_MEASURED if not re.search(pattern, text)] == []


def test_wrong_figures_are_outside_the_tolerances(claims: ModuleType) -> None:
    """A measured figure that is a fifth of the stated one, or five times one that is an upper bound, is found."""
    for claim in claims.CLAIMS:
        for x in claim.stated() if claim.tolerance else []:
            bounds = claim.tolerance.low(x), claim.tolerance.high(x)
            assert bounds[0] <= x <= bounds[1] and not (
                bounds[0] <= min(x / 5, 5 * x) and max(x / 5, 5 * x) <= bounds[1]
            )


def test_status_is_1_if_a_claim_fails(
    claims: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The measures are replaced; one_core would pin the tests to a core."""
    measures: Any = SimpleNamespace(dimensions=lambda: [2701.0, 46, 46, 46])
    monkeypatch.setitem(sys.modules, "one_core", ModuleType("one_core"))
    monkeypatch.setitem(sys.modules, "quick_measures", measures)
    assert claims.main(["--quick", "--only", "| all | {} |"]) == 0
    measures.dimensions = lambda: [2700.0, 46, 46, 46]
    assert claims.main(["--quick", "--only", "| all | {} |"]) == 1
    assert "| 2701 | 2700 | NO (counted)" in capsys.readouterr().out


def test_command() -> None:
    """A quick form by the command itself, and the list of all commands."""
    done = process(str(BENCH / "claims.py"), "--quick", "--only", "k = 5: {}")
    assert done.returncode == 0 and done.stdout.count("| 46 | 46 | yes") == 2, done.stdout + done.stderr
    assert "python bench/gpu.py --json FILE  (needs an H100)" in process(str(BENCH / "claims.py")).stdout
