"""The HTML report: its page, the sections that describe a run, the verdict, and its numbers as JSON."""

from __future__ import annotations

from patrac_native.report.report import PAGE_WIDTH, Report, format_number, write_json
from patrac_native.report.run_sections import (
    CONVERGENCE_CAPTION,
    CONVERGENCE_HEADERS,
    add_run_sections,
    convergence_rows,
)
from patrac_native.verdict.verdict import Finding, Verdict

__all__ = [
    "CONVERGENCE_CAPTION",
    "CONVERGENCE_HEADERS",
    "PAGE_WIDTH",
    "Finding",
    "Report",
    "Verdict",
    "add_run_sections",
    "convergence_rows",
    "format_number",
    "write_json",
]
