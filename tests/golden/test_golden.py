"""Draws that may not change: SHA-256 digests of runs, made before a redesign and compared one by one after it.

They hold for one family of processors and, case by case, for one instruction-set level. A case that differs is named
with what differs; the last log-likelihoods tell rounding from another computation. `make.py` makes the digests anew.
"""

from __future__ import annotations

import json
from typing import Any

import golden_runs
import pytest
from golden_cases import CASES

import machine
import patrac_native as pn

STORED: dict[str, Any] = json.loads(golden_runs.FILE.read_text())
HERE = machine.processor()
MADE = STORED["made"][-1]
LEVELS = pn.build_info()["SIMD levels"].split(", ")


def reason_to_skip(name: str, level: str) -> str | None:
    """Why the digest says nothing here; None where it does."""
    if HERE["family"] != MADE["family"]:
        return f"digests were made on {MADE['family']}; this processor is {HERE['family']}"
    if level != golden_runs.ANY_LEVEL and level not in LEVELS:
        return f"level {level} is not in this build or processor, which has {', '.join(LEVELS)}"
    if CASES[name].uses_linear_algebra and any(HERE[key] != MADE[key] for key in ("model", "numpy")):
        return (
            f"its numbers from BLAS were made on {MADE['model']} with NumPy {MADE['numpy']}; "
            f"here {HERE['model']}, NumPy {HERE['numpy']}"
        )
    return None


@pytest.mark.parametrize(("name", "level"), [(name, level) for name, of in STORED["cases"].items() for level in of])
def test_draws_are_unchanged(name: str, level: str) -> None:
    if reason := reason_to_skip(name, level):
        pytest.skip(reason)
    expected, found = STORED["cases"][name][level], golden_runs.digests(CASES[name], level)
    differing = [key for key, value in expected.items() if found.get(key) != value]
    assert not differing, (
        f"{name}, level {level}: {', '.join(differing)} changed since {MADE['code']}; last log-likelihood "
        f"{expected['last log-likelihood']} before, {found['last log-likelihood']} now"
    )


def test_every_case_is_stored() -> None:
    assert set(STORED["cases"]) == set(CASES)
    assert len(CASES) >= 60
    assert {name for name, of in STORED["cases"].items() if not of} == set(STORED["taken_out"])
