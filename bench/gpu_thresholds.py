"""From how many chains, or rows of one chain, a device takes less time than the CPU of the same machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cases import Case


@dataclass(frozen=True)
class Threshold:
    """Microseconds a step, of all chains together, on either side by count.

    Attributes
    ----------
    network, architecture : str
    counted : "chains" or "rows"
    counts : sequence of int
        Ascending.
    device, cpu : sequence of float
        As many as counts.
    """

    network: str
    architecture: str
    counted: str
    counts: Sequence[int]
    device: Sequence[float]
    cpu: Sequence[float]

    @classmethod
    def of(cls, case: Case, counted: str, found: Sequence[tuple[int, float, float]]) -> Threshold:
        """Of (count, device, cpu) found one after the other; of rows the case is any."""
        counts, device, cpu = zip(*found, strict=True)
        rows = "" if counted == "rows" else f", n={case.key.rows}"
        return cls(case.key.network + rows, case.key.architecture, counted, counts, device, cpu)

    @property
    def first(self) -> int | None:
        """The count from which on the device was faster at every one; None where it was not at the largest.

        Examples
        --------
        >>> Threshold("", "", "chains", [1, 32, 1024], [9.0, 9.0, 9.0], [3.0, 10.0, 99.0]).first
        32
        >>> Threshold("", "", "chains", [1, 32, 1024], [2.0, 9.0, 9.0], [3.0, 8.0, 99.0]).first
        1024
        >>> Threshold("", "", "chains", [1, 32], [2.0, 9.0], [3.0, 3.0]).first is None
        True
        """
        slower = [count for count, device, cpu in zip(self.counts, self.device, self.cpu, strict=True) if device >= cpu]
        return next((count for count in self.counts if not slower or count > slower[-1]), None)

    def row(self) -> str:
        """A row of `TABLE`.

        Examples
        --------
        >>> print(Threshold("1-50-1, n=9", "Full", "chains", [1, 32], [9.0, 9.0], [3.0, 10.0]).row())
        | 1-50-1, n=9 | Full | 32 chains | 1, 32 |
        >>> print(Threshold("3-5-1", "Out(4)", "rows", [1000], [9.0], [3.0]).row())
        | 3-5-1 | Out(4) | no count of rows | 1,000 |
        """
        first = f"no count of {self.counted}" if self.first is None else f"{self.first:,} {self.counted}"
        measured = ", ".join(f"{count:,}" for count in self.counts)
        return f"| {self.network} | {self.architecture} | {first} | {measured} |"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return asdict(self) | {"first": self.first}


TABLE = "| network | architecture | faster than the CPU from | measured at |\n|---|---|---|---|"
