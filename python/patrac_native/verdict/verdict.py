"""The verdict on a run: "good", "look" or "do not use", with every reason and its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from patrac_native.plots.table import html_list
from patrac_native.verdict.evidence import Evidence
from patrac_native.verdict.findings import (
    GOOD,
    GRADES,
    Finding,
    calibration_findings,
    convergence_findings,
    facts_of,
    fit_findings,
    move_findings,
    noise_findings,
    nonfinite_findings,
    warmup_findings,
)


@dataclass(frozen=True)
class Verdict:
    """Whether the draws of a run can be used; its string is a sentence, or a line for each of several findings.

    Attributes
    ----------
    grade : str
        "good": no check argues against reporting means, bands and quantiles. "look": the findings should be examined
        before anything is reported. "do not use": the draws do not represent the posterior, or the model does not fit
        the data.
    findings : tuple of Finding
        The findings, worst first; empty for "good".
    facts : str
        R-hat and ESS in words.
    """

    grade: str
    findings: tuple[Finding, ...]
    facts: str

    @classmethod
    def of(cls, findings: Sequence[Finding], facts: str) -> Verdict:
        """Return the verdict of findings, whose grade is that of the worst; those of one grade keep their order."""
        ordered = sorted(findings, key=lambda finding: -GRADES.index(finding.grade))
        return cls(ordered[0].grade if ordered else GOOD, tuple(ordered), facts)

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.grade}: {self.facts}."
        if len(self.findings) == 1:
            return str(self.findings[0])
        return "\n".join(
            [f"{self.grade}, {len(self.findings)} findings", *(f"- {finding}" for finding in self.findings)]
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the string in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return grade and findings for notebooks."""
        title = str(self).splitlines()[0]
        return html_list(f"verdict: {title}", [str(finding) for finding in self.findings if len(self.findings) > 1])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Verdict:
        """Rebuild a verdict from what `to_dict` returned."""
        return cls(content["grade"], tuple(Finding(**one) for one in content["findings"]), content["facts"])


def judge(evidence: Evidence, advice: Mapping[str, str] | None = None) -> Verdict:
    """Derive the verdict from a run's numbers; `advice` replaces the remedies of findings of the kinds that it names.

    The grade is that of the worst finding. Among findings of one grade, causes precede their symptoms.
    """
    causes, advice = move_findings(evidence), {} if advice is None else advice
    found = [
        *causes,
        *nonfinite_findings(evidence),
        *fit_findings(evidence),
        *noise_findings(evidence),
        *calibration_findings(evidence),
        *convergence_findings(evidence, causes),
        *warmup_findings(evidence),
    ]
    findings = [replace(finding, remedy=advice.get(finding.kind, finding.remedy)) for finding in found]
    return Verdict.of(findings, facts_of(evidence))
