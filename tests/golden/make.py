"""Make the golden digests anew: python tests/golden/make.py --code COMMIT [--only TEXT] [--note TEXT].

Runs the package that Python finds, so PYTHONPATH says of which code the draws are pinned. With --only, cases whose name
contains the text are made and the others stay as they are, but cases without digests are always made; each note is kept
with the cases that it is about.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import golden_runs
from golden_cases import CASES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--code", required=True, metavar="COMMIT", help="commit whose code is installed")
    parser.add_argument("--only", default="", metavar="TEXT", help="make only cases whose name contains it")
    parser.add_argument("--note", default="", help="why they are made anew")
    args = parser.parse_args()
    stored: dict[str, Any] = json.loads(golden_runs.FILE.read_text()) if golden_runs.FILE.exists() and args.only else {}
    made = [*stored.get("made", []), {"code": args.code, "cases": args.only or "all", "note": args.note}]
    made[-1] |= machine.about()
    cases: dict[str, Any] = {}
    clock = time.perf_counter()
    for name, case in CASES.items():
        if args.only in name or not stored.get("cases", {}).get(name):
            cases[name] = {level: golden_runs.digests(case, level) for level in golden_runs.levels(case)}
        else:
            cases[name] = stored["cases"][name]
    golden_runs.FILE.write_text(as_text(made, {}, cases))
    runs = sum(len(levels) for levels in cases.values())
    print(f"{len(cases)} cases, {runs} runs, {time.perf_counter() - clock:.0f} s: {golden_runs.FILE}")


def as_text(made: list[dict[str, str]], taken_out: dict[str, str], cases: dict[str, Any]) -> str:
    """JSON with a line for each run, so that a comparison of two versions names the runs that differ.

    `taken_out` says why cases have no digests: their draws changed where none of the family's processors was at hand.
    """
    entries = []
    for name, levels in cases.items():
        runs = ",\n".join(f"   {json.dumps(level)}: {json.dumps(of)}" for level, of in levels.items())
        entries.append(f"  {json.dumps(name)}: {{\n{runs}\n  }}" if levels else f"  {json.dumps(name)}: {{}}")
    head = f' "made": {json.dumps(made, indent=1)},\n "taken_out": {json.dumps(taken_out, indent=1)},\n'
    return f'{{\n{head} "cases": {{\n' + ",\n".join(entries) + "\n }\n}\n"


if __name__ == "__main__":
    main()
