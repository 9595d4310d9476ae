"""Tables of effective draws: medians and quartiles over data seeds, ratios for the same seed, requirements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ess_problems import PAPER_RATE, REQUIRED
from ess_sides import JAX, NUTS
from harness import Table, verdict

from patrac_native.studies.tables import number, plural

FEW = 100  # values from fewer effective draws are marked
MEASURES = {
    "geyer": "ESS/s",
    "paper": "paper's/s",
    "bulk": "bulk/s",
    "conditional": "cond. mean/s",
    "probabilities": "probab./s",
}
Seeds = Sequence[Mapping[str, Any]]


def over_seeds(seeds: Seeds, side: str, *path: str) -> list[float]:
    """Return one value of one side for each seed."""
    values = []
    for found in seeds:
        value: Any = found["sides"][side]
        for name in path:
            value = value[name]
        values.append(float(value))
    return values


def ratios(seeds: Seeds, side: str) -> list[float]:
    """Return the ratio of `kernel="auto"` to a side in effective draws a second for each seed.

    The ratio is NaN if the side's chain is stuck, which favours the side; a stuck chain of "auto" is not left out.
    """
    return [
        rate(found["sides"][found["auto"]]) / rate(found["sides"][side])
        if not found["sides"][side]["stuck"] or side == found["auto"]
        else float("nan")
        for found in seeds
    ]


def rate(of_side: Mapping[str, Any]) -> float:
    """Return effective draws a second, 0 for a chain that never moved."""
    return float(np.nan_to_num(of_side["per_second"]["geyer"]))


def quartiles(values: Sequence[float]) -> str:
    """Return lower and upper quartile as text."""
    low, high = np.nanquantile(values, [0.25, 0.75]) if np.isfinite(values).any() else (np.nan, np.nan)
    return f"{number(float(low))}-{number(float(high))}"


def median(values: Sequence[float]) -> float:
    """Return the median of the finite values; NaN if there are none."""
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def progress_line(name: str, found: Mapping[str, Any]) -> str:
    """Return a line with the effective draws a second of all sides of one posterior."""
    rates = ", ".join(f"{side} {number(values['per_second']['geyer'])}" for side, values in found["sides"].items())
    return f"{name} seed {found['seed']}: ESS/s {rates}"


def print_architecture(title: str, seeds: Seeds) -> None:
    """Print a table with a row for each side, with medians over the data seeds."""
    sides = list(seeds[0]["sides"])
    measures = [name for name in MEASURES if name in seeds[0]["sides"][sides[0]]["per_second"]]
    chosen = sorted({found["auto"] for found in seeds})
    print(f"\n{title}: {seeds[0]['dim']} parameters, auto is {', '.join(chosen)}; {plural(len(seeds), 'data seed')}")
    headers = ["", "1000 steps/s", "thin", "per 100k steps", *(MEASURES[name] for name in measures), "quartiles"]
    table = Table([*headers, "draws", "auto / side"], [18, 12, 5, 14, *(12 for _ in measures), 17, 8, 12])
    for side in sides:
        rates = [over_seeds(seeds, side, "per_second", name) for name in measures]
        least = min(over_seeds(seeds, side, "draws"))
        table.row(
            [
                side,
                number(median(over_seeds(seeds, side, "steps_per_second")) / 1000),
                f"{median(over_seeds(seeds, side, 'thin')):g}",
                number(1e5 * median(over_seeds(seeds, side, "per_step", "geyer"))),
                *(number(median(values)) for values in rates),
                quartiles(rates[0]),
                number(least) + ("*" if least < FEW else ""),
                number(median(ratios(seeds, side))),
            ]
        )
    if any(min(over_seeds(seeds, side, "draws")) < FEW for side in sides):
        print(f"* fewer than {FEW} effective draws on the worst seed: an estimate to within tens of percent")
    for side in sides:
        if stuck := sum(found["sides"][side]["stuck"] for found in seeds):
            print(f"{side}: stuck in one place on {plural(stuck, 'data seed')}, left out of the ratios")
    if JAX in sides:
        said = f"JAX: {seeds[0]['target']}; native's speed is {number(speed_ratio(seeds))} times JAX's on pCNL"
        if NUTS in sides:
            gradients = median(over_seeds(seeds, NUTS, "gradients_per_draw"))
            said += f"; a step of NUTS is a gradient, {number(gradients)} of them a draw"
        print(said)


def speed_ratio(seeds: Seeds) -> float:
    """Return the ratio of steps a second of native pCNL to those of the JAX chain."""
    pairs = zip(over_seeds(seeds, "pCNL", "steps_per_second"), over_seeds(seeds, JAX, "steps_per_second"), strict=True)
    return median([one / other for one, other in pairs])


def print_requirements(found: Mapping[str, Seeds]) -> None:
    """Print the ratios of `kernel="auto"` to the peers with their requirements, and to the paper's Table 2."""
    print('\nkernel="auto", effective draws of f a second, median over data seeds of the ratios')
    headers = ["", "/ JAX pCNL", "quartiles", "/ NUTS", "quartiles", "/ the paper's (its ESS, its laptop)"]
    table = Table(headers, [10, 24, 16, 24, 16, 36])
    for name, seeds in found.items():
        row = [name]
        for side, required in zip((JAX, NUTS), REQUIRED.get(name, (None, None)), strict=True):
            known = ratios(seeds, side) if side in seeds[0]["sides"] else []
            row += [verdict(median(known), required), quartiles(known)] if known else ["-", "-"]
        of_paper = median([f["sides"][f["auto"]]["per_second"]["paper"] for f in seeds])
        row.append(number(of_paper / PAPER_RATE[name]) if name in PAPER_RATE else "-")
        table.row(row)
