"""The HTML report: its page, the sections that describe a run, the verdict, and its numbers as JSON."""

from __future__ import annotations

from patrac_native.report.report import Report, format_number, page_figure, write_json
from patrac_native.report.run_sections import add_convergence, add_run_sections
from patrac_native.verdict.verdict import Finding, Verdict

__all__ = [
    "Finding",
    "Report",
    "Verdict",
    "add_convergence",
    "add_run_sections",
    "format_number",
    "page_figure",
    "write_json",
]
