"""The settings of a fit to a table, and their checks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from patrac_native.fit.model_settings import CHAINS, DRAWS_OF_CHAIN
from patrac_native.fit.noise_settings import NoiseSettings
from patrac_native.fit.table_text import check_readable
from patrac_native.validation.output import check_folder, check_replaceable, check_room

REPORT, SUMMARY, DRAWS, PREPROCESSING = "report.html", "summary.json", "draws.npz", "preprocessing.json"
# Room for report, summary and preprocessing; reports take about half of it.
_REPORT_BYTES = 2 * 2**20


@dataclass(frozen=True)
class FitSettings(NoiseSettings):
    """The settings of `fit_table`, beside those of `NoiseSettings`; messages name a setting by its option.

    Attributes
    ----------
    data : str
        Path of the table, which may be a pipe; "-" is standard input.
    target : str
        The column to predict, by its name or by its number from 0.
    task : {"regression", "classification"}, optional
        By default the target's values decide.
    header : bool, optional
        Whether the first line holds the names of the columns. By default it must, and a first line that looks like
        data is an error.
    separator : str, optional
        The separator of fields; by default it is found from the first lines.
    drop, categorical : sequence of str
        Columns to leave out, and numeric columns that hold codes; default none.
    ids : sequence of str
        Columns that are no inputs and stand beside the predictions; default none.
    dates : sequence of str
        Columns of dates, which become days; default none.
    impute : {"mean", "median"}, optional
        How missing values are imputed; by default they are an error.
    test_fraction : float
        Share of the rows that are held out, in [0, 1); default 0.3. With 0 all rows are used for the fit, which is then
        scored by leave-one-out predictions.
    out : str
        Folder of the results; default "patrac-fit".
    overwrite : bool
        Whether the results of an earlier run may be replaced; default False.
    """

    data: str
    target: str
    task: str | None = None
    header: bool | None = None
    separator: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    ids: Sequence[str] = ()
    dates: Sequence[str] = ()
    impute: str | None = None
    test_fraction: float = 0.3
    out: str = "patrac-fit"
    overwrite: bool = False

    nothing_done: ClassVar[str] = "nothing was written"

    def option(self, name: str, value: Any = None) -> str:
        """Return the option of a setting, with a value if there is one."""
        option = f"--{name.replace('_', '-')}"
        return option if value is None else f"{option} {value}"

    @property
    def leaves_one_out(self) -> bool:
        """Whether no rows are held out, so that the fit is scored by leave-one-out predictions."""
        return self.test_fraction == 0

    @property
    def why_left_out(self) -> str:
        """Which option makes the fit be scored by leave-one-out predictions, in words."""
        return f" with {self.option('test_fraction', 0)}"

    def check(self) -> None:
        """Check everything that does not need the table, because a fit takes minutes.

        Raises
        ------
        ValueError
            If a setting is outside its range.
        OSError
            If there is no such table, the folder of the results cannot be written, or it holds results that may not be
            replaced.
        """
        if not 0 <= self.test_fraction < 1:
            raise ValueError(f"--test-fraction must be at least 0 and below 1; got {self.test_fraction}.")
        self.check_noise()
        if self.task is not None:
            self.check_task(self.task)
        self.check_model()
        check_readable(self.data, "DATA")
        check_folder(self.out, "--out")
        existing = [
            name for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING) if os.path.exists(os.path.join(self.out, name))
        ]
        if existing and not self.overwrite:
            raise FileExistsError(
                f"{self.out} holds the results of an earlier run ({', '.join(existing)}); pass --overwrite or another "
                "--out."
            )
        for name in existing:
            check_replaceable(os.path.join(self.out, name))

    def check_room(self, n_inputs: int, n_outputs: int) -> None:
        """Raise OSError if the disk has no room for the draws of all parameters and the report.

        Parameters
        ----------
        n_inputs, n_outputs : int
            Of the network.
        """
        sizes = [n_inputs, *self.hidden, n_outputs]
        parameters = sum((wide + 1) * width for wide, width in pairwise(sizes))
        several = (self.networks or 1) > 1
        chains = (self.networks or 1) * (self.chains or CHAINS[several])
        draws = self.draws or DRAWS_OF_CHAIN[several]
        all_parameters = self.architecture == "full" or (self.architecture == "auto" and self.k is None)
        stored = parameters if all_parameters else 1
        of_draw = stored * (4 if self.dtype == "float32" else 8)
        less = (
            f"store less than {chains} chains of {draws} draws of {stored} parameters (--chains, --draws"
            f"{', --hidden' if all_parameters else ''}{', --networks' if several else ''})"
        )
        check_room(self.out, chains * draws * of_draw + _REPORT_BYTES, "--out", less)
