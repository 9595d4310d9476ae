"""The result of a fit to a table, with everything that its report and files contain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patrac_native.draws.draws import Draws
from patrac_native.draws.summary import Summary
from patrac_native.tabular.evaluation import Evaluation
from patrac_native.tabular.fit_settings import FitSettings
from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.tabular.tuning import Choice
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitData:
    """Standardised training and held-out rows, and the preprocessor that converts them back.

    Attributes
    ----------
    preprocessor : Preprocessor
    X, X_test : ndarray of float64, shape (n, d)
    y, y_test : ndarray, shape (n,)
        Standardised float64 targets, or int64 labels.
    """

    preprocessor: Preprocessor
    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    settings : FitSettings
    data : FitData
    choice : Choice
        Penalty and noise variance.
    description : str
        `Posterior.describe()`.
    draws : Draws
    evaluation : Evaluation
        Scores of the held-out rows.
    summary : Summary
        Summary of the draws at the inputs `grid`.
    grid : ndarray of float64, shape (rows, d)
    seconds : dict of str to float
        Wall-clock time of each stage.
    """

    settings: FitSettings
    data: FitData
    choice: Choice
    description: str
    draws: Draws
    evaluation: Evaluation
    summary: Summary
    grid: FloatArray
    seconds: dict[str, float]


def describe_choice(choice: Choice, preprocessor: Preprocessor) -> str:
    """Return a line on noise variance and penalty, and on the rows by which they were chosen."""
    text = f"l2 {choice.l2:.3g}"
    if choice.variance is not None:
        units = preprocessor.variance_in_units(choice.variance)
        text = (
            f"noise variance {units:.4g} in the target's units squared (noise sd {units**0.5:.4g}; "
            f"{choice.variance:.4g} of the standardised target), {text}"
        )
    if choice.trials:
        text += f"; chosen on {choice.validation}"
    return text
