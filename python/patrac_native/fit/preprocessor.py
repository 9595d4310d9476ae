"""Conversion of tables to inputs of a network: numbers, categories, dates on request, and missing values."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from types import NoneType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from patrac_native.files import check_entries
from patrac_native.fit.bins import Bins
from patrac_native.fit.components import Components

FloatArray = npt.NDArray[np.float64]
_Item = TypeVar("_Item")

IMPUTATIONS = ("mean", "median")
# A text column is a category if it has at most 20 distinct values, or at most 5% of the rows and 100.
_FEW, _SHARE, _MANY = 20, 0.05, 100
# A column that is named in `categorical` may have so many categories, each of which is an input.
_MOST = 1_000
# What pandas calls the values of a column, and what they are read as. All others are refused.
_KINDS = dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal", "boolean"), "number")
_KINDS |= {"string": "text"} | dict.fromkeys(("datetime64", "datetime", "date"), "date")
_TIMES = (date, timedelta, np.datetime64, np.timedelta64, pd.Period)
_ISO = "YYYY-MM-DD"
# Days of 9999-12-31, by which tables say that something has not ended.
_NEVER = date.max.toordinal() - date(1970, 1, 1).toordinal()
# Other layouts of dates, with or without a time; years have four digits, so that no century is guessed.
_LAYOUTS = [
    layout + time
    for layout in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
    for time in ("", " %H:%M", " %H:%M:%S")
]
# Numbers that have commas, as decimal marks or between thousands.
_COMMAS = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*")
_FORMAT = 1
# What may take the place of the inputs, by its name in files.
_ENCODINGS: dict[str, type[Components] | type[Bins]] = {"components": Components, "bins": Bins}


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes inputs.

    A "number" or "date" becomes (value - mean) / scale, and the categories of "text" and of "codes", which are numbers,
    become one input of 0 and 1 each; with scale 0 there are none of these. An indicator adds an input that is 1 where
    the value is missing, which makes missing categories one of their own. `fill` replaces missing numbers. `low` and
    `high` are the range of the training rows, and `layout` is that of dates in a column of text.
    """

    name: str
    kind: str
    mean: float = 0.0
    scale: float = 1.0
    fill: float | None = None
    low: float = 0.0
    high: float = 0.0
    categories: tuple[Any, ...] = ()
    layout: str = ""
    indicator: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        names = [f"{self.name}={_plain(category)}" for category in self.categories] or [self.name]
        return (names if self.scale else []) + ([f"{self.name} is missing"] if self.indicator else [])

    @property
    def _is_whole(self) -> bool:
        """Whether a fit can have made the column, of fields of the right types."""
        numbers, count = (self.mean, self.scale, self.low, self.high, self.fill or 0.0), len(self.categories)
        if not np.isfinite(numbers).all() or self.low > self.high or not self.names:
            return False
        if self.kind not in ("text", "codes"):
            layouts = ("", _ISO, *_LAYOUTS) if self.kind == "date" else ("",)
            return self.kind in ("number", "date") and not count and self.layout in layouts and self.scale >= 0
        wanted, found = {"text": {str}, "codes": {float}}[self.kind], {*map(type, self.categories)}
        in_order = found == wanted and list(self.categories) == sorted(set(self.categories))
        is_plain = self.fill is None and not self.layout
        return in_order and is_plain and self.scale in ({1.0} if count > 1 else {0.0, 1.0})

    def values(self, series: pd.Series) -> FloatArray:
        """Return numbers, days since 1970-01-01 or positions of categories (-1: unknown), NaN where missing; (n,)."""
        kind = _kind(series)
        wanted = {"codes": "number", "date": "text" if self.layout else "date"}.get(self.kind, self.kind)
        if kind == "empty":
            return np.full(len(series), np.nan)
        if kind != wanted:
            known = series.notna().to_numpy(bool)
            is_text = np.array([isinstance(value, str) for value in series], dtype=bool)
            # In files with decimal commas 1.5 is text, in others text that is no number is to blame.
            groups = [is_text & np.isnan(_as_numbers(series)), is_text, known] if wanted == "number" else [known]
            bad = next(group for group in groups if group.any())
            raise ValueError(
                f"column {self.name!r} holds {wanted} in the training rows, and now {_kind(series[bad])} such as "
                f"{_shown(series, bad)}; give it the same type."
            )
        if self.kind == "date":
            return _days(series, self.layout, self.name)
        if self.kind == "text":
            return _positions(series, series.isna().to_numpy(), self.categories)
        try:
            values = np.ascontiguousarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
        except OverflowError:
            raise ValueError(f"column {self.name!r} holds whole numbers beyond the range of float64.") from None
        if np.isinf(values).any():
            raise ValueError(f"column {self.name!r} must be finite; got {_shown(series, np.isinf(values))}.")
        return values if self.kind == "number" else _positions(values, np.isnan(values), self.categories)

    def _fitted(self, series: pd.Series, values: FloatArray, impute: str | None, weights: FloatArray | None) -> Column:
        """Return the column with the moments and the range of the values of its training rows."""
        missing = np.isnan(values)
        if self.categories:
            count = len(self.categories)
            return replace(self, high=count - 1.0, scale=float(count > 1), indicator=bool(missing.any()))
        if missing.any() and impute is None:
            count = int(missing.sum())
            raise ValueError(
                f"column {self.name!r} has {count} missing value{'s' * (count > 1)}, at {place(series, missing)}; "
                "remove those rows, name the column in drop, or set impute to mean or median."
            )
        known, of_known = values[~missing], None if weights is None else weights[~missing]
        if self.kind == "number" and np.abs(known).max() > 2.0**53 and np.unique(known).size < series.nunique():
            raise ValueError(
                f"column {self.name!r} holds whole numbers such as {series[~missing].iloc[0]}, some of which are equal "
                "as float64; name identifiers in drop, or subtract a common number."
            )
        fill = None
        if impute is not None:
            fill = float(np.average(known, weights=of_known)) if impute == "mean" else _median(known, of_known)
        mean, scale = mean_and_scale(values if fill is None else np.where(missing, fill, values), weights)
        # The mean of equal numbers, by which missing ones are replaced, may differ from them by rounding.
        scale = scale if fill is None or mean_and_scale(known)[1] else 0.0
        return replace(self, mean=mean, scale=scale, fill=fill, low=float(known.min()), high=float(known.max()))

    def encode(self, series: pd.Series) -> FloatArray:
        """Return the inputs (n, number of inputs); of an unknown or a missing category, no category's is 1."""
        values = self.values(series)
        missing = np.isnan(values)
        if missing.any() and self.fill is None and not self.categories:
            raise ValueError(
                f"column {self.name!r} is missing at {place(series, missing)}, and the fit had no impute; remove "
                "those rows, or fit with impute."
            )
        values = np.where(missing, -1.0 if self.fill is None else self.fill, values)
        parts = []
        if self.categories and self.scale:
            parts.append(values[:, None] == np.arange(len(self.categories)))
        elif self.scale:
            with np.errstate(over="ignore"):
                inputs = (values - self.mean) / self.scale
            beyond = ~(np.abs(inputs) <= np.finfo(np.float32).max)
            if beyond.any():
                raise ValueError(
                    f"column {self.name!r} has {_shown(series, beyond)}, too far from the mean of the training rows, "
                    f"{self.mean:g}, to compute with; correct or remove that row."
                )
            parts.append(inputs[:, None])
        return np.concatenate([*parts, *([missing[:, None]] if self.indicator else [])], axis=1, dtype=np.float64)

    def problems(self, series: pd.Series, first: int = 0) -> dict[int, str]:
        """Return why rows, counted from `first`, cannot be encoded; found by halves, because most rows can be."""
        try:
            self.encode(series)
        except ValueError as error:
            if len(series) == 1:
                return {first: str(error)}
            half = len(series) // 2
            return self.problems(series.iloc[:half], first) | self.problems(series.iloc[half:], first + half)
        return {}

    def remarks(self, series: pd.Series) -> dict[int, str]:
        """Return a remark for each row that is missing, outside the training range or of an unknown category."""
        values, found = self.values(series), {}
        outside = (values < self.low) | (values > self.high)
        for row in np.flatnonzero(outside | np.isnan(values)).tolist():
            if np.isnan(values[row]):
                found[row] = f"{self.name} is missing"
            elif self.categories:
                found[row] = f"{self.name}={_plain(series.iloc[row])} is unknown"
            else:
                value, low, high = (self._text(number) for number in (values[row], self.low, self.high))
                found[row] = f"{self.name}={value} is outside {low} to {high}"
        return found

    def _text(self, value: float) -> str:
        """Return a value as text: a number, date or category."""
        if self.categories:
            return _plain(self.categories[int(value)])
        return f"{value:.6g}" if self.kind == "number" else str(np.datetime64(int(np.floor(value)), "D"))

    def described(self) -> list[str]:
        """Return name, kind, and moments or categories, for a report."""
        if self.categories:
            return [self.name, "categories", ", ".join(map(_plain, self.categories))]
        days = " days" if self.kind == "date" else ""
        return [self.name, self.kind, f"mean {self._text(self.mean)}, sd {self.scale:.4g}{days}"]


