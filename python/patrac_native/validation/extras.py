"""Optional dependencies: the import of a library that a bridge needs, or one line that names the extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(module: str, extra: str, method: str) -> Any:
    """Import a module of an optional dependency."""
    library = module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != library:
            raise  # the library is there, and something that it needs is not
        raise ImportError(
            f"{method} needs {library}, which is not installed: pip install 'patrac_native[{extra}]'"
        ) from error
