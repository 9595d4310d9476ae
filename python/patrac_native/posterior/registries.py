"""The comparison of Python's registries with the compiled core; a name missing in either is an error at import."""

from __future__ import annotations

from typing import Any

from patrac_native.engine import _core
from patrac_native.kernels import KERNELS
from patrac_native.likelihoods import LIKELIHOODS
from patrac_native.network.activations import ACTIVATIONS


def check_registries() -> None:
    """Raise ImportError unless Python and the compiled core have the same activations, likelihoods and kernels."""
    own = {name: one for name, one in LIKELIHOODS.items() if one.core_name is None}
    tables: dict[str, tuple[dict[str, Any], list[str]]] = {
        "activation": (ACTIVATIONS, _core.activations()),
        "likelihood": (own, _core.likelihoods()),
        "kernel": (KERNELS, _core.kernels()),
    }
    problems = []
    for kind, (registered, compiled) in tables.items():
        if missing := sorted(set(compiled) - set(registered)):
            problems.append(f"the core's {kind} {', '.join(missing)} is in no registry of Python")
        if unknown := sorted(set(registered) - set(compiled)):
            problems.append(f"the {kind} {', '.join(unknown)} is unknown to the core")
    if problems:
        raise ImportError(f"patrac_native and its compiled core do not belong together: {'; '.join(problems)}.")