class Preprocessor:
    """Converts a table, or an array whose columns are named by their numbers, to standardised inputs (n, d).

    Columns are matched by the text of their names. `Preprocessor.fit` makes one.

    Attributes
    ----------
    columns : list of Column
        The columns that become inputs.
    table_columns : list of str
        The names of all columns of the fitted table.
    notes : list of str
        What was dropped, imputed or taken for a category, for the user: one line for all columns of a kind.
    facts : dict of str to dict
        What holds for each column by its name: "missing", how many values are and what became of them; "constant", the
        value in every training row of a column that was dropped.
    encoding : Components or Bins or None
        The principal components, or the bins, that `transform` returns in place of the inputs; `fit` leaves it None.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        table_columns: Sequence[str],
        notes: Sequence[str],
        encoding: Components | Bins | None = None,
        facts: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.columns, self.table_columns, self.notes = list(columns), list(table_columns), list(notes)
        self.facts = {kind: dict((facts or {}).get(kind, {})) for kind in ("missing", "constant")}
        self.encoding = encoding

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        categorical: Sequence[Hashable] = (),
        dates: Sequence[Hashable] = (),
        drop: Sequence[Hashable] = (),
        impute: str | None = None,
        indicator: bool = False,
        sample_weight: FloatArray | None = None,
        standardize: bool = True,
    ) -> Preprocessor:
        """Determine types, categories, means and scales from the training rows.

        Parameters
        ----------
        X : pandas DataFrame or array_like, shape (n, columns)
        categorical, dates, drop : sequence of column names or positions
            Columns of codes, columns of dates, which become days since 1970-01-01, and columns that are not inputs.
        impute : {"mean", "median"}, optional
            What replaces missing numbers; by default they are an error. Missing categories are one of their own.
        indicator : bool
            Whether each column of numbers with missing values gets a second input that marks them; default False.
        sample_weight : ndarray, shape (n,), optional
            Weights of the rows, positive; default ones.
        standardize : bool
            Whether numbers are standardised, and columns without information are dropped; default True.

        Raises
        ------
        ValueError
            If columns cannot be read, all of which are reported together, or none is left.
        """
        if impute is not None and impute not in IMPUTATIONS:
            raise ValueError(f"impute must be one of {', '.join(IMPUTATIONS)} or None; got {impute!r}.")
        table = _table(X)
        named = _selected(list(table), {"drop": drop, "categorical": categorical, "dates": dates})
        if sample_weight is not None and (sample_weight == sample_weight[0]).all():
            sample_weight = None
        columns: list[Column] = []
        notes: list[str] = []
        gone: dict[str, str] = {}
        constant: dict[str, str] = {}

        def fit_column(name: str) -> None:
            series = table[name]
            typed = _typed(name, series, named.get(name, ""))
            values = typed.values(series)
            column = typed._fitted(series, values, impute, sample_weight)
            if missing := int(np.isnan(values).sum()):
                became = (
                    ": a category of its own" if column.fill is None else f" imputed by {column._text(column.fill)}"
                )
                gone[name] = f"{missing} missing value{'s' * (missing > 1)}{became}"
                column = replace(column, indicator=indicator or column.indicator)
            if column.kind == "date" and (never := np.floor(values) == _NEVER).any():
                notes.append(
                    f"column {name!r} is 9999-12-31 at {place(series, never)}, which sets its scale; make that a "
                    "missing value if it stands for no date"
                )
            if not standardize:
                column = replace(column, mean=0.0, scale=1.0)
            if not column.scale:
                constant[name] = _plain(series[~np.isnan(values)].iloc[0])
            if column.names:
                columns.append(column)

        _for_all([name for name in table if named.get(name) != "drop"], fit_column)
        if not columns:
            raise ValueError("no column is left to predict from: every one is dropped or constant.")
        if len(gone) == 1:
            notes += [f"column {name!r}: {what}" for name, what in gone.items()]
        elif gone:
            shown = some_of([f"{name!r} ({what})" for name, what in gone.items()])
            notes.append(f"{len(gone)} columns have missing values: {shown}")
        if len(constant) == 1:
            notes += [
                f"column {name!r} is {value} in every training row and was dropped" for name, value in constant.items()
            ]
        elif constant:
            shown = some_of([f"{name!r} ({value})" for name, value in constant.items()])
            notes.append(f"{len(constant)} columns have one value in every training row and were dropped: {shown}")
        texts = [one for one in columns if one.kind == "text" and named.get(one.name) != "categorical"]
        if texts:
            shown = some_of(
                [f"{one.name} ({', '.join(one.categories[:3])}{', ...' * (len(one.categories) > 3)})" for one in texts],
                "; ",
            )
            notes.append(f"read as categories, because they hold text: {shown}")
        made = cls(columns, list(table), notes, facts={"missing": gone, "constant": constant})
        if standardize:
            made._share_scale(table)
        return made

    def _share_scale(self, table: Mapping[str, pd.Series]) -> None:
        """Give one scale to columns of one unit, such as pixels: each by its own would blow up the rarely lit ones.

        They are at least 16 columns of numbers, all whole and from 0, at least half of which have the same largest
        value, above 1; the others reach half of it or are 0 in most rows. The scale is the root mean square of theirs.
        """
        at = [i for i, column in enumerate(self.columns) if column.kind == "number" and column.scale]
        highest = np.array([self.columns[i].high for i in at])
        if len(at) < 16 or highest.max() <= 1 or 2 * (highest == highest.max()).sum() < len(at):
            return
        for i in at:
            column = self.columns[i]
            values = column.values(table[column.name])
            values = values[~np.isnan(values)]
            if (values < 0).any() or (values % 1).any() or (2 * column.high < highest.max() and np.median(values) != 0):
                return
        shared = float(np.sqrt(np.mean([self.columns[i].scale ** 2 for i in at])))
        for i in at:
            self.columns[i] = replace(self.columns[i], scale=shared)
        self.notes.append("the columns of numbers share a unit, as pixels do, and were scaled together")

    @property
    def names(self) -> list[str]:
        """Names of the inputs that columns become: "column", "column=category" or "column is missing"."""
        return [name for column in self.columns for name in column.names]

    @property
    def n_inputs(self) -> int:
        """Number of inputs of the network."""
        return len(self.names) if self.encoding is None else self.encoding.number

    @property
    def text_columns(self) -> dict[str, tuple[Any, ...]]:
        """The columns that new rows have as text: those of categories, with these, and those of dates in text."""
        return {column.name: column.categories for column in self.columns if column.kind == "text" or column.layout}

    def transform(self, X: Any) -> FloatArray:
        """Convert rows to inputs.

        Parameters
        ----------
        X : pandas DataFrame or array_like, shape (n, columns)
            A table with the columns of the fit, in any order; columns that are not inputs may be absent.

        Returns
        -------
        ndarray of float64, shape (n, d)

        Raises
        ------
        ValueError
            If columns differ from those of the fit, or entries cannot be read, all of which are reported together.
        """
        table = self._matched(X)
        parts: list[FloatArray] = []
        _for_all(self.columns, lambda column: parts.append(column.encode(table[column.name])))
        inputs = np.ascontiguousarray(np.concatenate(parts, axis=1))
        return inputs if self.encoding is None else self.encoding.transform(inputs)

    def remarks(self, X: Any) -> list[str]:
        """Return for each row what is missing, outside the training range or an unknown category; empty if nothing."""
        return self._for_rows(X, Column.remarks)

    def problems(self, X: Any) -> list[str]:
        """Return for each row why `transform` cannot read it; empty if it can."""
        return self._for_rows(X, Column.problems)

    def _for_rows(self, X: Any, told: Callable[[Column, pd.Series], dict[int, str]]) -> list[str]:
        """Return what is told of the rows of each column, in one text for each row."""
        table = self._matched(X)
        found: list[list[str]] = [[] for _ in next(iter(table.values()))]
        for column in self.columns:
            for row, text in told(column, table[column.name]).items():
                found[row].append(text)
        return ["; ".join(texts) for texts in found]

    def _matched(self, X: Any) -> dict[str, pd.Series]:
        """Return the columns of a table by name; raise ValueError unless they are those of the fit."""
        table, known = _table(X), set(self.table_columns)
        unseen = [name for name in table if name not in known]
        absent = [column.name for column in self.columns if column.name not in table]
        if (unseen or absent) and isinstance(X, np.ndarray):
            raise ValueError(
                f"X is an array of {len(table)} columns, and the fit had {', '.join(self.table_columns[:20])}; give a "
                "table with these columns."
            )
        if unseen or absent:
            # The words of scikit-learn, which its checks of estimators look for.
            lines = ["The feature names should match those that were passed during fit."]
            for heading, which in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", absent)):
                lines += [f"Feature names {heading}:", *(f"- {name}" for name in sorted(which))] if which else []
            raise ValueError("\n".join(lines) + "\n")
        return table

    def in_units(self, inputs: FloatArray) -> FloatArray:
        """Convert inputs of the network to the units of the columns, (n, number of names).

        Categories and indicators stay 0 or 1, unless principal components leave some of the variance out.
        """
        inputs = inputs if self.encoding is None else self.encoding.inverse(inputs)
        moments = [
            (column.mean, column.scale) if name == column.name else (0.0, 1.0)
            for column in self.columns
            for name in column.names
        ]
        mean, scale = np.array(moments).T
        return np.asarray(inputs * scale + mean)

    def describe(self) -> str:
        """Return the conversion in one line."""
        used = [column for column in self.columns if column.kind in ("number", "date") and column.scale]
        text = f"X: {len(self.names)} inputs from {len(self.columns)} columns"
        if used and any((column.mean, column.scale) != (0, 1) for column in used):
            shared = len(used) > 1 and len({column.scale for column in used}) == 1
            by = "one scale, because they share a unit, as pixels do" if shared else "its standard deviation"
            text += f", each number minus its mean and divided by {by}"
        return text

    def table(self) -> list[list[str]]:
        """Return name, kind and contents of each column, for a report; those that were dropped as constant last."""
        rows = [column.described() for column in self.columns]
        for row in rows:
            row[2] += f"; {self.facts['missing'][row[0]]}" if row[0] in self.facts["missing"] else ""
        return rows + [[name, "constant, dropped", value] for name, value in self.facts["constant"].items()]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values from which `from_dict` rebuilds the preprocessor to the bit."""
        columns = [asdict(column) for column in self.columns]
        encoding = {name: self.encoding.to_dict() for name, kind in _ENCODINGS.items() if type(self.encoding) is kind}
        return {
            "format": _FORMAT,
            "columns": columns,
            "table_columns": self.table_columns,
            "notes": self.notes,
            "facts": self.facts,
            "encoding": encoding,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild a preprocessor; raise ValueError if the content is not what `to_dict` returns."""
        try:
            known: dict[str, Any] = {"format": int, "columns": list, "table_columns": list, "notes": list}
            known |= {"facts": dict, "encoding": dict}
            check_entries(content, known, "it")
            if content["format"] != _FORMAT:
                raise ValueError(f"it has format {content['format']!r}, and this version reads {_FORMAT}")
            columns = [Column(**{**one, "categories": tuple(one["categories"])}) for one in content["columns"]]
            for column, one in zip(columns, content["columns"], strict=True):
                of_column: dict[str, Any] = {
                    "name": str,
                    "kind": str,
                    "fill": (float, NoneType),
                    "categories": list,
                    "layout": str,
                }
                of_column |= dict.fromkeys(("mean", "scale", "low", "high"), float) | {"indicator": bool}
                check_entries(one, of_column, f"column {column.name!r}")
                if not column._is_whole:
                    raise ValueError(f"column {column.name!r} is none that a fit makes")
            made = cls(columns, content["table_columns"], content["notes"], facts=content["facts"])
            check_entries(content["facts"], dict.fromkeys(made.facts, dict), "its facts")
            facts = [text for of_columns in made.facts.values() for one in of_columns.items() for text in one]
            if {*map(type, [*made.table_columns, *made.notes, *facts])} != {str}:
                raise ValueError("its table_columns, notes or facts are no text")
            names = [column.name for column in columns]
            if not names or any(len(set(one)) < len(one) for one in (names, made.table_columns)):
                raise ValueError("it has no column, or two of one name")
            if not set(names) <= set(made.table_columns):
                raise ValueError("its columns are not among its table_columns")
            if len(content["encoding"]) > 1:
                raise ValueError("its encoding is two of them")
            for name, of_inputs in content["encoding"].items():
                made.encoding = _ENCODINGS[name].from_dict(of_inputs, len(made.names))
            return made
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the preprocessing is damaged: {error}; fit again.") from error


def mean_and_scale(values: FloatArray, weights: FloatArray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of values (n,); the latter is 0 if they differ by rounding only.

    Rounding is bounded as in scikit-learn's StandardScaler: variance <= n eps variance + (n eps mean)^2.
    """
    # Scaled by a power of two, which is exact, no square overflows or underflows.
    exponent = int(np.frexp(np.abs(values).max())[1])
    scaled = np.ldexp(np.ascontiguousarray(values), -exponent)
    mean = float(scaled.mean() if weights is None else np.average(scaled, weights=weights))
    squares = (scaled - mean) ** 2
    variance = float(squares.mean() if weights is None else np.average(squares, weights=weights))
    rounding = len(scaled) * float(np.finfo(np.float64).eps)
    is_constant = variance <= rounding * variance + (rounding * mean) ** 2
    return float(np.ldexp(mean, exponent)), 0.0 if is_constant else float(np.ldexp(np.sqrt(variance), exponent))


def as_frame(X: Any) -> Any:
    """Return a table of any package as a data frame, anything else as it is; raise TypeError if it cannot be read."""
    # Attributes of the class: a data frame's columns are attributes too.
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(type(X), "to_pandas"):
        return X.to_pandas()
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        raise TypeError(
            f"X is a {type(X).__name__}, whose columns cannot be read; give a pandas DataFrame or an array."
        )
    return X


def refuse_dates(values: Any, name: str, remedy: str) -> None:
    """Raise ValueError if an array or list has dates, times or spans of time: as numbers they depend on their unit."""
    if isinstance(values, pd.DataFrame):
        for column, series in values.items():
            refuse_dates(series, f"{name}, column {column!r},", remedy)
        return
    try:
        array = np.asarray(values)
    except Exception:  # rows of unequal length, the code of the array's class: other checks refuse these
        return
    is_time = array.dtype.kind in "mM"
    if array.dtype == object:
        is_time = any(issubclass(kind, _TIMES) for kind in {type(value) for value in array.ravel().tolist()})
    if is_time:
        raise ValueError(f"{name} holds dates or times; {remedy}.")


def _table(X: Any) -> dict[str, pd.Series]:
    """Return the columns of a table or an array by name; those of an array are named by their numbers."""
    X = as_frame(X)
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    table: dict[str, pd.Series] = {}
    for name, series in frame.items():
        if str(name) in table:
            raise ValueError(f"X has two columns named {str(name)!r}; rename one.")
        table[str(name)] = series
    return table


def column_named(names: Sequence[str], given: Any, parameter: str, where: str = "") -> str:
    """Return the name of a column that is given by name or number; raise ValueError, with the parameter, if none is."""
    name = str(given)
    is_place = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if name not in names and is_place and -len(names) <= int(given) < len(names):
        return names[int(given)]
    if name not in names:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"{parameter} names {name!r}, and the columns{where} are {shown}.")
    return name


