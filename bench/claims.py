"""The measured claims of README.md and of pages: where each stands, what measures it, and a quick form that checks it.

`python bench/claims.py` lists them with the commands that measure them in full; `--quick` measures a small form of
each, prints stated and measured figures, and exits with status 1 if one is outside its tolerance. That takes about
fifteen minutes of a quiet core, and reads data sets from the folder that PATRAC_DATA names. Stated figures are read
from the pages: a claim is their sentence, with `{}` in place of each figure.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
MINUS = "\N{MINUS SIGN}"
FIGURE = rf"([-{MINUS}]?\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS)})"


@dataclass(frozen=True)
class Tolerance:
    """The measured figures that agree with a stated one: from `low` to `high`, and why so many."""

    low: Callable[[float], float]
    high: Callable[[float], float]
    reason: str


def same() -> Tolerance:
    """Nothing is left to chance."""
    return Tolerance(lambda x: x, lambda x: x, "counted")


def within(distance: float, reason: str) -> Tolerance:
    """At most this far from the stated figure."""
    return Tolerance(lambda x: x - distance, lambda x: x + distance, f"+-{distance:g}: {reason}")


def at_least(share: float, reason: str) -> Tolerance:
    """At least this share of the stated figure: more does not make the claim false."""
    return Tolerance(lambda x: share * x, lambda x: inf, f"at least {share:g} times: {reason}")


def at_most(factor: float, reason: str) -> Tolerance:
    """At most this multiple of the stated figure: less does not make the claim false."""
    return Tolerance(lambda x: -inf, lambda x: factor * x, f"at most {factor:g} times: {reason}")


@dataclass(frozen=True)
class Claim:
    """A sentence of a page, the command that measures it in full, and its quick form or the reason why it has none."""

    page: str
    text: str
    command: str
    quick: Callable[[ModuleType], Sequence[float]] | None = None  # of the module quick_measures
    tolerance: Tolerance | None = None
    elsewhere: str = ""  # why this machine does not measure it
    figures: Callable[[list[float]], list[float]] = list  # those of the sentence that the quick form measures

    def found(self, page: str) -> re.Match[str]:
        """Return where the sentence stands; ValueError if it does not stand there exactly once."""
        pattern = re.escape(self.text).replace(r"\{\}", FIGURE).replace(r"\ ", r"\s+")
        matches = list(re.finditer(pattern, page))
        if len(matches) != 1:
            raise ValueError(f"{self.page} has {len(matches)} times, in place of once: {self.text}")
        return matches[0]

    def stated(self) -> list[float]:
        """Return the figures of the page that the quick form measures."""
        page = (ROOT / self.page).read_text(encoding="utf-8")
        return self.figures([number(word) for word in self.found(page).groups()])


def number(word: str) -> float:
    """Return a figure of a page as a number.

    Examples
    --------
    >>> number("1,354"), number("-0.912"), number("seven")
    (1354.0, -0.912, 7.0)
    """
    return float(WORDS.index(word)) if word in WORDS else float(word.replace(",", "").replace(MINUS, "-"))


def _step(label: str) -> list[Claim]:
    """The row of an architecture in the table of speed: microseconds are those of one machine, ratios carry over."""
    row = f"| `{label}` | " + "{} | {} | {} | {} |"
    reason = "one processor or level to the next moves the ratio by up to two fifths"
    floor_row = f"Step of `{label}`, " + ("100 rows, 1-50-50-1" if label == "Full" else "the same") + ", µs | {} | {} |"
    return [
        Claim(
            "README.md",
            row,
            "python bench/bench_step.py --repeats 5",
            lambda m: m.step(label)[:2],
            at_least(0.6, reason),
            figures=lambda x: x[2:],
        ),
        Claim(
            "docs/performance.md",
            floor_row,
            "python bench/bench_step.py --repeats 5",
            lambda m: m.step(label)[2:],
            within(0.2, "other work on the core's sibling slows the two unequally"),
            figures=lambda x: x[1:],
        ),
    ]


GPU = "needs an H100"
ONE_SEED = "one data seed, whose ratio varies by a third over seeds (the quartiles of the page), and short chains"
UCI = "python bench/quality/uci.py --data FOLDER --out FILE"
BDE = "python bench/quality/bde_sets.py --data FOLDER --seeds 0 1"

CLAIMS = [
    Claim(
        "README.md",
        "it holds it at {}% of the inputs, the band of `Full` at {}%",
        "python docs/pictures/sine.py",
        lambda m: m.sine_bands(),
        within(5, "a quarter of the draws; ends of bands move by their Monte Carlo error"),
    ),
    Claim(
        "README.md",
        "largest R-hat of f {} to {} on boston, {} on naval",
        UCI,
        lambda m: m.boston_rhat(),
        at_least(1, "shorter chains are further from having met"),
        figures=lambda x: x[:1],
    ),
    Claim(
        "README.md",
        "negative log-likelihood {} for both)",
        "python bench/quality/digits.py --out FILE",
        lambda m: m.digits(),
        within(0.03, "one of five splits, on which it is between 0.070 and 0.110"),
    ),
    *[
        Claim(
            "README.md",
            "NLL {} here, {} there ({} in its paper), RMSE {} and {}, {} and {} core-seconds",
            f"{BDE} --bde PYTHON",
            lambda m, i=i: m.airfoil()[i : i + 1],
            within(distance, "three standard deviations of five recorded seeds; bde is not run"),
            figures=lambda x, i=i: [x[(0, 3)[i]]],
        )
        for i, distance in enumerate([0.072, 0.0045])
    ],
    Claim(
        "README.md",
        "makes {} times as many effective draws per second on `Full`, {} on `Mix(5)`",
        "python bench/bench_ess.py --seeds 10 --seconds 1.5 --kernels pCNL 'collapsed mGrad'",
        lambda m: [m.effective_draws("Full")[1], m.effective_draws("Mix(5)")[1]],
        at_least(0.4, ONE_SEED),
    ),
    Claim(
        "README.md",
        "NUTS makes {} effective draws per second with it on `Mix(5)`, {} with a plain one in JAX; on `Full` {} and {}",
        "python bench/backend/bench_nuts.py --repeats 5",
        lambda m: [*m.density_in_blackjax("Mix(5)"), *m.density_in_blackjax("Full")],
        at_least(0.4, "two adaptations and runs of 500 draws, in place of five, are noisy"),
        figures=lambda x: [x[0] / x[1], x[2] / x[3]],
    ),
    Claim(
        "README.md",
        "two of its chains take {} times as long a gradient as one",
        "python bench/backend/nutpie_chains.py",
        elsewhere="needs an idle machine of two cores: the clock is that of the wall",
    ),
    Claim(
        "README.md",
        "has the lower mean NLPD on {} of {} UCI sets",
        UCI,
        lambda m: m.below_the_ensemble(),
        at_least(1, "on the three sets that are tried it is lower by at least seven standard errors"),
        figures=lambda x: [x[0] / x[1]],
    ),
    Claim(
        "README.md",
        "of {} public tables `pn.PatracRegressor` and `pn.PatracClassifier` have the lowest mean log loss on {}, these "
        "three on {}",
        "python bench/quality/tables.py --data FOLDER --out FILE --threads 1",
        lambda m: [m.lowest_on_tables()],
        at_least(1, "on the three tables that are tried it is lower by over four standard errors"),
        figures=lambda x: [x[1] / x[0]],
    ),
    Claim(
        "README.md",
        "{} chains of `Full` on the sine problem take a twentieth of the time that the {} cores",
        "python bench/gpu.py --only thresholds",
        elsewhere=GPU,
    ),
    Claim(
        "README.md",
        "beside JAX on the same card a step takes {} to {} times as long",
        "python bench/gpu.py --json FILE",
        elsewhere=GPU,
    ),
    Claim(
        "README.md",
        "in under {} minutes on two cores",
        "patrac demo",
        lambda m: m.demo_core_minutes(),
        at_most(1, "the demo itself, by processor time"),
    ),
    Claim(
        "README.md",
        "index has torch with CUDA packages, {} GB",
        "pip download -d FOLDER torch",
        elsewhere="needs the public index, and the disk",
    ),
    *[
        Claim("README.md", row, "post.dim", lambda m, i=i: m.dimensions()[i : i + 1], same())
        for i, row in enumerate(
            ["| all | {} |", "and all output biases | k = 5: {} |", "nodes | k = 45: {} |", "network | k = 5: {} |"]
        )
    ],
    *[
        claim
        for label in ("Full", "Mix(2)", "Mix(5)", "Sep(2)", "Sep(5)", "Out(12)", "Out(45)")
        for claim in _step(label)
    ],
    *[
        Claim(
            "docs/performance.md",
            f"Epoch of training, {row}, µs | {{}} |  | {{}}, PyTorch | {{}} |",
            "python bench/bench_train.py --repeats 5",
            lambda m, i=i: m.training()[i : i + 1],
            at_least(0.6, "one processor or level to the next moves the ratio by up to two fifths"),
            figures=lambda x: x[2:],
        )
        for i, row in enumerate(["927 rows, 8-50-50-1", "1,257 rows of ten classes, 61-50-50-10"])
    ],
    Claim(
        "docs/performance.md",
        "the lead is {} to {} times on `Mix`, {} to {} on `Sep`",
        "python bench/bench_step.py --repeats 5",
        lambda m: [
            *sorted(m.step(one)[1] for one in ("Mix(2)", "Mix(5)")),
            *sorted(m.step(one)[1] for one in ("Sep(2)", "Sep(5)")),
        ],
        at_least(0.6, "one processor or level to the next moves the ratio by up to two fifths"),
    ),
    Claim(
        "docs/choosing-a-kernel.md",
        "features of an output: {} to {} times an mGrad step at n = 100",
        "python bench/claims.py --quick --only 'mGrad step'",
        lambda m: m.collapsed_steps(),
        within(0.3, "paired ratios of short runs on a core with other work"),
    ),
    *[
        Claim(
            "docs/choosing-a-kernel.md",
            f"| `{label}` | {rates} | {{}} ({{}}-{{}}) | {{}} ({{}}-{{}}) |",
            "python bench/bench_ess.py --seeds 10 --seconds 1.5 --kernels pCNL 'collapsed mGrad'",
            lambda m, label=label: m.effective_draws(label.removesuffix("()")),
            at_least(0.4, ONE_SEED),
            figures=lambda x: [x[-6], x[-3]],
        )
        for label, rates in (("Full()", "{} | {} | {} | {} | {}"), ("Mix(5)", "{} | {} | {} | {} | {}"))
    ],
]


def shown(values: Sequence[float]) -> str:
    """Return figures as text.

    Examples
    --------
    >>> shown([2701.0, 0.4567, 8.68])
    '2701, 0.457, 8.68'
    """
    return ", ".join(f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}" for x in values)


def check(claim: Claim, measures: ModuleType) -> tuple[str, bool]:
    """Measure the quick form of a claim; return the end of its line, and whether it agrees."""
    stated = claim.stated()
    if claim.quick is None or claim.tolerance is None:
        return f"{shown(stated)} | - | not here: {claim.elsewhere}", True
    try:
        measured = claim.quick(measures)
    except (ImportError, FileNotFoundError) as error:
        return f"{shown(stated)} | - | not here: {error}", True
    of = claim.tolerance
    agrees = all(of.low(x) <= found <= of.high(x) for x, found in zip(stated, measured, strict=True))
    return f"{shown(stated)} | {shown(measured)} | {'yes' if agrees else 'NO'} ({of.reason})", agrees


def main(arguments: Sequence[str] | None = None) -> int:
    """List the claims, or check their quick forms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure the small form of each claim")
    parser.add_argument("--only", default="", metavar="TEXT", help="claims whose sentence or page contains this")
    options: Any = parser.parse_args(arguments)
    chosen = [claim for claim in CLAIMS if options.only in f"{claim.page} {claim.text}"]
    if not options.quick:
        for claim in chosen:
            print(f"{claim.page}: {claim.text}\n    {claim.command}" + f"  ({claim.elsewhere})" * bool(claim.elsewhere))
        return 0
    import one_core  # noqa: F401 - pins the process, before the next import starts threads

    # isort: split
    import quick_measures

    print("claim | stated | measured | within")
    agreed = []
    for claim in chosen:
        line, agrees = check(claim, quick_measures)
        agreed.append(agrees)
        print(f"{claim.page}: {claim.text} | {line}", flush=True)
    print(f"{agreed.count(False)} of {len(agreed)} claims are outside their tolerance")
    return int(not all(agreed))


if __name__ == "__main__":
    sys.exit(main())
