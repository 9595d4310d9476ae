"""The comparison of Python's registries with the compiled core; a name missing in either is an error at import."""

from __future__ import annotations

from collections.abc import Collection

from patrac_native.engine import _core
from patrac_native.kernels import KERNELS
from patrac_native.likelihoods import LIKELIHOODS
from patrac_native.network.activations import ACTIVATIONS


def check_registries() -> None:
    """Raise ImportError unless Python and the compiled core have the same activations, likelihoods and kernels."""
    problems = [
        *_differences("activation", ACTIVATIONS, _core.activations()),
        *_differences("likelihood", LIKELIHOODS, _core.likelihoods()),
        *_differences("kernel", KERNELS, _core.kernels()),
    ]
    if problems:
        raise ImportError(f"patrac_native and its compiled core do not belong together: {'; '.join(problems)}.")


def _differences(kind: str, registered: Collection[str], compiled: Collection[str]) -> list[str]:
    """Return a message for the names that Python lacks, and one for those that the core lacks."""
    only_compiled = sorted(set(compiled) - set(registered))
    only_registered = sorted(set(registered) - set(compiled))
    found = []
    if only_compiled:
        found.append(f"the core's {kind} {', '.join(only_compiled)} is in no registry of Python")
    if only_registered:
        found.append(f"the {kind} {', '.join(only_registered)} is unknown to the core")
    return found
