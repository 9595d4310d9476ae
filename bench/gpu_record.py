"""The tables of a record that `gpu.py` writes, of which `page_tables.py` makes those of a page."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from typing import Any

from patrac_native.studies.tables import number

OF_COLD_STARTS = [
    "architecture",
    "chains",
    "side",
    "warm-up",
    "stable",
    "seconds",
    "min. ESS of f",
    "max. R-hat",
    "effective draws/s",
]


def fastest(jax: dict[str, Any]) -> tuple[str | None, float | None]:
    """Return the fastest of JAX's sides and its median; None of none.

    Examples
    --------
    >>> fastest({"plain": {"microseconds": [3.0]}, "by hand": {"microseconds": [1.0, 2.0, 9.0]}}), fastest({})
    (('by hand', 2.0), (None, None))
    """
    medians = {peer: statistics.median(timed["microseconds"]) for peer, timed in jax.items()}
    best = min(medians, key=medians.__getitem__, default=None)
    return best, None if best is None else medians[best]


def entries(results: dict[str, Any], machine: str) -> list[dict[str, Any]]:
    """Return the results as the tables of a record, of which `page_tables.py` makes those of a page."""
    about = {"machine": machine, "commit": None, "date": time.strftime("%Y-%m-%d"), "command": shlex.join(sys.argv)}
    small, large = results["small"], results["large"]
    counts = sorted({int(chains) for cases in small.values() for chains in cases})
    of_jax = [chains for chains in counts if any("jax" in cases.get(chains, {}) for cases in small.values())]

    def shown(value: float | None) -> str | None:
        return None if value is None else number(value)

    times = [
        [
            f"`{name}`",
            *(shown(cases.get(chains, {}).get("median")) for chains in counts),
            *(shown(fastest(cases.get(chains, {}).get("jax", {}))[1]) for chains in of_jax),
        ]
        for name, cases in small.items()
    ]
    of_large = [
        [f"`{name}`", shown(case["median"]), shown(fastest(case["jax"])[1]), shown(case["floors"][case["bound"]])]
        for name, case in large.items()
    ]
    of_coarse = [
        [f"{int(rows):,}", number(case["exact"]["median"]), number(case["coarse"]["median"]), f"{case['change']:.1e}"]
        for rows, case in results["coarse"].items()
    ]
    cold = [
        [
            f"`{one['architecture']}`",
            f"{one['chains']:,}",
            one["side"],
            number(one["steps"]),
            {None: "-", True: "yes", False: "no"}[one["stable"]],
            *(number(one[name]) for name in ("seconds", "ess")),
            f"{one['rhat']:.3f}",
            number(one["effective"]),
        ]
        for one in results["cold_starts"]
    ]
    held = [
        [
            one["what"],
            f"at least {one['at least']:g}" if "at least" in one else f"at most {one['at most']:g}",
            number(one["found"]),
            "yes" if one["met"] else "no",
        ]
        for one in results["requirements"]
    ]
    chains = [f"{count:,} chain{'s' * (count > 1)}" for count in counts]
    of_many = ["architecture", *chains, *(f"JAX, {count:,}" for count in of_jax)]
    return [
        {"name": "small", **about, "columns": of_many, "rows": times},
        {"name": "large", **about, "columns": ["architecture", "µs a step", "JAX", "floor"], "rows": of_large},
        {
            "name": "coarse",
            **about,
            "columns": ["rows", "exact, µs a step", "coarse", "change of g"],
            "rows": of_coarse,
        },
        {"name": "cold starts", **about, "columns": OF_COLD_STARTS, "rows": cold},
        {"name": "requirements", **about, "columns": ["what", "required", "found", "met"], "rows": held},
    ]
