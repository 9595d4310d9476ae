"""Notes: what is remarkable about a run, as values that are collected in their thread, or given as warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# The collectors of the current thread or task, the innermost last: each has kinds, none for all, and its notes.
_COLLECTORS: ContextVar[tuple[tuple[tuple[str, ...], list[Note]], ...]] = ContextVar("collectors", default=())


class Note(UserWarning):
    """A warning of this package, whose kind tells what it is about.

    Parameters
    ----------
    kind : str
        Of a training "few rows", "stopped" or "poor fit"; of a prior "decay" or "no biases"; of the data of a posterior
        "far from zero"; of a run "prior of noise", "step size", "interrupted", "not finite", "warm-up" or "fitted
        noise"; of predictions and diagnostics "too good", "unreliable", "offset" or "too short"; of an estimator
        "verdict", or one of its training and runs.
    text : str
        The warning.

    Examples
    --------
    Python's `warnings.catch_warnings` changes the filters of the whole process; notes are collected in one thread:

    >>> import numpy as np
    >>> import patrac_native as pn
    >>> net = pn.Network([np.ones((3, 1)), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    >>> with pn.Note.collect("no biases") as notes:
    ...     prior = pn.TraceClassPrior.fit(net, alpha=2.0)
    >>> [note.kind for note in notes]
    ['no biases']
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[1])

    def give(self, stacklevel: int = 1) -> None:
        """Append the note to the innermost collector of its kind or, without one, warn.

        Parameters
        ----------
        stacklevel : int
            As for `warnings.warn`: 1, the default, is the line of the call.
        """
        for kinds, notes in reversed(_COLLECTORS.get()):
            if not kinds or self.kind in kinds:
                notes.append(self)
                return
        warnings.warn(self, stacklevel=stacklevel + 1)

    @staticmethod
    @contextmanager
    def collect(*kinds: str) -> Iterator[list[Note]]:
        """Collect notes in a list, in place of warnings; those of other threads and tasks are not affected.

        Parameters
        ----------
        *kinds : str
            The kinds to collect, by default all.

        Yields
        ------
        list of Note
            In the order in which they are given.
        """
        notes: list[Note] = []
        token = _COLLECTORS.set((*_COLLECTORS.get(), (kinds, notes)))
        try:
            yield notes
        finally:
            _COLLECTORS.reset(token)