def _selected(names: Sequence[str], wanted: Mapping[str, Sequence[Hashable]]) -> dict[str, str]:
    """Return the parameter that names each selected column; raise ValueError if there is none or there are two."""
    found: dict[str, str] = {}

    def select(one: tuple[str, Hashable]) -> None:
        parameter, name = one[0], column_named(names, one[1], one[0])
        if found.setdefault(name, parameter) != parameter:
            raise ValueError(f"{parameter} names {name!r}, which {found[name]} names too; name it in one of them.")

    for parameter, columns in wanted.items():
        if isinstance(columns, str):
            raise TypeError(f"{parameter} must be a sequence of columns; got {columns!r}: write [{columns!r}].")
    _for_all([(parameter, column) for parameter, columns in wanted.items() for column in columns], select)
    return found


def _for_all(items: Iterable[_Item], convert: Callable[[_Item], None]) -> None:
    """Call a function for each item; the messages of all ValueErrors become one, of a line each."""
    problems = []
    for item in items:
        try:
            convert(item)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))


def _kind(series: pd.Series) -> str:
    """Return "number", "text", "date", "empty" if all values are missing, or pandas' word for anything else."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
        return "empty" if series.dtype.kind == "f" and np.isnan(series.to_numpy()).all() else "number"
    if series.isna().all():
        return "empty"
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object)
    found: str = pd.api.types.infer_dtype(series, skipna=True)
    return _KINDS.get(found, found)


def _typed(name: str, series: pd.Series, parameter: str) -> Column:
    """Return the column with its type and categories; raise ValueError if it has none that is read."""
    kind, what = _kind(series), f"column {name!r}"
    if kind == "empty":
        raise ValueError(f"{what} has no values; name it in drop.")
    if kind not in ("number", "text", "date"):
        raise ValueError(
            f"{what} holds {kind} values such as {_shown(series, series.notna())}; convert them to numbers or text, or "
            "name it in drop."
        )
    is_category = parameter == "categorical" or isinstance(series.dtype, pd.CategoricalDtype)
    if kind == "number" and not is_category:
        if parameter == "dates":
            raise ValueError(f"dates names {name!r}, which holds numbers, not dates.")
        return Column(name, kind)
    distinct = series.drop_duplicates().dropna().tolist()
    if parameter == "dates":
        return Column(name, "date", layout=_date_layout(series, distinct, name) if kind == "text" else "")
    if kind == "date":
        raise ValueError(
            f"{what} holds dates; name it in dates, which makes days since 1970-01-01 of them, or in drop."
        )
    most = _MOST if is_category else max(_FEW, min(_MANY, _SHARE * len(series)))
    if len(distinct) > most:
        raise ValueError(
            f"{what} holds {'' if is_category else 'text of '}{len(distinct)} different values, such as "
            f"{', '.join(map(repr, unlike_numbers(series)[:3]))}; name it in drop"
            + ("." if is_category else " or categorical, in dates if they are dates, or convert it to numbers.")
        )
    if kind == "text":
        if not is_category and any("," in text for text in distinct) and all(map(_COMMAS.fullmatch, distinct)):
            comma = series.isin([text for text in distinct if "," in text])
            raise ValueError(
                f"{what} holds numbers with a comma, such as {_shown(series, comma)}; read them as numbers (decimal "
                "commas by the option decimal, of the command line as of pandas), or name it in categorical or drop."
            )
        return Column(name, kind, categories=tuple(sorted(distinct)))
    return Column(name, "codes", categories=tuple(sorted({float(value) for value in distinct})))


def _median(values: FloatArray, weights: FloatArray | None) -> float:
    """Return the median of values (n,) that count as often as their weights (n,) say."""
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    at = [np.searchsorted(total, total[-1] / 2, side=side) for side in ("left", "right")]
    return float(values[order][at].mean())


def _positions(labels: Any, missing: npt.NDArray[np.bool_], categories: Sequence[Any]) -> FloatArray:
    """Return the positions (n,) of labels among the categories: -1 for unknown ones, NaN for missing ones."""
    kind = object if isinstance(categories[0], str) else np.float64
    positions = pd.Index(categories, dtype=kind).get_indexer(pd.Index(labels, dtype=kind))
    return np.where(missing, np.nan, positions)


def unlike_numbers(series: pd.Series) -> list[Any]:
    """Return the distinct values, first those that are no numbers: they tell why a column was not read as numbers."""
    distinct = series.drop_duplicates().dropna()
    unlike = np.isnan(_as_numbers(distinct))
    return [*distinct[unlike], *distinct[~unlike]]


def _as_numbers(series: pd.Series) -> FloatArray:
    """Return the numbers (n,) that texts are, NaN for other text."""
    return np.asarray(pd.to_numeric(series.astype(object), errors="coerce"), dtype=np.float64)


def _date_layout(series: pd.Series, texts: Sequence[str], name: str) -> str:
    """Return the one layout by which all texts of a column are dates; raise ValueError if there is none, or are two."""
    dates = {layout: [_moment(text, layout) is not None for text in texts] for layout in (_ISO, *_LAYOUTS)}
    layouts = [layout for layout in dates if all(dates[layout])]
    if layouts[:1] == [_ISO] or len(layouts) == 1:
        return layouts[0]
    if layouts:
        why = f"holds dates such as {texts[0]!r}, which can be read with the day or the month first"
    else:
        most = max(dates, key=lambda layout: sum(dates[layout]))
        odd = series.isin([text for text, is_date in zip(texts, dates[most], strict=True) if not is_date])
        others = f"; others are, such as {texts[dates[most].index(True)]!r}" if any(dates[most]) else ""
        why = f"has {_shown(series, odd)}, no date with a year of four digits{others}"
    raise ValueError(f"dates names {name!r}, which {why}; write dates as {_ISO}.")


def _moment(value: Any, layout: str) -> Any:
    """Return a date, or a text of the layout, without its time zone; None if it is none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if layout == _ISO else datetime.strptime(value, layout)
        except ValueError:
            return None
    is_aware = getattr(value, "tzinfo", None) is not None
    return value.astimezone(UTC).replace(tzinfo=None) if is_aware else value


