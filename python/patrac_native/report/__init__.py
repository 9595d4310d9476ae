"""The HTML report: its page, the sections that describe a run, the verdict, rerun errors, and numbers as JSON."""

from __future__ import annotations

from patrac_native.report.report import Report, format_number, page_figure, write_json
from patrac_native.report.run_sections import add_convergence, add_run_sections
from patrac_native.verdict.rerun_error import RerunError
from patrac_native.verdict.verdict import Finding, Judgement, Verdict

__all__ = [
    "Finding",
    "Judgement",
    "Report",
    "RerunError",
    "Verdict",
    "add_convergence",
    "add_run_sections",
    "format_number",
    "page_figure",
    "write_json",
]
