"""What the columns of a table are for: the target, what is left out, codes, dates and identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from patrac_native.tabular.fit_settings import FitSettings
from patrac_native.tabular.tables import find_column

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
            If there is no such column, or one is named for two purposes that exclude each other.
        """
        target = find_column(frame, settings.target)
        options = {
            "--drop": settings.drop,
            "--id": settings.ids,
            "--date": settings.dates,
            "--categorical": settings.categorical,
            "--exposure": [] if settings.exposure is None else [settings.exposure],
        }
        found = {
            option: tuple(find_column(frame, column, option) for column in given) for option, given in options.items()
        }
        used = {target: "--target"}
        for option, names in found.items():
            for name in dict.fromkeys(names):
                if name in used:
                    raise ValueError(f"{option} names {name!r}, which {used[name]} names too; name it in one of them.")
                used[name] = option
        exposure = next(iter(found["--exposure"]), None)
        return cls(target, found["--drop"], found["--categorical"], found["--id"], found["--date"], exposure)
