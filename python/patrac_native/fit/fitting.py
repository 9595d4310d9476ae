"""Fits rows: trains networks, chooses and samples their posterior, scores it, and says so in words."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.files import check_entries, check_written_again
from patrac_native.fit.candidates import GRID_ROWS, RHAT_USABLE, Candidate, have_converged
from patrac_native.fit.choice import Trial, choose_posterior
from patrac_native.fit.evaluation import (
    HELD_OUT,
    LEAVE_ONE_OUT,
    AnyDraws,
    Evaluation,
    evaluate,
    members_of,
    of_fits,
)
from patrac_native.fit.noise import estimate_dispersion
from patrac_native.fit.precision import Reached, Replicated, error_at
from patrac_native.fit.rows import FitData, FloatArray, TargetScaling
from patrac_native.fit.settings import Likelihood, Prior, Settings
from patrac_native.report import Verdict

# R-hat and bulk ESS of f at which a run may end (docs/method.md, 8).
_RHAT_GOOD, _ESS_GOOD = 1.01, 400
# The coverage of this many rows has a standard error of 0.03: fewer are no evidence for a verdict.
_VERDICT_ROWS = 100
# Maximum number of rows for which leave-one-out predictions are made.
_LOO_ROWS = 1_000
# A run is advised to be longer by at most this factor, or up to this many minutes.
_MAX_TIMES, _MAX_MINUTES = 10, 10.0
# The upper bound of the search for the decay of a trace-class prior.
_ALPHA_MAX = 8.0


@dataclass(frozen=True)
class FitResult:
    """What a fit made, beside the estimator's own attributes; files and pickles do not hold it."""

    settings: Settings
    data: FitData
    posteriors: Sequence[pn.Posterior]  # that of each network
    draws: pn.Draws | pn.DrawsMixture
    trials: Sequence[Trial]  # the pilot runs by which it was chosen
    evaluation: Evaluation  # of held-out rows, of the pilot's validation rows, or leave-one-out
    summary: Any  # of the draws at the inputs `grid`, with the verdict
    grid: FloatArray
    seconds: dict[str, float]  # wall-clock time of each stage
    reached: Reached | None = None  # if a precision was asked for

    @property
    def interruption(self) -> str:
        """What Ctrl-C left of the run, in words; empty if the run was completed."""
        members, networks = members_of(self.draws), len(self.posteriors)
        if self.reached is not None and self.reached.interrupted:
            return f"while replicates were added for precision={self.reached.precision:g}"
        if all(member.settings["completed"] for member in members) and len(members) == networks:
            return ""
        asked = members[0].settings["draws_asked"]
        of_networks = f" of {len(members)} of {networks} networks" if networks > 1 else ""
        return f"after {self.draws.n_draws} of {asked} draws of each chain{of_networks}"

    def leave_one_out(self) -> Evaluation:
        """Return all scores by leave-one-out predictions of at most 1,000 training rows."""
        nets = [post.network.net for post in self.posteriors]
        return evaluate(
            self.draws, self.data.units, self.data.training.spread(_LOO_ROWS), kind=LEAVE_ONE_OUT, nets=nets
        )


