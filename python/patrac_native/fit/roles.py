"""What the columns of a table are for: the target, what is left out, codes, dates and identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.problems import collected
from patrac_native.fit.tables import find_column

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Roles:
    """Columns of a table by what they are for; names of the table.

    Attributes
    ----------
    target : str
    drop, categorical, ids, dates : tuple of str
    exposure : str or None
    """

    target: str
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    ids: tuple[str, ...]
    dates: tuple[str, ...]
    exposure: str | None

    @classmethod
    def of(cls, frame: pd.DataFrame, settings: FitSettings) -> Roles:
        """Find the columns that the settings name.

        Raises
        ------
        ValueError
            If there is no such column, or one is named for two purposes that exclude each other; all such problems are
            reported together.
        """
        options = {
            "--target": [settings.target],
            "--drop": settings.drop,
            "--id": settings.ids,
            "--date": settings.dates,
            "--categorical": settings.categorical,
            "--exposure": [] if settings.exposure is None else [settings.exposure],
        }
        found: dict[str, list[str]] = {option: [] for option in options}
        used: dict[str, str] = {}
        with collected() as attempt:
            for option, given in options.items():
                for column in given:
                    with attempt:
                        name = find_column(frame, column, option)
                        if used.setdefault(name, option) != option:
                            raise ValueError(
                                f"{option} names {name!r}, which {used[name]} names too; name it in one of them."
                            )
                        found[option].append(name)
        names = {option: tuple(dict.fromkeys(columns)) for option, columns in found.items()}
        return cls(
            names["--target"][0],
            names["--drop"],
            names["--categorical"],
            names["--id"],
            names["--date"],
            next(iter(names["--exposure"]), None),
        )
