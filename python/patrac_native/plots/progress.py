"""Progress bars in terminals and notebooks."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any


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