def fit_rows(
    data: FitData,
    likelihoods: Sequence[Likelihood],
    settings: Settings,
    *,
    by_networks: Likelihood | None = None,
    say: Callable[[str], None] = print,
) -> FitResult:
    """Train networks on rows, choose a posterior among those of the likelihoods, sample it, and score it.

    The likelihoods are of the targets in their units; `by_networks` is the one whose networks predict best, if that is
    known. Raises ValueError if there are too few rows to estimate the noise, or too few draws for the scores;
    RunInterrupted if Ctrl-C ended the run before there were enough draws for them, and KeyboardInterrupt if it ended
    the training or a run of the choice.
    """
    clock, spent = time.perf_counter(), 0.0
    if settings.estimates_dispersion:
        say("estimating the dispersion ...")
        dispersion, spent, text = estimate_dispersion(data, settings)
        say(f"  {text}")
        likelihoods = settings.likelihoods(dispersion=dispersion)
    scale = np.atleast_1d(data.units.target_scale)
    scaled = [one.for_scaled_targets(scale) for one in likelihoods]
    estimated = time.perf_counter() - clock
    chosen = choose_posterior(
        scaled,
        data,
        settings,
        spent=spent,
        by_networks=None if by_networks is None else scaled[list(likelihoods).index(by_networks)],
        say=say,
    )
    candidate, nets, seconds = chosen.candidate, chosen.nets, dict(chosen.seconds)
    seconds["training"] += estimated
    say(f"  {candidate}: {chosen.reason}")

    posts = candidate.posteriors(nets, data.training, settings)
    say(f"  prior: {describe_prior(posts[0].network.prior, settings)}")
    kind = LEAVE_ONE_OUT if data.held_out is None else HELD_OUT
    scored = data.training.spread(_LOO_ROWS) if data.held_out is None else data.held_out
    grid = scored.spread(GRID_ROWS).X
    draws = _sample(candidate, posts, nets, chosen.minutes, settings, grid, kind, say)
    say(f"  {describe_noise(draws, data.units)}".rstrip())
    seconds["sampling"] = members_of(draws)[0].settings["seconds"]
    reached = None
    if settings.precision is not None:
        clock = time.perf_counter()
        found = Replicated(draws, candidate, list(posts), list(nets), data.training, settings)
        reached = found.reach(chosen.minutes, grid, say=say)
        draws, candidate, posts, nets = found.draws, found.candidate, found.posteriors, found.nets
        seconds["replicates"] = time.perf_counter() - clock

    clock = time.perf_counter()
    started = nets[: candidate.trained]
    validated = _enough_for_verdict(chosen.pilot) if kind == LEAVE_ONE_OUT else None
    if validated is not None:
        evaluation = validated.evaluation
    else:
        evaluation = evaluate(draws, data.units, scored, kind=kind, nets=started, details=kind == HELD_OUT)
    if "too_good" in evaluation.scores and chosen.pilot is not None:
        evaluation = chosen.pilot.evaluation  # of few rows, but of unseen ones
    judged = evaluation.calibration
    if kind == HELD_OUT and judged.rows < _VERDICT_ROWS and chosen.pilot is not None:
        judged = judged.with_validation(chosen.pilot.evaluation.calibration)
    tried = [trial.candidate.likelihood for trial in chosen.trials]
    warmup_steps = members_of(draws)[0].settings["warmup_steps"]
    judged_summary = draws.summary(grid, progress=settings.progress).with_calibration(judged)
    assert judged_summary.rerun_error is not None  # these are predictions of targets
    judged_summary = judged_summary.with_rerun_error(of_fits(judged_summary.rerun_error))
    summary = with_advice(judged_summary, settings, candidate, tried, warmup_steps)
    seconds["evaluation"] = time.perf_counter() - clock
    return FitResult(settings, data, posts, draws, chosen.trials, evaluation, summary, grid, seconds, reached)


def _sample(
    candidate: Candidate,
    posts: Sequence[pn.Posterior],
    nets: Sequence[pn.Network],
    minutes: float,
    settings: Settings,
    grid: FloatArray,
    kind: str,
    say: Callable[[str], None],
) -> pn.Draws | pn.DrawsMixture:
    """Sample the posteriors, and say how; where a budget gives the steps, a run ends once f at `grid` has converged."""
    schedule = candidate.schedule(posts[0], settings, minutes)
    warmup = candidate.warmup(posts[0], schedule, settings)
    lengthened = settings.pieces.total
    if lengthened is not None:
        candidate = replace(candidate, draws=lengthened)
    at_most = "at most " if any(phase.first_look for phase in warmup.phases) else ""
    of_networks = f" of each of {len(posts)} networks" if len(posts) > 1 else ""
    say(
        f"sampling {candidate.architecture.label()}, {posts[0].dim} parameters: {candidate.chains} chains{of_networks} "
        f"x {candidate.draws} draws, thin {schedule.thin}, warm-up {at_most}{warmup.steps:,} steps ..."
    )
    # The inputs are on the host, so "auto" is the CPU.
    may_end = lengthened is None and settings.thin is None and settings.device in ("auto", "cpu")
    draws = candidate.sample(
        posts,
        nets,
        schedule,
        settings,
        until=functools.partial(_is_enough, grid, settings.precision, posts[0].plan(settings.kernel).is_independent)
        if may_end
        else None,
        least_draws=candidate.least_draws(leaves_one_out=kind == LEAVE_ONE_OUT),
        say=say,
    )
    if draws.n_draws < candidate.draws and all(member.settings["completed"] for member in members_of(draws)):
        say(
            f"  the chains have converged: the run ended after {draws.n_draws} of {candidate.draws} draws of each chain"
        )
    return draws


def _is_enough(grid: FloatArray, precision: float | None, is_independent: bool, draws: pn.Draws) -> bool:
    """Return whether R-hat and bulk ESS of f at `grid` are good, and so is the rerun error if there is a precision."""
    is_good = have_converged(grid, draws, rhat=_RHAT_GOOD, ess=_ESS_GOOD, is_independent=is_independent)
    return is_good and (precision is None or error_at(draws, grid).of_predictions.median <= precision)


