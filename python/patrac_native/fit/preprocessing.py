"""Conversion of a table to inputs and targets and back: one-hot columns, standardisation, imputation, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.fit.columns import (
    MAX_CATEGORIES,
    Column,
    check_spread,
    check_told_apart,
    encode,
    first,
    fit_column,
    imputation_note,
    numbers,
    standardised,
    with_common_scale,
)
from patrac_native.fit.problems import collected
from patrac_native.fit.tables import places
from patrac_native.fit.target_column import check_counts, check_target, exposures, label_order, plain_label
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

TASKS = ("regression", "classification")
IMPUTATIONS = ("mean", "median")
# Version 2 has the range of each column, columns of dates and identifiers, version 3 counts and their exposure, version
# 4 the categories that no training row has, version 5 units of amounts beside it; earlier files are read too.
FORMAT_VERSION, _READ = 5, (1, 2, 3, 4, 5)


class Preprocessor:
    """Converts rows of a table to inputs (n, d) and targets, and targets back to their units or labels.

    `Preprocessor.fit` creates it; `to_dict` and `from_dict` convert it to and from JSON-able values.

    Attributes
    ----------
    task : {"regression", "classification"}
    target : str
        Name of the target's column.
    columns : list of Column
        The columns that become inputs, in the table's order. Columns that are constant in the training rows are
        dropped.
    table_columns : list of str
        Names of all columns of the table, including the target and dropped columns.
    target_mean, target_scale : float
        For regression, mean and standard deviation of y in the training rows; the network predicts (y - mean) / scale.
        Counts stay as they are, with mean 0 and scale 1.
    classes : list
        For classification, the label of each of the network's outputs, sorted; labels are numbers, text or Booleans.
    notes : list of str
        Notes for the user on dropped columns and imputed values.
    ids : list of str
        Columns that are no inputs and stand beside the predictions.
    counts : bool
        Whether the target holds counts.
    exposure : str or None
        Name of the column of the exposure of the counts, which is no input.
    """

    def __init__(
        self,
        task: str,
        target: str,
        columns: Sequence[Column],
        table_columns: Sequence[str],
        *,
        target_mean: float = 0.0,
        target_scale: float = 1.0,
        classes: Sequence[Any] = (),
        notes: Sequence[str] = (),
        ids: Sequence[str] = (),
        counts: bool = False,
        exposure: str | None = None,
    ) -> None:
        self.task = task
        self.target = target
        self.columns = list(columns)
        self.table_columns = list(table_columns)
        self.target_mean = target_mean
        self.target_scale = target_scale
        self.classes = list(classes)
        self.notes = list(notes)
        self.ids = list(ids)
        self.counts = counts
        self.exposure = exposure

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        target: str,
        *,
        task: str,
        rows: npt.ArrayLike | None = None,
        impute: str | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        ids: Sequence[str] = (),
        dates: Sequence[str] = (),
        counts: bool = False,
        exposure: str | None = None,
    ) -> Preprocessor:
        """Determine means, scales, imputed values and categories from a table.

        Parameters
        ----------
        frame : pandas DataFrame
            The whole table. Categories and classes are those of all its rows; everything else is computed from the
            training rows only.
        target : str
            The column to predict.
        task : {"regression", "classification"}
        rows : array_like of int, optional
            Positions of the training rows; by default all rows.
        impute : {"mean", "median"}, optional
            The statistic of the training rows that replaces missing numbers; missing categories are replaced by the
            most frequent one. By default missing values are an error.
        drop : sequence of str
            Columns to leave out; default none.
        categorical : sequence of str
            Numeric columns that hold codes and are one-hot encoded; default none.
        ids : sequence of str
            Columns to leave out that stand beside predictions; default none.
        dates : sequence of str
            Columns of dates, which become days since 1970-01-01; default none.
        counts : bool
            Whether the target must hold counts, which are not standardised; default False.
        exposure : str, optional
            The column of the exposure of the counts.

        Returns
        -------
        Preprocessor

        Raises
        ------
        ValueError
            If values are missing or infinite (the message gives column, number and row), the target is constant or no
            count where counts are asked for, an exposure is not positive, a text column has more than 100 distinct
            values, or no column can be used. The problems of all columns are reported together.
        """
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {task!r}.")
        if impute is not None and impute not in IMPUTATIONS:
            raise ValueError(f"impute must be one of {', '.join(IMPUTATIONS)} or None; got {impute!r}.")
        train = np.arange(len(frame)) if rows is None else np.asarray(rows)
        columns: list[Column] = []
        notes: list[str] = []
        names = [str(name) for name in frame.columns]
        made = cls(task, target, (), names, ids=ids, counts=counts, exposure=exposure)
        with collected() as attempt:
            for name in names:
                if name in (target, exposure, *drop, *ids):
                    continue
                with attempt:
                    column = fit_column(frame[name], train, impute, name in categorical, name in dates)
                    missing = int(frame[name].isna().sum())
                    if column.is_constant:
                        value = frame[name].dropna().iloc[0]
                        notes.append(f"column {name!r} is {value} in every training row and was dropped")
                        continue
                    if missing:
                        notes.append(imputation_note(column, missing))
                    columns.append(column)
            with attempt:
                made._fit_target(frame, train)
            with attempt:
                made.offset(frame)
        if not columns:
            raise ValueError("no column is left to predict from: every one is the target, dropped or constant.")
        # Dates are no numbers of the table, and share no unit with its numbers.
        scaled = columns if dates else with_common_scale(columns, frame, train)
        if scaled != columns:
            notes.append("the numeric columns share a unit, as pixels do, and were scaled together")
        made.columns, made.notes = list(scaled), notes
        return made

    def _fit_target(self, frame: pd.DataFrame, train: npt.NDArray[Any]) -> None:
        """Determine the classes, or mean and scale, of the target; raise ValueError if it is constant."""
        series = frame[self.target]
        check_target(series)
        if self.task == "classification":
            self.classes = sorted({plain_label(value) for value in series.tolist()}, key=label_order)
            if len(self.classes) < 2:
                raise ValueError(f"the target {self.target!r} has one class only, {self.classes[0]!r}.")
            if len(self.classes) > MAX_CATEGORIES:
                raise ValueError(
                    f"the target {self.target!r} has {len(self.classes)} classes, more than {MAX_CATEGORIES}; use "
                    "--task regression if it is a number, or group the classes."
                )
            return
        check_told_apart(series, f"the target {self.target!r}", "predict another column (--target)")
        everywhere = numbers(series, f"the target {self.target!r}")
        if self.counts:
            check_counts(series, everywhere)
        check_spread(series, everywhere, train, f"the target {self.target!r}")
        values = everywhere[train]
        mean, scale = float(values.mean()), float(values.std())
        if scale == 0:
            raise ValueError(f"the target {self.target!r} is {values[0]:g} in every training row.")
        if not self.counts:
            self.target_mean, self.target_scale = mean, scale

    @property
    def names(self) -> list[str]:
        """Names of the d inputs: the column's name for a number, "column=category" for a category."""
        return [
            name
            for column in self.columns
            for name in (
                [column.name] if column.categories is None else [f"{column.name}={c}" for c in column.categories]
            )
        ]

    @property
    def unused(self) -> list[str]:
        """Columns of the fitted table that no number is read of: identifiers, dropped or constant."""
        used = {self.target, self.exposure, *(column.name for column in self.columns)}
        return [name for name in self.table_columns if name not in used]

    @property
    def targets(self) -> Literal["real", "count", "class"]:
        """Kind of the targets, as likelihoods name it."""
        if self.task == "classification":
            return "class"
        return "count" if self.counts else "real"

    @property
    def n_inputs(self) -> int:
        """d, the number of inputs."""
        return len(self.names)

    @property
    def n_targets(self) -> int:
        """1 for a regression, the number of classes for a classification."""
        return 1 if self.task == "regression" else len(self.classes)

    def transform(self, frame: pd.DataFrame) -> FloatArray:
        """Convert a table to inputs.

        Parameters
        ----------
        frame : pandas DataFrame
            A table with at least the columns in `columns`; others, such as the target, are ignored.

        Returns
        -------
        ndarray of float64, shape (n, d)

        Raises
        ------
        ValueError
            If a column is missing, a value is missing and the fit imputed none, an entry is not a number, or a category
            did not occur in the fitted table; the message gives column, row (from 0) and value, for all columns.
        """
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise ValueError(
                f"the table lacks the columns {', '.join(map(repr, absent))}; it has "
                f"{', '.join(map(repr, map(str, frame.columns)))}."
            )
        parts = []
        with collected() as attempt:
            for column in self.columns:
                with attempt:
                    parts.append(encode(frame[column.name], column))
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)

    def in_units(self, X: FloatArray) -> FloatArray:
        """Convert inputs (n, d) to the units of their columns; dates are days since 1970-01-01, categories 0 or 1."""
        means, scales = [], []
        for column in self.columns:
            count = 1 if column.categories is None else len(column.categories)
            means += [column.mean] * count
            scales += [column.scale] * count
        return np.asarray(X * np.array(scales) + np.array(means))

    def outside(self, frame: pd.DataFrame) -> dict[str, npt.NDArray[np.bool_]] | None:
        """Return which rows (n,) are outside the range of the training rows, by column; None for earlier fits.

        Only columns with such rows are listed: of numbers, dates, and categories that no training row has. Imputed
        values are inside.
        """
        found = {}
        for column in self.columns:
            out = column.outside(frame[column.name])
            if out is None:
                return None
            if out.any():
                found[column.name] = out
        return found

    def imputed(self, frame: pd.DataFrame) -> list[str]:
        """Return a note for each column with missing values: their number and the value that replaces them."""
        counts = [(column, int(frame[column.name].isna().sum())) for column in self.columns]
        return [imputation_note(column, count) for column, count in counts if count]

    def transform_target(self, frame: pd.DataFrame) -> npt.NDArray[Any]:
        """Return the targets (n,): standardised float64 numbers, counts as they are, or int64 labels 0..m-1.

        Raises
        ------
        ValueError
            If a value is missing, an entry is not a number or no count, or a class did not occur in the fitted table.
        """
        series = frame[self.target]
        if self.task == "regression":
            values = numbers(series, f"the target {self.target!r}")
            if self.counts:
                check_counts(series, values)
            return standardised(series, values, self.target_mean, self.target_scale, f"the target {self.target!r}")
        code = {label: index for index, label in enumerate(self.classes)}
        labels = [plain_label(value) for value in series.tolist()]
        unknown = np.array([label not in code for label in labels])
        if unknown.any():
            label = labels[first(unknown)]
            raise ValueError(
                f"the target {self.target!r} has the unknown class {label!r} at {places(series, unknown)}."
            )
        return np.array([code[label] for label in labels], dtype=np.int64)

    def offset(self, frame: pd.DataFrame) -> FloatArray | None:
        """Return the logarithm of the exposure of each row (n,); None if there is no exposure.

        Raises
        ------
        ValueError
            If the table lacks the exposure, or one is missing or not positive.
        """
        if self.exposure is None:
            return None
        if self.exposure not in frame.columns:
            raise ValueError(f"the table lacks the column {self.exposure!r} of the exposure of the counts.")
        return np.log(exposures(frame[self.exposure]))

    def inverse_target(self, values: npt.ArrayLike) -> FloatArray:
        """Convert standardised targets or predictions of any shape to the target's own units."""
        return np.asarray(values, dtype=np.float64) * self.target_scale + self.target_mean

    def variance_in_units(self, variance: float) -> float:
        """Convert a variance of the standardised target to the target's own units, squared."""
        return variance * self.target_scale**2

    def column_names(self, count: int) -> list[str]:
        """Return the names of the columns of a table without header, as the fitted table has them.

        Parameters
        ----------
        count : int
            Number of columns; the target may be missing.

        Raises
        ------
        ValueError
            If the number of columns is neither that of the fit nor one less.
        """
        wanted = self.table_columns
        without = [name for name in wanted if name != self.target]
        if count not in (len(wanted), len(without)):
            raise ValueError(
                f"the table has {count} column{'s' if count > 1 else ''}; the one that was fitted had {len(wanted)}, "
                f"or {len(without)} without the target."
            )
        return wanted if count == len(wanted) else without

    def amounts(self, frame: pd.DataFrame, *, with_target: bool) -> list[str]:
        """Return the columns of numbers that are read from a table of new rows and have values in it."""
        read = [column.name for column in self.columns if column.categories is None]
        read += [] if self.exposure is None else [self.exposure]
        read += [self.target] if with_target else []
        return [name for name in read if name in frame.columns and frame[name].notna().any()]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values from which `from_dict` rebuilds the preprocessor."""
        return {
            "format": FORMAT_VERSION,
            "task": self.task,
            "target": self.target,
            "columns": [asdict(column) for column in self.columns],
            "table_columns": self.table_columns,
            "target_mean": self.target_mean,
            "target_scale": self.target_scale,
            "classes": self.classes,
            "notes": self.notes,
            "ids": self.ids,
            "counts": self.counts,
            "exposure": self.exposure,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Preprocessor:
        """Rebuild a preprocessor from what `to_dict` returned.

        Raises
        ------
        ValueError
            If the content has another version of the format or is incomplete.
        """
        if content.get("format") not in _READ:
            raise ValueError(
                f"the preprocessing has format {content.get('format')!r}, but this version of patrac_native reads "
                f"{FORMAT_VERSION}; fit again, or use the version that wrote it."
            )
        try:
            made = cls(
                content["task"],
                content["target"],
                [Column(**column) for column in content["columns"]],
                content["table_columns"],
                target_mean=content["target_mean"],
                target_scale=content["target_scale"],
                classes=content["classes"],
                notes=content["notes"],
                ids=content.get("ids", ()),
                counts=content.get("counts", False),
                exposure=content.get("exposure"),
            )
            made._check_numbers()
            return made
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"the preprocessing is damaged ({error!r}); fit again.") from error

    def _check_numbers(self) -> None:
        """Raise ValueError if a stored mean or scale is no finite number, or a scale is not positive."""
        stored: dict[str, tuple[Any, ...]] = {"the target": (self.target_mean, self.target_scale, None, None, None)}
        for column in self.columns:
            fill = column.fill if column.categories is None else None
            stored[f"column {column.name!r}"] = (column.mean, column.scale, fill, column.low, column.high)
        for what, (mean, scale, *others) in stored.items():
            given = [float(value) for value in (mean, scale, *others) if value is not None]
            if not np.isfinite(given).all() or not scale > 0:
                raise ValueError(
                    f"the preprocessing is damaged: {what} has mean {mean} and scale {scale}, which must be finite and "
                    "the scale positive; fit again."
                )
