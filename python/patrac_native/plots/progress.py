"""Progress bars in terminals and notebooks."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

# Shorter evaluations show no bar.
_SECONDS_BEFORE_BAR = 1.0


def is_notebook() -> bool:
    """Return whether the code runs in a kernel of Jupyter, whose standard error is no terminal but shows bars."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def shows_progress(progress: bool | None) -> bool:
    """Return whether to show a bar.

    Parameters
    ----------
    progress : bool or None
        The answer; None for yes in terminals and notebooks only. Without standard error there is no bar.
    """
    if sys.stderr is None:  # pythonw and services
        return False
    return sys.stderr.isatty() or is_notebook() if progress is None else bool(progress)


def evaluation_bar(progress: bool | None, **arguments: Any) -> Any:
    """Return a bar for an evaluation, which appears once it has taken a second and is erased at its end.

    Parameters
    ----------
    progress : bool or None
        As for `shows_progress`.
    **arguments
        Those of `tqdm.tqdm`.
    """
    return progress_bar(disable=not shows_progress(progress), leave=False, delay=_SECONDS_BEFORE_BAR, **arguments)


def progress_bar(**arguments: Any) -> Any:
    """Return a bar of tqdm: in notebooks a widget or, without ipywidgets, a line of text.

    Parameters
    ----------
    **arguments
        Those of `tqdm.tqdm`.
    """
    if is_notebook() and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm
    else:
        from tqdm.std import tqdm
    return tqdm(**arguments)
