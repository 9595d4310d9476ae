"""The summary of a mixture of draws: its means and intervals, and the convergence of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import credible_interval
from patrac_native.draws.summary import Summary
from patrac_native.plots.table import html_table
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import Calibration
from patrac_native.verdict.findings import CALIBRATION_KINDS, GOOD, GRADES, Finding
from patrac_native.verdict.verdict import Verdict

# The verdict leaves out members of less weight than this, which hardly contribute to predictions.
_LEAST_WEIGHT = 0.01


@dataclass(frozen=True, repr=False)
class MixtureSummary:
    """The summary of a mixture, as `DrawsMixture.summary` returns it; its string is a table.

    Attributes
    ----------
    quantity : str
        What is summarised, as in `Summary`.
    weights : ndarray of float64, shape (members,)
    members : tuple of Summary
        The summary of each member at the same inputs.
    mean, sd, lower, upper : ndarray of float64, shape (n, m)
        Mean, standard deviation and ends of the central interval of the quantity under the mixture.
    sd_between : ndarray of float64, shape (n, m)
        Standard deviation of the means of the members: the part of `sd` that one member would not show.
    coverage : float
        Posterior probability of the interval.
    """

    quantity: str
    weights: FloatArray
    members: tuple[Summary, ...]
    mean: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray
    sd_between: FloatArray
    coverage: float

    def with_calibration(self, calibration: Calibration) -> MixtureSummary:
        """Return the summary with scores of the mixture on unseen rows, which its verdict then considers."""
        return replace(self, members=tuple(member.with_calibration(calibration) for member in self.members))

    def with_advice(self, advice: Mapping[str, str]) -> MixtureSummary:
        """Return the summary with other remedies in its verdict, as `Summary.with_advice`."""
        return replace(self, members=tuple(member.with_advice(advice) for member in self.members))

    def verdict(self) -> Verdict:
        """Return the verdict on the mixture, that of its worst member, with every finding and its remedy.

        The chains of each member are judged among themselves: members need not agree. Members of less than 1% of the
        weight are left out.
        """
        used = [member for member in range(len(self.members)) if self.weights[member] >= _LEAST_WEIGHT]
        grouped: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
        for member in used:
            for finding in self.members[member].verdict().findings:
                grouped.setdefault((finding.grade, finding.kind), []).append((member, finding))
        # The scores are those of the mixture, and the same in the evidence of each member.
        findings = [
            group[0][1] if group[0][1].kind in CALIBRATION_KINDS else _joined(group, len(used))
            for group in grouped.values()
        ]
        findings.sort(key=lambda finding: -GRADES.index(finding.grade))
        rhat = max((self.members[member].function.max_rhat for member in used), default=np.nan)
        ess = min((self.members[member].function.min_ess_bulk for member in used), default=np.nan)
        facts = f"within the {len(used)} members, R-hat is at most {rhat:.3f} and bulk ESS at least {ess:.0f}"
        return Verdict(findings[0].grade if findings else GOOD, tuple(findings), facts)

    def _title(self) -> str:
        """Return what was run, in a line."""
        first = self.members[0]
        return (
            f"mixture of {len(self.members)} posteriors: {first.label} by {first.sampler}, {first.n_chains} chains x "
            f"{first.n_draws} draws each"
        )

    def _rows(self) -> list[tuple[str, str]]:
        """Return labels and values of the table."""
        width = self.upper - self.lower
        share = float((self.sd_between**2).mean() / max((self.sd**2).mean(), np.finfo(float).tiny))
        spread = (
            f"posterior sd {self.sd.min():.3g} to {self.sd.max():.3g}, {self.coverage:.0%} interval width "
            f"{width.min():.3g} to {width.max():.3g}\n"
            f"{share:.0%} of the variance of {self.quantity} is between the members"
        )
        of_members = [
            (
                f"member {index}",
                f"weight {weight:.3f}, max R-hat {member.function.max_rhat:.3f}, min bulk ESS "
                f"{member.function.min_ess_bulk:.0f}",
            )
            for index, (weight, member) in enumerate(zip(self.weights, self.members, strict=True))
        ]
        return [(f"{self.quantity} at {self.mean.shape[0]} inputs", spread), *of_members]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        verdict = str(self.verdict()).replace("\n", "\n    ")
        rows = [f"  {label}: " + text.replace("\n", "\n  ") for label, text in self._rows()]
        return "\n".join([self._title(), *rows, f"  verdict: {verdict}"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the string instead of all arrays in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return html_table(self._title(), self._rows(), after=self.verdict()._repr_html_())


def _joined(group: Sequence[tuple[int, Finding]], count: int) -> Finding:
    """Return findings of one kind as one, which names the members and shows the numbers of the first."""
    members = [str(member) for member, _ in group]
    first = group[0][1]
    if len(group) == 1:
        who = f"member {members[0]}: "
    elif len(group) == count:
        who = f"all {count} members (here member {members[0]}): "
    else:
        who = f"members {', '.join(members[:-1])} and {members[-1]} (here member {members[0]}): "
    return replace(first, what=who + first.what)


def summarise_mixture(
    members: tuple[Summary, ...], weights: FloatArray, blocks: Iterable[npt.NDArray[Any]], coverage: float
) -> MixtureSummary:
    """Build the summary of a mixture from those of its members and equally weighted draws (chain, draw, rows, m)."""
    means = np.stack([member.mean for member in members])
    shares = weights[:, None, None]
    mean = (shares * means).sum(axis=0)
    between = (shares * (means - mean) ** 2).sum(axis=0)
    within = (shares * np.stack([member.sd**2 for member in members])).sum(axis=0)
    intervals = [credible_interval(values, coverage) for values in blocks]
    lower, upper = (np.concatenate(ends) for ends in zip(*intervals, strict=True))
    return MixtureSummary(
        quantity=members[0].quantity,
        weights=weights,
        members=members,
        mean=mean,
        sd=np.sqrt(within + between),
        lower=lower,
        upper=upper,
        sd_between=np.sqrt(between),
        coverage=coverage,
    )
