"""Fits of estimators whose chains are too short to converge."""

from __future__ import annotations

import warnings
from typing import Any


def quietly(estimator: Any, *rows: Any, **options: Any) -> Any:
    """Fit without the warnings that chains as short as those of the tests deserve; return the estimator."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return estimator.fit(*rows, **options)