def _enough_for_verdict(pilot: Trial | None) -> Trial | None:
    """Return the pilot run of the chosen posterior if it was scored on enough validation rows for a verdict.

    Those rows are better evidence than leave-one-out predictions, which importance sampling makes unreliable where a
    posterior follows single rows, and which do not undo that networks were trained on a row.
    """
    return pilot if pilot is not None and pilot.evaluation.calibration.rows >= _VERDICT_ROWS else None


def squared_scales(draws: AnyDraws) -> FloatArray | None:
    """Return the squared scale of the noise of each standardised target, its posterior mean if it is sampled.

    One number stands for all targets that share it. None if the likelihood has no such scale.
    """
    likelihood, members = draws.likelihood, members_of(draws)
    if likelihood.scale_name is None:
        return None
    if likelihood.is_sampled:
        means = [np.atleast_1d(member.stats["variance"].mean(axis=(0, 1))) for member in members]
        return np.asarray(np.mean(means, axis=0))
    return np.asarray(likelihood.variance_vector(members[0].network.n_outputs))


def describe_noise(draws: AnyDraws, units: TargetScaling) -> str:
    """Return a sentence on the noise; an empty text for classes."""
    how = "the mean of its draws" if draws.likelihood.is_sampled else "as asked"
    text = str(draws.likelihood.describe_noise(squared_scales(draws), units.target_scale, how))
    return f"the target here is log y: {text}" if units.log and text else text


def describe_prior(prior: Prior, settings: Settings) -> str:
    """Return the prior in words, with a note if its fitted decay is at the upper bound of its search.

    At the lower bound, where the weights do not fall off with the rank of their nodes, a slower decay would hardly
    change a variance; there is no note.
    """
    text, alpha = str(prior.describe()), getattr(prior, "alpha", None)
    if settings.prior_alpha is not None or alpha != _ALPHA_MAX:
        return text
    return (
        f"{text}\n  note: alpha is at the upper bound of its search: parameters of the second node have "
        f"{2.0**-alpha:.1%} of the prior variance of the first, and the others less; prior_alpha=2 gives them "
        f"{2.0**-2:.0%}"
    )


def with_advice(
    summary: Any, settings: Settings, candidate: Candidate, tried: Sequence[Likelihood], warmup_steps: int
) -> Any:
    """Return a summary whose verdict advises parameters of an estimator, and no likelihood that was tried."""
    likelihood = candidate.likelihood
    classes = likelihood.targets == "class"
    unsuited = f"the model does not suit: choose another prior{' or' if classes else ','} architecture" + (
        "." if classes else " or likelihood."
    )
    wider = _noise(likelihood.wider(), likelihood, tried)[:1]
    if candidate.architecture.fixes_nodes:
        wider.append("take a larger architecture, architecture='full', without fixed nodes")
    elif candidate.networks == 1:
        # With noise of each row, chains of one network start at up to eight.
        wider.append(f"predict by several networks, networks={8 if likelihood.noise_by_row else 4}")
    wider_noise = "; or ".join(wider) + "." if wider else "take more rows."
    train = "train longer, max_iter, or with a smaller penalty, l2."
    if settings.l2 is None:
        train = (
            "the penalty is the one that suits validation rows: nothing, if unseen rows are predicted no worse by the "
            "network; else train longer, max_iter, or a wider network, hidden_layer_sizes."
        )
    warm_up = f"warm up longer, warmup={max(20_000, 2 * warmup_steps)}"
    advice = {
        "not finite": "scale X and y to unit variance, or compute with dtype='float64'.",
        "stuck chains": f"{warm_up}; a smaller step size lets a chain leave a bad start.",
        "undertrained network": train,
        "poor network": train,
        "poor fit": train,
        "poor draws": f"{warm_up}; if the draws stay there, {unsuited}",
        "narrow intervals": wider_noise,
        "fitted noise": wider_noise,
        "wide intervals": ", or ".join(_noise(likelihood.narrower(), likelihood, tried)) + ".",
        "unscored predictions": "keep rows out of the fit, held_out=(X, y); on the command line, test_fraction.",
        "scattered predictions": "more replicates: "
        + (
            f"more chains, each from a network of its own, chains={2 * candidate.chains}."
            if candidate.starts_at_networks
            else f"more networks, networks={2 * candidate.networks}."
        ),
        "poor predictions": f"run longer; if the chains have converged, {unsuited}",
    }
    # A budget pays for the warm-up too.
    if settings.thin is None and warmup_steps > 0:
        longer = sorted((one.longer, one.kind) for one in summary.verdict().findings if one.longer is not None)
        smaller = "fewer of them, k" if candidate.architecture.fixes_nodes else "architecture='mix'"
        for times, kind in longer:
            minutes = f"minutes={float(f'{times * settings.minutes:.2g}'):g}"
            advice[kind] = f"run longer, {minutes}."
            if times > _MAX_TIMES and times * settings.minutes > _MAX_MINUTES:
                advice[kind] = (
                    "nothing, if unseen rows are predicted well and only predictions are wanted; else fewer Bayesian "
                    f"parameters, {smaller}, or fewer inputs: a longer run alone would take some {minutes}."
                )
    return summary.with_advice(advice)


