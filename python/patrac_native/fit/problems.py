"""Problems of a table, gathered so that one message reports those of all columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType


class Problems(ValueError):
    """Several problems of one table.

    Attributes
    ----------
    problems : list of str
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Attempt(AbstractContextManager["Attempt"]):
    """Notes the ValueError of each block and continues after it.

    Attributes
    ----------
    problems : list of str
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, ValueError):
            return False
        self.problems += error.problems if isinstance(error, Problems) else [str(error)]
        return True


@contextmanager
def collected() -> Iterator[Attempt]:
    """Yield an Attempt, and raise at the end what its blocks raised: the one problem, or all together.

    Raises
    ------
    ValueError
        `Problems`, if there are several.
    """
    attempt = Attempt()
    yield attempt
    if len(attempt.problems) == 1:
        raise ValueError(attempt.problems[0])
    if attempt.problems:
        raise Problems(attempt.problems)