def _days(series: pd.Series, layout: str, name: str) -> FloatArray:
    """Return a column of dates as days since 1970-01-01 (n,), the same for any unit, NaN where missing."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "M":
        moments = series.to_numpy()
    else:
        missing = series.isna().to_numpy()
        found = [None if gone else _moment(value, layout) for value, gone in zip(series, missing, strict=True)]
        bad = np.array([value is None for value in found]) & ~missing
        if bad.any():
            raise ValueError(
                f"column {name!r} must hold dates of the layout {layout}, as in the fit; got {_shown(series, bad)}."
            )
        moments = np.array(found, dtype="datetime64[us]")
    whole = moments.astype("datetime64[D]")
    days = np.where(np.isnat(moments), np.nan, whole.astype(np.int64))
    return np.asarray(days + (moments - whole) / np.timedelta64(1, "D"))


def _plain(value: Any) -> str:
    """Return a value as text: text as it is, whole numbers without a fraction."""
    item = value.item() if isinstance(value, np.generic) else value
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def some_of(items: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    """Return a few items of a list, and how many others there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return f"{separator.join(items[:most])}{more}"


def place(series: pd.Series, mask: npt.ArrayLike) -> str:
    """Return where the entries of a mask are: the labels of the first ones in the index, named as the index is."""
    labels = series.index[np.flatnonzero(np.asarray(mask))]
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{series.index.name or 'row'}{'s' * (len(labels) > 1)} {', '.join(map(str, labels[:3]))}{more}"


def _shown(series: pd.Series, mask: npt.ArrayLike) -> str:
    """Return the first entry of a mask, and where it is."""
    value = series[np.asarray(mask)].iloc[0]
    return f"{value.item() if isinstance(value, np.generic) else value!r} at {place(series, mask)}"