def _noise(changes: Sequence[Any], likelihood: Likelihood, tried: Sequence[Likelihood]) -> list[str]:
    """Return changes of the noise in words, without likelihoods that were tried."""
    gone = {one.label for one in tried} - {likelihood.label}
    return [
        f"{change.advice}, likelihood='{change.likelihood}'" if change.likelihood else change.advice
        for change in changes
        if change.likelihood not in gone
    ]


@dataclass(frozen=True)
class FitReport:
    """What a fit did, in words and numbers; its string is what a fit prints.

    Attributes
    ----------
    lines : tuple of str
        Scaling, training, choice of the posterior, prior, chains and noise, in words.
    verdict : Verdict
        On predictions of y and on the posterior of f, each "good", "look" or "do not use"; its findings name parameters
        of the estimator as remedies.
    converged : bool
        Whether R-hat of the function (of the class probabilities) is at most 1.05 within the chains of each network.
    summary : str
        The summary of the chains.
    scores : dict
        Of held-out rows, all scores of `PatracRegressor.evaluate`; otherwise nlpd (of standardised targets), and
        coverage of 90% intervals or accuracy. "kind" says of which rows: "held out", "validation", rows that the pilot
        run of the chosen posterior left out, or "leave one out", training rows; "too_good" then says why, if they are.
    seconds : dict of str to float
        Wall-clock time of training, choice, sampling and evaluation, and with a precision of the replicates that were
        added, the training of their networks included.
    precision : dict or None
        Of a fit to a precision: precision, the error that was reached, is_reached, the number of replicates, how many
        would be needed, interrupted, and text, a sentence.
    """

    lines: tuple[str, ...]
    verdict: Verdict
    converged: bool
    summary: str
    scores: dict[str, Any]
    seconds: dict[str, float]
    precision: dict[str, Any] | None = None

    @classmethod
    def of(cls, fit: FitResult, lines: Sequence[str]) -> FitReport:
        """Collect the report on a fit."""
        summary = fit.summary
        members = summary.members if hasattr(summary, "members") else (summary,)
        evidence = [member.evidence for member in members]
        converged = all(one.is_independent or one.max_rhat <= RHAT_USABLE for one in evidence)
        reached = None if fit.reached is None else fit.reached.to_dict()
        verdict, scores = summary.verdict(), fit.evaluation.scores
        return cls(tuple(lines), verdict, converged, str(summary), scores, fit.seconds, reached)

    @property
    def needs_warning(self) -> bool:
        """Whether predictions should not be used, or f should not while predictions need a look."""
        of_predictions = self.verdict.predictions
        assert of_predictions is not None
        return of_predictions.grade != "good" and self.verdict.grade == "do not use"

    def __str__(self) -> str:
        return "\n".join([*self.lines, self.results()])

    def results(self) -> str:
        """Return scores, summary of the chains and times in words."""
        known = {name: value for name, value in self.scores.items() if value is not None}
        first = f"scores that are {known.pop('too_good')}\n" if "too_good" in known else ""
        scores = ", ".join(f"{name} {_shown(value)}" for name, value in known.items())
        times = ", ".join(f"{stage} {value:.1f} s" for stage, value in self.seconds.items())
        last = "" if self.precision is None else f"\n{self.precision['text']}"
        return f"{first}scores: {scores}\n{self.summary}\ntime: {times}{last}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitReport:
        """Rebuild from what `to_dict` returned."""
        known: dict[str, Any] = {"lines": list, "verdict": dict, "converged": bool, "summary": str}
        known |= {"scores": dict, "seconds": dict, "precision": (dict, NoneType)}
        check_entries(content, known, "its report")
        check_entries(content["verdict"], {"predictions": dict, "posterior": dict}, "its verdict")
        rebuilt = {"lines": tuple(content["lines"]), "verdict": Verdict.from_dict(content["verdict"])}
        made = cls(**{**content, **rebuilt})
        str(made)  # fails where an entry is none that a report shows
        check_written_again(content, json.loads(json.dumps(made.to_dict())))
        return made


def _shown(value: Any) -> str:
    """Return a score in words."""
    if isinstance(value, Mapping) and all(name.startswith("0.") for name in value):
        return ", ".join(f"of {float(name):.0%} intervals {float(share):.1%}" for name, share in value.items())
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " and ".join(map(_shown, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
