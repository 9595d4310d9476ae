"""What drives a fit's predictions, and its report's summary in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from patrac_native.fit.evaluation import AnyDraws, Evaluation, members_of
from patrac_native.fit.preprocessor import Preprocessor
from patrac_native.fit.rows import Rows, TargetScaling

# At most so many rows and draws in all enter an effect, whose band is then good to a tenth of its width.
_ROWS, _DRAWS = 200, 200
# So many columns are named in the summary.
_NAMED = 3


@dataclass(frozen=True)
class Effect:
    """How far predictions move when the values of a column are exchanged between rows.

    Attributes
    ----------
    column : str
    size : float
        Mean over rows and draws of the absolute change of f, in the units of the target; of classes, of the share of
        probability that moves to other classes.
    lower, upper : float
        Its central 90% interval over draws.
    """

    column: str
    size: float
    lower: float
    upper: float


def permutation_effects(
    draws: AnyDraws, rows: Rows, preprocessor: Preprocessor, units: TargetScaling, *, seed: int = 0
) -> list[Effect]:
    """Return the effect of each column of the table, the largest first (Breiman 2001, of predictions, not of errors).

    Parameters
    ----------
    draws : Draws or DrawsMixture
    rows : Rows
        At least two. The inputs of one column, such as those of its categories, are exchanged together; where the
        network has principal components or bins, in the inputs that these stand for.
    preprocessor : Preprocessor
        It made the inputs.
    units : TargetScaling
        Of the targets, of whose mean or, where they are logarithms, median the effects are.
    seed : int, default 0
        Of the order in which values are exchanged.
    """
    rows, is_class = rows.spread(_ROWS), draws.likelihood.targets == "class"
    order = np.random.default_rng(seed).permutation(len(rows.X))
    exchanged = np.empty_like(order)
    exchanged[order] = np.roll(order, 1)  # no row keeps its own value
    members = members_of(draws)
    every = max(1, sum(member.n_draws * member.n_chains for member in members) // _DRAWS)
    members = tuple(member[:, ::every] for member in members)

    def outputs(X: Any) -> Any:
        """Predictions (draw, n, m) of all members."""
        of_members = [one.predict_proba(X) if is_class else one.predict(X, offset=rows.offset) for one in members]
        return units.inverse(np.concatenate([one.reshape(-1, *one.shape[2:]) for one in of_members]))

    encoding = preprocessor.encoding
    inputs = rows.X if encoding is None else encoding.inverse(rows.X)
    before, effects, first = outputs(rows.X), [], 0
    for column in preprocessor.columns:
        own = slice(first, first + len(column.names))
        first, X = own.stop, inputs.copy()
        X[:, own] = X[exchanged][:, own]
        change = np.abs(outputs(X if encoding is None else encoding.transform(X)) - before)
        # A binary likelihood has one probability; of several classes, what one gains another loses.
        moved = change.sum(axis=-1) / (2 if is_class and change.shape[-1] > 1 else change.shape[-1])
        of_draws = moved.mean(axis=1)
        effects.append(Effect(column.name, float(of_draws.mean()), *map(float, np.quantile(of_draws, (0.05, 0.95)))))
    return sorted(effects, key=lambda one: -one.size)


def summary_words(
    evaluation: Evaluation, verdict: Any, effects: Sequence[Effect], target: str, classes: Sequence[Any] | None
) -> list[str]:
    """Return paragraphs on what the model predicts, how sure it is, what drives it, and what to do next."""
    scores, y = evaluation.scores, evaluation.arrays["y"]
    unseen = "rows that it had not seen" if scores["kind"] == "held out" else "rows, each left out in turn"
    if classes:
        common = np.bincount(np.asarray(y, dtype=np.intp)).max() / len(y)
        first = (
            f"The model predicts which of {len(classes)} classes {target!r} is. Of {len(y)} {unseen}, its most "
            f"probable class is right for {scores['accuracy']:.0%}; always naming the most common class would be right "
            f"for {common:.0%}."
        )
        doubt = scores["entropy"]
        sure = (
            f"How sure: stated probabilities are off by {100 * scores['ece']:.1f} points on average, and "
            f"{doubt['epistemic'] / max(doubt['total'], 1e-300):.0%} of its doubt is about the model, which more rows "
            "would reduce; the rest is in the data."
        )
        moved = [
            f"{one.column} ({100 * one.size:.0f}, {100 * one.lower:.0f} to {100 * one.upper:.0f} points)"
            for one in effects
        ]
        how = "moves probability between classes by so many points"
    else:
        first = (
            f"The model predicts {target!r}. Of {len(y)} {unseen}, {scores['censored']} are censored."
            if "concordance" in scores
            else f"The model predicts {target!r}. On {len(y)} {unseen}, its predictions are off by "
            f"{float(np.mean(scores['rmse'])):.4g} (root mean square); always predicting their mean would be off by "
            f"{float(np.std(y, axis=0).mean()):.4g}."
        )
        if scores.get("concordance") is not None:  # some pairs have a known order
            first += (
                f" It predicts {scores['concordance']:.0%} of the pairs whose order is known in that order "
                "(concordance); guessing would be right for 50%."
            )
        sure = (
            f"How sure: its 95% intervals are {float(np.mean(scores['interval_width'])):.4g} wide on average and hold "
            f"{scores['coverage']['0.95']:.0%} of these rows. {float(np.mean(evaluation.arrays['epistemic'])):.0%} of "
            "their variance is doubt about the function, which more rows would reduce; the rest is noise."
        )
        moved = [f"{one.column} ({one.size:.3g}, {one.lower:.3g} to {one.upper:.3g})" for one in effects]
        how = "moves the prediction by so much"
    drives = (
        f"What drives it: exchanging the values of a column between rows {how} on average (90% interval over the "
        f"draws): {'; '.join(moved[:_NAMED])}{'; the others less' if len(moved) > _NAMED else ''}. This is what the "
        "model uses, not what causes the target."
    )
    remedies = [finding.remedy for finding in verdict.findings]  # of the worst finding first
    advice = "Next: " + (remedies or ["nothing is wrong; report the predictions with their intervals"])[0]
    return [first, sure, drives, advice.rstrip(".") + "."]
