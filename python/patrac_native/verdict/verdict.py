"""The verdict on predictions and on the posterior of a run: checks of numbers, with findings and remedies in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.files.archive import check_entries
from patrac_native.likelihoods import LIKELIHOODS_BY_LABEL, NoiseChange
from patrac_native.plots.table import html_list
from patrac_native.verdict.calibration import (
    COVERAGE,
    COVERAGE_BAD,
    HELD_OUT,
    HELD_OUT_AND_VALIDATION,
    LEAVE_ONE_OUT,
    VALIDATION,
    Calibration,
)
from patrac_native.verdict.evidence import Evidence, StepRecord
from patrac_native.verdict.rerun_error import FEW_REPLICATES, UNITS, RerunError

# The grades from best to worst; the grade of a part of the verdict is that of its worst finding.
GOOD, LOOK, DO_NOT_USE = GRADES = ("good", "look", "do not use")

# An R-hat of at most 1.01 with a bulk ESS of at least 400 is the usual requirement for reported quantiles (Vehtari,
# Gelman, Simpson, Carpenter and Bürkner 2021, Rank-normalization, folding, and localization: an improved R-hat). With
# an R-hat of 1.05 the variance of all draws exceeds that within chains by a tenth, too much for a credible band.
RHAT_GOOD, RHAT_USABLE, ESS_GOOD = 1.01, 1.05, 400
# Every kernel performs best at acceptance rates between 0.2 and 0.8. Below 0.05 a chain changes less than once in
# twenty steps; above 0.98 it follows a discretised diffusion, and its steps could be many times as large.
ACCEPTANCE_LOW, ACCEPTANCE_HIGH = 0.05, 0.98
# Fewest steps of a chain that tell such a rate from one by chance.
RATE_STEPS = 100
# More chains than these are counted, not named.
MAX_NAMED = 16
# With an acceptance rate of 0.2, which is below the target of every warm-up, 50 consecutive rejections have probability
# 0.8^50 = 1.4e-5. They must also be a considerable share of the run: a tenth distorts the tails, and after half a run
# the draws are no sample.
STILL_STEPS, STILL_LOOK, STILL_BAD = 50, 0.1, 0.5
# Ratio of the variance of f along a chain to the median over chains (a tenth of the standard deviation). By chance it
# is that small only in chains worth one or two independent draws.
SPREAD_BAD = 0.01
# A chain is in a worse mode if its mean log-likelihood is below the median chain's by more than this many standard
# deviations of the log-likelihood along a chain: chains that have not met differ by one or two.
WORSE_MODE = 5.0
# Share of a chain's proposals that are not finite.
NONFINITE_BAD = 0.01
# Training has stopped too early if the log-likelihood of the draws exceeds the network's by more than this share of the
# network's gain over a constant. A penalty that differs from the prior, or the nodes that Sep adds, explain less.
FIT_GAIN = 0.1
# Rerun errors, as shares of an interval's width. Where both ends of a 90% interval of a normal distribution move by a
# tenth of its width, independently, its probability changes by 5 points (standard deviation), by which `COVERAGE_LOOK`
# allows coverage to be wrong; by a fifth it changes by the 15 points of `COVERAGE_BAD`. For the probabilities of
# classes those points are the bounds themselves.
RERUN_GOOD, RERUN_USABLE = 0.1, 0.2
RERUN_GOOD_POINTS, RERUN_USABLE_POINTS = 0.05, 0.15
# The coverage of this many rows has a standard error of 0.03. Fewer are no evidence that predictions can be used.
CALIBRATION_ROWS = 100
# Kinds of findings on predictions as a whole, which the members of a mixture share.
WHOLE_KINDS = (
    "narrow intervals",
    "wide intervals",
    "poor predictions",
    "unscored predictions",
    "scattered predictions",
)
# Kinds of findings on predictions of y; all others are on the posterior of f.
PREDICTION_KINDS = (
    *WHOLE_KINDS,
    *("worse mode", "fitted noise", "poor fit", "poor draws", "poor network", "undertrained network"),
)
_TRAIN_AGAIN = "train again (more epochs, another learning_rate, smaller l2, standardised X and y)"
# Kinds of unseen rows in words.
_KINDS = {
    HELD_OUT: "held-out rows",
    VALIDATION: "validation rows of a shorter run, which also chose the model",
    HELD_OUT_AND_VALIDATION: "held-out rows and validation rows of a shorter run, which also chose the model",
    LEAVE_ONE_OUT: "rows that were left out one at a time",
}


@dataclass(frozen=True)
class Finding:
    """A problem of a run, or a sign of one.

    Attributes
    ----------
    kind : str
        Which check found it, for `Summary.with_advice`: "stuck chains", "large steps" or "small steps"; "not finite";
        "undertrained network", "poor network" (the draws fit well), "poor draws" (the network fits well) or "poor fit"
        (neither does); "fitted noise" (of fixed nodes); "scattered predictions" (a rerun would move them); "worse mode"
        (of some chains); "narrow intervals", "wide intervals" or "poor predictions" of unseen rows, or "unscored
        predictions" (no rows were unseen); "disagreement" (R-hat above 1.05), "unknown R-hat", "few draws" (R-hat above
        1.01 or few effective draws), "one chain" or "log-likelihood" (its R-hat alone); "short warm-up" or
        "adaptation".
    grade : str
        "look" or "do not use".
    what : str
        The problem, with the numbers that show it.
    remedy : str
        What to do about it, as parameters of `train`, `Posterior` and `sample`, or the advice of `Summary.with_advice`.
    longer : int or None
        How many times as long a run the remedy advises; None if it advises no longer run.
    """

    kind: str
    grade: str
    what: str
    remedy: str
    longer: int | None = None

    def __str__(self) -> str:
        return f"{self.grade}: {self.what} Remedy: {self.remedy}"


@dataclass(frozen=True)
class Judgement:
    """One part of a verdict; its string is a sentence, with a line for each finding.

    Attributes
    ----------
    subject : str
        What is judged, such as "predictions of y" or "posterior of f".
    findings : tuple of Finding
        The findings, worst first; empty for "good".
    facts : str
        The numbers on which the part rests, in words.
    """

    subject: str
    findings: tuple[Finding, ...]
    facts: str

    @classmethod
    def of(cls, subject: str, findings: Sequence[Finding], facts: str) -> Judgement:
        """Return the judgement of findings, of which those of one grade keep their order."""
        return cls(subject, tuple(_worst_first(findings)), facts)

    @property
    def grade(self) -> str:
        """The grade of the worst finding: "good" without findings, "look" or "do not use"."""
        return self.findings[0].grade if self.findings else GOOD

    def __str__(self) -> str:
        first = f"{self.subject}: {self.grade}. {self.facts[:1].upper()}{self.facts[1:]}."
        return "\n".join([first, *(f"- {finding}" for finding in self.findings)])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the grade as JSON-able values."""
        return {"grade": self.grade, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Judgement:
        """Rebuild from what `to_dict` returned."""
        known: dict[str, Any] = {"grade": str, "subject": str, "findings": list, "facts": str}
        check_entries(content, known, "a part of its verdict", optional=["grade"])
        known = {"kind": str, "grade": str, "what": str, "remedy": str, "longer": (int, NoneType)}
        for one in content["findings"]:
            check_entries(one, known, "a finding of its verdict", optional=["longer"])
            if one["grade"] not in GRADES:
                raise ValueError(f"a finding of its verdict has the grade {one['grade']!r:.60}")
        return cls(content["subject"], tuple(Finding(**one) for one in content["findings"]), content["facts"])


@dataclass(frozen=True)
class Verdict:
    """Whether the predictions of a run, and its draws as a posterior, can be used; its string is a few lines.

    Grades are "good": no check argues against use. "look": the findings should be examined before anything is reported.
    "do not use": predictions would mislead, or the draws do not represent the posterior.

    Attributes
    ----------
    predictions : Judgement or None
        Of predictions of y: how far a rerun would move them, and their scores and coverage on rows that the draws have
        not seen, if there are such. None for a density without targets.
    posterior : Judgement
        Of the draws as a sample of the posterior of f, for means, bands and quantiles of f: convergence and moves of
        the chains. Chains that have not met may predict well all the same, as an ensemble does.
    """

    predictions: Judgement | None
    posterior: Judgement

    @property
    def parts(self) -> tuple[Judgement, ...]:
        """The parts that there are, predictions first."""
        return (self.posterior,) if self.predictions is None else (self.predictions, self.posterior)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all parts, worst first."""
        return tuple(_worst_first([finding for part in self.parts for finding in part.findings]))

    @property
    def grade(self) -> str:
        """The worse of the grades of the parts."""
        return max((part.grade for part in self.parts), key=GRADES.index)

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the string in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return grades and findings for notebooks."""
        titles = [f"verdict: {str(part).splitlines()[0]}" for part in self.parts]
        return "".join(
            html_list(title, map(str, part.findings)) for title, part in zip(titles, self.parts, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the parts and grades as JSON-able values."""
        predictions = None if self.predictions is None else self.predictions.to_dict()
        return {"grade": self.grade, "predictions": predictions, "posterior": self.posterior.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Verdict:
        """Rebuild a verdict from what `to_dict` returned."""
        predictions = content["predictions"]
        return cls(
            None if predictions is None else Judgement.from_dict(predictions),
            Judgement.from_dict(content["posterior"]),
        )


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by their grades, those of one grade in the same order."""
    return sorted(findings, key=lambda finding: -GRADES.index(finding.grade))


def judge(e: Evidence, advice: Mapping[str, str] | None = None) -> Verdict:
    """Derive the verdict from a run's numbers; `advice` replaces the remedies of findings of the kinds that it names.

    Among findings of one grade, causes precede their symptoms.
    """
    causes, advice = list(_of_moves(e)), {} if advice is None else advice
    found = [
        *causes,
        *_of_nonfinite(e),
        *_of_fit(e),
        *_of_noise(e),
        *_of_calibration(e),
        *_of_modes(e),
        *_of_reruns(e.rerun),
        *_of_convergence(e, causes),
        *_of_warmup(e),
    ]
    found += _of_unscored(e, found)
    return verdict_of(
        e, [replace(one, remedy=advice.get(one.kind, one.remedy)) for one in found], _convergence_facts(e)
    )


def verdict_of(e: Evidence, findings: Sequence[Finding], convergence: str) -> Verdict:
    """Return the verdict of findings on predictions and posterior, with facts on the convergence in words."""
    bands = "" if e.rerun is None else f"; {e.rerun.describe_bands()}"
    is_function = e.architecture is not None and "probabilities" not in e.quantity
    posterior = Judgement.of(
        f"posterior of {'f' if is_function else e.quantity}",
        [one for one in findings if one.kind not in PREDICTION_KINDS],
        convergence + bands,
    )
    if e.architecture is None:
        return Verdict(None, Judgement.of(posterior.subject, findings, posterior.facts))
    of_predictions = [one for one in findings if one.kind in PREDICTION_KINDS]
    return Verdict(Judgement.of("predictions of y", of_predictions, _prediction_facts(e)), posterior)


def _convergence_facts(e: Evidence) -> str:
    """Return R-hat and ESS in words."""
    facts = f"smallest bulk ESS {_number(e.min_ess_bulk)} of {e.quantity}"
    # R-hat says nothing about draws that are independent by construction.
    if e.is_independent:
        return f"independent draws, {facts}"
    unknown = f" (steps and warm-up of {e.sampler} are not known here)" if e.steps is None else ""
    return f"largest R-hat {_number(e.max_rhat, 3)}, {facts}{unknown}"


def _prediction_facts(e: Evidence) -> str:
    """Return in words how far a rerun would move predictions, and how they score."""
    scores = "they were not scored on rows that the draws have not seen"
    if e.calibration is not None and not _are_seen(e):
        scores = _scores(e.calibration)
    if e.rerun is None:
        return scores
    return f"{e.rerun.describe_predictions()}, which is repeatability, not correctness; {scores}"


def _worse_chains(e: Evidence) -> npt.NDArray[np.bool_]:
    """Return which chains are in a worse mode than most."""
    lower = np.median(e.log_likelihood) - e.log_likelihood > WORSE_MODE * e.log_likelihood_sd
    return np.asarray(lower)


def _of_modes(e: Evidence) -> Iterator[Finding]:
    """Check for chains in a worse mode than most, which predictions count as much as the others."""
    worse = _worse_chains(e)
    if e.is_independent or not worse.any():
        return
    unit = "chain" if e.steps is None else e.steps.unit
    what = (
        f"{_chains(worse, 'is in a worse mode', 'are in a worse mode', unit)}: log-likelihood "
        f"{e.log_likelihood[worse].max():.4g} there, {np.median(e.log_likelihood):.4g} in the median chain, which is "
        f"more than {WORSE_MODE:.0f} within-chain standard deviations above; predictions weigh all chains alike."
    )
    yield Finding("worse mode", LOOK, what, f"{_better_start(e)}; leave such chains out only with a reason.")


def _of_reruns(error: RerunError | None) -> Iterator[Finding]:
    """Check how far a rerun would move predictions of y."""
    if error is None:
        return
    found = error.of_predictions
    if math.isnan(found.median):
        what = "how far a rerun would move predictions is not known: too few replicates, or draws, show it."
        yield Finding("scattered predictions", LOOK, what, "run several chains, or networks, of at least 20 draws.")
        return
    good, usable = (RERUN_GOOD_POINTS, RERUN_USABLE_POINTS) if error.is_class else (RERUN_GOOD, RERUN_USABLE)
    # Few replicates know the error itself poorly: it must be usable at the upper end of what they leave open.
    if found.median > good or found.upper > usable:
        what = f"{error.describe_predictions()}."
        if found.median <= good:
            what = f"{what[:-1]}, which so few leave open: up to {100 * found.upper:.0f}{error.sign}."
        grade = DO_NOT_USE if found.lower > usable else LOOK
        remedy = error.remedy(good) if found.median > good else "more networks, or starts, with chains of their own."
        yield Finding("scattered predictions", grade, what, remedy)


def _of_unscored(e: Evidence, found: Sequence[Finding]) -> Iterator[Finding]:
    """Check for predictions by chains that do not represent the posterior and that no unseen rows vouch for."""
    if e.architecture is None or _scores_of_unseen_rows(e) is not None:
        return
    if any(one.grade == DO_NOT_USE and one.kind not in PREDICTION_KINDS for one in found) and not any(
        one.kind == "unscored predictions" for one in found
    ):
        c = None if _are_seen(e) else e.calibration
        rows = "no unseen rows show" if c is None else f"{c.rows} unseen rows are too few to show"
        what = f"the chains do not represent the posterior, and {rows} that they predict well all the same."
        remedy = f"give y of {CALIBRATION_ROWS} held-out rows or more, draws.summary(X, y)."
        yield Finding("unscored predictions", LOOK, what, remedy)


def _convergence_grade(e: Evidence) -> str:
    """Return the grade that R-hat and ESS give on their own."""
    if not e.is_independent and not e.max_rhat <= RHAT_GOOD:
        return DO_NOT_USE if e.max_rhat > RHAT_USABLE else LOOK
    return GOOD if e.min_ess_bulk >= ESS_GOOD else LOOK


def _of_moves(e: Evidence) -> Iterator[Finding]:
    """Check for chains that do not move, and for step sizes that are far too large or far too small."""
    steps = e.steps
    # Without a step size every step changes the state, or draws are independent.
    if steps is None or steps.kernel.step_size_name is None:
        return
    length = steps.length
    still = (steps.longest_still >= STILL_LOOK * length) & (steps.longest_still >= STILL_STEPS)
    narrow = e.spread < SPREAD_BAD * np.median(e.spread)
    # Of a few steps the rate is one of chance.
    decided = length >= RATE_STEPS
    low, stuck = decided & (steps.acceptance_rate < ACCEPTANCE_LOW), still | narrow
    # If most chains reject nearly everything, the step size is the cause; if only some do, their positions are.
    too_large = low if low.mean() > 0.5 else low & ~stuck
    stuck &= ~too_large
    too_small = steps.acceptance_rate > ACCEPTANCE_HIGH
    too_small &= decided & (steps.step_size < steps.kernel.step_size_max)
    bad = (steps.longest_still >= STILL_BAD * length) & still | narrow
    if stuck.any():
        words = _stuck_words(e, steps, stuck, still)
        yield Finding("stuck chains", DO_NOT_USE if bad[stuck].any() else LOOK, *words)
    if too_large.any():
        grade = DO_NOT_USE if bad[too_large].any() else max(LOOK, _convergence_grade(e), key=GRADES.index)
        what = (
            f"{_chains(too_large, unit=steps.unit)} almost no proposal ({_rates(steps, too_large)}): the step size "
            "is far too large, and the draws repeat a few states."
        )
        yield Finding("large steps", grade, what, _step_remedy(e, steps, "a far smaller one"))
    # Accepting almost every proposal is no problem if the chain mixes, as it does with a flat likelihood.
    if too_small.any() and _convergence_grade(e) != GOOD:
        what = (
            f"{_chains(too_small, unit=steps.unit)} nearly every proposal ({_rates(steps, too_small)}): the step size "
            "is far too small, and the steps lead nowhere."
        )
        yield Finding("small steps", _convergence_grade(e), what, _step_remedy(e, steps, "a far larger one"))


def _stuck_words(
    e: Evidence, steps: StepRecord, stuck: npt.NDArray[np.bool_], still: npt.NDArray[np.bool_]
) -> tuple[str, str]:
    """Return problem and remedy for stuck chains."""
    who, others = _chains(stuck, "is stuck", "are stuck", steps.unit), ~stuck
    if (stuck & still).any():
        longest = steps.longest_still[stuck & still].max()
        share = longest / steps.length
        what = f"{who}: every proposal of {longest:,.0f} steps on end was rejected, {share:.0%} of the run"
    else:
        share = math.sqrt(e.spread[stuck].min() / np.median(e.spread))
        what = f"{who}: the standard deviation of {e.quantity} along it is {share:.1%} of the other chains'"
    if others.any():
        what += (
            f"; log-likelihood {e.log_likelihood[stuck].min():.4g} there, {np.median(e.log_likelihood[others]):.4g} in "
            "the other chains"
        )
    return f"{what}.", f"{_better_start(e)}; a smaller step size lets a chain leave a bad start."


def _step_remedy(e: Evidence, steps: StepRecord, other: str) -> str:
    """Return the remedy for a step size, which depends on whether the user or the warm-up chose it."""
    name, given = type(steps.kernel).__name__, steps.kernel.step_size
    if given is not None:
        return f"leave the step size to the warm-up, {name}(), or give {other} than {name}({given:g})."
    standardise = "scale theta" if e.architecture is None else "standardise X and y"
    return f"adapt the step size for longer, {_longer_warmup(steps)}; if that does not help, {standardise}."


def _of_nonfinite(e: Evidence) -> Iterator[Finding]:
    """Check for proposals whose log-likelihood or gradient is not finite."""
    share = 0.0 if e.steps is None else float(e.steps.nonfinite.max())
    if share == 0:
        return
    what = (
        f"up to {100 * share:.2g}% of a chain's proposals had a log-likelihood or gradient that is not finite and were "
        "rejected for that."
    )
    remedy = (
        "find where the function is not finite, or give a prior that keeps theta away from there."
        if e.architecture is None
        else 'scale X and y to unit variance, or compute in double precision, dtype="float64".'
    )
    yield Finding("not finite", DO_NOT_USE if share > NONFINITE_BAD else LOOK, what, remedy)


def _of_convergence(e: Evidence, causes: Sequence[Finding]) -> Iterator[Finding]:
    """Check R-hat and effective sample size of the summarised quantity and of the log-likelihood."""
    exact = e.is_independent
    first = "see the finding on step size or stuck chains; " if causes else ""
    longer = min(100, max(2, math.ceil(ESS_GOOD / max(e.min_ess_bulk, 1.0)))) if e.min_ess_bulk > 0 else 100
    run_longer = _longer_run(e, longer)
    kernel = ', or kernel="auto", whose steps go further' if e.steps is not None and e.steps.kernel.is_slow else ""
    ess = f"the smallest bulk ESS of {e.quantity} is {_number(e.min_ess_bulk)}"
    if not exact and e.max_rhat > RHAT_USABLE:
        parts = "the chains disagree" if e.n_chains > 1 else "the parts of the chain disagree"
        what = f"{parts}: the largest R-hat of {e.quantity} is {_number(e.max_rhat, 3)}, {ess}."
        remedy = f"{first}{_longer_run(e, longer, warmup=True)}{kernel}."
        grade = DO_NOT_USE
        further: int | None = longer
        smaller = "a smaller Bayesian part, whose chains meet."
        # Nested R-hat tells starts that lead to regions of their own from chains that are still on their way.
        if e.rhat_nested > RHAT_USABLE >= e.rhat_within:
            what += (
                f" Halves of the chains of one start agree (R-hat up to {_number(e.rhat_within, 3)}), but starts do "
                f"not (nested R-hat {_number(e.rhat_nested, 3)}): longer chains would hardly meet."
            )
            if not causes:
                more = "more chains, each from a start of its own, until a rerun repeats the bands"
                remedy, further = f"{more}; or {smaller}", None
        elif e.rhat_within > RHAT_USABLE and e.n_chains > 1:
            within = _number(e.rhat_within, 3)
            what += f" Halves of the chains of one start differ (R-hat up to {within}): the chains are too short."
            smaller = f"longer chains, or {smaller}"
        if _bands_repeat(e):
            assert e.rerun is not None
            grade, further = LOOK, None
            what += (
                f" They have not met, and bands are those of an ensemble of {e.rerun.replicates} members: no "
                "posterior, though a rerun would give much the same bands."
            )
            remedy = f"nothing, if predictions are all that is wanted; else {smaller}"
        elif e.rerun is not None and e.rerun.is_rough and e.rerun.replicates > 1 and not e.rerun.is_blind:
            few = UNITS[e.rerun.unit][0].format(e.rerun.replicates)
            what += (
                f" {few} are too few to know whether a rerun would give the same bands; {FEW_REPLICATES} are enough."
            )
        yield Finding("disagreement", grade, what, remedy, further)
    elif math.isnan(e.min_ess_bulk) or (math.isnan(e.max_rhat) and not exact):
        # The causes include chains that never moved.
        if all(cause.grade != DO_NOT_USE for cause in causes):
            what = f"R-hat cannot be judged: too few draws, or {e.quantity} never changes{_here(e)}."
            draws = max(1000, 2 * e.n_draws)
            elsewhere = ", or look at other inputs" if e.architecture else ""
            more = f"{draws} of each chain" if e.steps is None else f"draws={draws}"
            yield Finding("unknown R-hat", LOOK, what, f"take more draws, {more}{elsewhere}.")
    elif _convergence_grade(e) == LOOK:
        rhat = f"the largest R-hat of {e.quantity} is {_number(e.max_rhat, 3)} (up to {RHAT_GOOD} is good), "
        what = (
            f"{'' if exact else rhat}{ess} ({ESS_GOOD} or more is good): means and bands serve, quantiles are rough; "
            f"Monte Carlo errors of the means are up to {e.max_mcse:.2g}."
        )
        yield Finding("few draws", LOOK, what, f"{first}{run_longer}{kernel}.", longer)
    if e.n_chains == 1 and not exact:
        what = "there is one chain: R-hat compares its parts, and cannot show whether other starts lead elsewhere."
        yield Finding("one chain", LOOK, what, "run several." if e.steps is None else "run several, chains=4.")
    if not exact and e.rhat_log_likelihood > RHAT_USABLE >= e.max_rhat:
        what = (
            f"R-hat of the log-likelihood is {_number(e.rhat_log_likelihood, 3)}, though {e.quantity} agrees{_here(e)}."
        )
        inputs = "summarise at inputs like the training data; " if e.architecture else ""
        yield Finding("log-likelihood", LOOK, what, f"{inputs}{run_longer}.", longer)


def _here(e: Evidence) -> str:
    """Return where a quantity was summarised, if that is a choice of inputs."""
    return " at these inputs" if e.architecture else ""


def _bands_repeat(e: Evidence) -> bool:
    """Return whether bands of chains that have not met are repeatable, by enough replicates with own starts."""
    # Their draws are a mixture, as an ensemble is: not the posterior, but another run gives the same bands.
    error = e.rerun
    if error is None or error.is_blind or error.is_rough or _worse_chains(e).any():
        return False
    good, usable = (RERUN_GOOD_POINTS, RERUN_USABLE_POINTS) if error.is_class else (RERUN_GOOD, RERUN_USABLE)
    return error.of_bands.median <= good and error.of_bands.percentile_90 <= usable


def _scores_of_unseen_rows(e: Evidence) -> Calibration | None:
    """Return the scores if they are of enough rows, of which neither draws nor fixed parameters know anything."""
    c = e.calibration
    return None if c is None or c.rows < CALIBRATION_ROWS or _are_seen(e) else c


def _are_seen(e: Evidence) -> bool:
    """Return whether scores of left-out rows are too good: a fit says so, or fixed parameters were trained on them."""
    # Leaving a row out changes none of these, however little noise they seem to have fitted.
    c = e.calibration
    return c is not None and c.kind == LEAVE_ONE_OUT and (bool(c.too_good) or e.fixes_parameters)


def _of_calibration(e: Evidence) -> Iterator[Finding]:
    """Check the log density and the coverage of predictions on rows that the draws have not seen."""
    c = e.calibration
    if c is None:
        return
    if _are_seen(e):
        fixed = (
            f"the fixed parameters of the network were trained on the {c.rows:,} rows that were left out of the "
            "posterior one at a time"
        )
        what = f"predictions were not scored on unseen rows: {c.too_good or fixed}."
        yield Finding("unscored predictions", LOOK, what, "score rows kept out of training and posterior.")
        return
    if c.misses_coverage_by():
        narrow = c.coverage < COVERAGE
        what = (
            f"90% intervals of y cover {c.coverage:.1%} of {c.rows:,} {_KINDS[c.kind]}: predictions are "
            f"{'overconfident' if narrow else 'too wide'}."
        )
        remedy = _wider_intervals(e) if narrow else _narrower_intervals(e)
        grade = DO_NOT_USE if c.is_overconfident(COVERAGE_BAD) else LOOK
        yield Finding("narrow intervals" if narrow else "wide intervals", grade, what, remedy)
    if c.is_worse_than_network:
        what = f"the posterior predicts worse than its trained network alone ({_scores(c)})."
        remedy = (
            "run longer; if the chains have converged, prior or noise do not suit: sample the noise variance and the "
            "scales of the prior, or choose another architecture."
        )
        yield Finding("poor predictions", LOOK, what, remedy)


def _scores(c: Calibration) -> str:
    """Return the scores of unseen rows in words."""
    network = f", of the trained network {c.nlpd_network:.3f}" if math.isfinite(c.nlpd_network) else ""
    coverage = f"; 90% intervals cover {c.coverage:.1%}" if math.isfinite(c.coverage) else ""
    unreliable = f"; {c.unreliable:,} of these predictions are unreliable" if c.unreliable else ""
    return f"NLPD of {c.rows:,} {_KINDS[c.kind]} {c.nlpd:.3f}{network}{coverage}{unreliable}"


def _of_noise(e: Evidence) -> Iterator[Finding]:
    """Check for frozen nodes that have fitted noise."""
    # Coverage of enough rows that training did not see decides where there is one: a mixture of several networks, or
    # the spread of f, can make up for the noise.
    c = _scores_of_unseen_rows(e)
    if e.noise is not None and (c is None or c.is_overconfident()):
        what = f"{e.noise}: the frozen nodes have fitted noise, and intervals of y are likely too narrow."
        yield Finding("fitted noise", LOOK, what, _wider_intervals(e))


def _of_warmup(e: Evidence) -> Iterator[Finding]:
    """Check for a warm-up that did not reach stable chains, and for adaptation while sampling."""
    if e.steps is None:
        return
    if e.steps.warmup_stable is False:
        what = (
            "step size and log-likelihood were not yet stable when the warm-up ended, after "
            f"{e.steps.warmup_steps:,} steps."
        )
        yield Finding("short warm-up", LOOK, what, f"warm up longer, {_longer_warmup(e.steps)}.")
    if e.steps.kernel.adapt_always:
        what = "the step size adapted while sampling, so the chain does not leave the posterior exactly invariant."
        yield Finding("adaptation", LOOK, what, 'for inference, adapt="warmup".')


def _of_fit(e: Evidence) -> Iterator[Finding]:
    """Check the fit of the trained network and of the draws against a constant, and against each other."""
    # If y contains no signal, the log-likelihood of draws lies near that of a constant, on either side by chance: the
    # sum of squared residuals has a chi-square distribution with as many degrees of freedom as there are values, so
    # half of it has the standard deviation sqrt(values / 2). A fit counts as worse than a constant only if it is worse
    # by two of these. Where the posterior takes nothing from the trained network, how that fits matters only if the
    # draws fit no better than a constant.
    if e.fit is None or e.architecture is None:
        return
    fit, draws = e.fit, float(np.median(e.log_likelihood))
    slack = math.sqrt(2 * fit.values)
    network_fits, draws_fit = fit.network > fit.constant, draws > fit.constant
    network_far, draws_far = not fit.network >= fit.constant - slack, not draws >= fit.constant - slack
    of_network, of_draws, of_constant = (value / fit.rows for value in (fit.network, draws, fit.constant))
    numbers = f"(log-likelihood a row: network {of_network:.4g}, draws {of_draws:.4g}, constant {of_constant:.4g})"
    train = f"{_TRAIN_AGAIN}: {e.role_of_network or 'chains start there'}."
    if draws_fit and not e.role_of_network:
        return
    if network_fits and draws_fit:
        # The mode fits at least as well as draws around it; with a penalty other than the prior, about as well.
        if draws - fit.network > max(slack, FIT_GAIN * (fit.network - fit.constant)):
            what = (
                "the trained network fits the training data far worse than the draws do: it is undertrained, or held "
                f"down by a large l2 {numbers}."
            )
            yield Finding("undertrained network", LOOK, what, train)
    elif draws_fit:
        what = f"the trained network fits the training data no better than a constant, though the draws do {numbers}."
        # Sep's separate network compensates for a wrong trained network only at the data; elsewhere f follows the
        # trained network.
        grade = DO_NOT_USE if network_far and e.architecture.is_separate else LOOK
        yield Finding("poor network", grade, what, train)
    elif network_fits:
        what = f"the draws fit the training data no better than a constant, though the trained network does {numbers}."
        remedy = (
            f"{_better_start(e)}; if the draws stay there, prior or noise variance do not suit: "
            "TraceClassPrior.fit(net), post.prior_predict(X, 200)."
        )
        yield Finding("poor draws", DO_NOT_USE if draws_far else LOOK, what, remedy)
    else:
        what = f"neither the trained network nor the draws fit the training data better than a constant {numbers}."
        if network_far or draws_far:
            yield Finding("poor fit", DO_NOT_USE, what, train)
        else:
            remedy = f"{train} If that changes nothing, the inputs may say nothing about y."
            yield Finding("poor fit", LOOK, what, remedy)


def _wider_intervals(e: Evidence) -> str:
    """Return what makes intervals of new targets wider where they cover too little."""
    noise = "" if e.likelihood is None else _noise(e.likelihood.wider())
    if e.architecture is not None and not e.architecture.fixes_nodes:
        other = "predict by several networks where there is one, DrawsMixture(sample_many(...))"
    else:
        other = (
            "train with validation rows, so that the network does not fit the noise; take a larger architecture, such "
            "as Full(), which does not rest on fixed nodes"
        )
    return f"{noise}; {other}." if noise else f"{other}."


def _narrower_intervals(e: Evidence) -> str:
    """Return what makes intervals of new targets narrower where they cover too much."""
    advice = "" if e.likelihood is None else _noise(e.likelihood.narrower())
    return f"{advice or 'sample the scales of the prior'}."


def _noise(changes: Sequence[NoiseChange]) -> str:
    """Return changes of the noise in words, with the calls that make other likelihoods."""
    calls = [None if one.likelihood is None else LIKELIHOODS_BY_LABEL[one.likelihood].example for one in changes]
    return ", or ".join(
        one.advice if call is None else f"{one.advice}, {call}" for one, call in zip(changes, calls, strict=True)
    )


def _better_start(e: Evidence) -> str:
    """Return what to do about chains that started far from the posterior or stayed there."""
    start = ""
    if e.architecture is None:
        start = "give starting points where the density is high, init=..., and "
    elif e.steps is None and not e.architecture.is_separate:
        start = "start every chain at post.theta_map and "
    elif e.steps is not None and not e.steps.superchains and e.steps.init != "map" and not e.architecture.is_separate:
        start = 'start every chain at init="map" and '
    return f"{start}warm up longer{_warmup_argument(e)}"


def _longer_run(e: Evidence, factor: int, *, warmup: bool = False) -> str:
    """Return the advice to run `factor` times as long, with a longer warm-up if so asked."""
    if e.steps is None:
        run = f"run {e.sampler} longer, {factor * e.n_draws} draws of each chain or as many steps between them"
    elif e.is_independent:
        run = f"run longer, draws={factor * e.n_draws}"
    elif e.steps.superchains:
        run = f"take {factor} times as many chains, or draws={factor * e.steps.draws_of_chain}"
    else:
        run = f"run longer, thin={factor * e.steps.thin}"
    return f"{run}, after a longer warm-up{_warmup_argument(e)}" if warmup else run


def _longer_warmup(steps: StepRecord) -> str:
    """Return a warm-up of twice the number of steps, at least 20,000."""
    if steps.superchains:
        at_most = max(64_000, 2 * steps.warmup_steps)
        return f"warmup=Warmup.many_chains(kernel, {steps.superchains}, at_most={at_most})"
    return f"warmup={max(20_000, 2 * steps.warmup_steps)}"


def _warmup_argument(e: Evidence) -> str:
    """Return the argument of a longer warm-up after a comma, if it is one of this package."""
    return "" if e.steps is None else f", {_longer_warmup(e.steps)}"


def _chains(chosen: npt.NDArray[np.bool_], one: str = "accepts", several: str = "accept", unit: str = "chain") -> str:
    """Return subject and verb of a sentence about the chosen chains, which are counted from 1."""
    numbers = [str(chain + 1) for chain in np.flatnonzero(chosen)]
    if len(chosen) == 1:
        return f"the {unit} {one}"
    if len(numbers) == len(chosen):
        return f"all {len(chosen)} {unit}s {several}"
    if len(numbers) == 1:
        return f"{unit} {numbers[0]} of {len(chosen)} {one}"
    if len(numbers) > MAX_NAMED:
        return f"{len(numbers)} of {len(chosen)} {unit}s {several}"
    return f"{unit}s {', '.join(numbers[:-1])} and {numbers[-1]} of {len(chosen)} {several}"


def _rates(steps: StepRecord, chosen: npt.NDArray[np.bool_]) -> str:
    """Return acceptance rates and step sizes of the chosen chains, in words."""
    rates = _range([f"{rate:.1%}" for rate in np.sort(steps.acceptance_rate[chosen])])
    sizes = _range([f"{size:.3g}" for size in np.sort(steps.step_size[chosen])])
    return f"acceptance rate {rates}, step size {sizes}"


def _range(words: Sequence[str]) -> str:
    """Return the first and the last of sorted numbers, or one number if they are equal."""
    return words[0] if words[0] == words[-1] else f"{words[0]} to {words[-1]}"


def _number(value: float, digits: int = 0) -> str:
    """Return a number as text, "undefined" for NaN and "infinite" for infinity."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.{digits}f}" if math.isfinite(value) else "infinite"
