"""The report on a fit of an estimator: what was chosen and why, the verdict on the chains, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from patrac_native.fit.array_fit import ArrayFit
from patrac_native.verdict.findings import DO_NOT_USE, RHAT_USABLE, Finding
from patrac_native.verdict.verdict import Verdict


@dataclass(frozen=True)
class FitReport:
    """What a fit did; its string is what `patrac fit` would print.

    Attributes
    ----------
    lines : tuple of str
        Scaling, training, choice of the posterior, prior, chains and noise, in words.
    verdict : Verdict
        Its grade is "good", "look" or "do not use"; its findings name parameters of the estimator as remedies.
    converged : bool
        Whether R-hat of the function (of the class probabilities) is at most 1.05 within the chains of each network.
    summary : str
        The summary of the chains.
    scores : dict
        nlpd (of standardised targets), and coverage of 90% intervals or accuracy; "kind" says of which rows:
        "validation", rows that the pilot run of the chosen posterior left out, or "leave one out", training rows.
    seconds : dict of str to float
        Wall-clock time of training, choice, sampling and evaluation.
    """

    lines: tuple[str, ...]
    verdict: Verdict
    converged: bool
    summary: str
    scores: dict[str, Any]
    seconds: dict[str, float]

    @classmethod
    def of(cls, fit: ArrayFit, lines: Sequence[str]) -> FitReport:
        """Collect the report on a fit."""
        summary = fit.summary
        members = summary.members if hasattr(summary, "members") else (summary,)
        evidence = [member.evidence for member in members]
        converged = all(one.is_independent or one.max_rhat <= RHAT_USABLE for one in evidence)
        return cls(tuple(lines), summary.verdict(), converged, str(summary), fit.evaluation.scores, fit.seconds)

    @property
    def needs_warning(self) -> bool:
        """Whether the chains have not converged, or the draws should not be used for another reason."""
        return not self.converged or self.verdict.grade == DO_NOT_USE

    def __str__(self) -> str:
        return "\n".join([*self.lines, self.results()])

    def results(self) -> str:
        """Return scores, summary of the chains and times in words."""
        scores = ", ".join(f"{name} {_shown(value)}" for name, value in self.scores.items() if value is not None)
        times = ", ".join(f"{stage} {value:.1f} s" for stage, value in self.seconds.items())
        return f"scores: {scores}\n{self.summary}\ntime: {times}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitReport:
        """Rebuild from what `to_dict` returned."""
        verdict = content["verdict"]
        findings = tuple(Finding(**finding) for finding in verdict["findings"])
        return cls(
            **{
                **content,
                "lines": tuple(content["lines"]),
                "verdict": Verdict(verdict["grade"], findings, verdict["facts"]),
            }
        )


def _shown(value: Any) -> str:
    """Return a score in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"of {float(name):.0%} intervals {float(share):.1%}" for name, share in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
