"""Change the formulas one at a time and count the changes that no test sees: `python tests/mutation/run.py`.

A copy of the sources in --build holds every mutant behind a switch (sites.py) and is built once, for one level of
instructions. Then each mutant runs the tests that reach it, the likeliest to find it first, until one fails (forks.py).
The digests of tests/golden are left out: they see any change of a draw, but do not say which draw is right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import sites

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "python/patrac_native"
# The formulas of each group, and how many changes of it are made by default.
GROUPS = {
    "csrc/shared": (["csrc/shared/*.[hc]pp"], 75),
    "csrc/cpu/chain": (["csrc/cpu/chain/*.hpp"], 75),
    "diagnostics": ([f"{PACKAGE}/diagnostics/*.py"], 40),
    "draws": ([f"{PACKAGE}/draws/{name}.py" for name in ("distribution", "draws", "draws_mixture", "replicates")], 35),
    "likelihoods": ([f"{PACKAGE}/likelihoods/*.py"], 45),
    "verdict": ([f"{PACKAGE}/verdict/*.py"], 30),
}
# The tests that should see them: those of values, not of pages, processes, builds and faults. Emulated devices share
# the formulas with the CPU that they are compared with, and are left out.
TESTS = """
architectures arviz arviz_functions calibration_findings censored cholesky collapsed collapsed_heteroscedastic
collapsed_narrow counts curvature_metric density diagnostics distribution draws draws_from_array draws_mixture
elementary elliptical_slice exact far_from_zero folds gaussian_prior gradients heteroscedastic input_metric
kernels laplace last_layer leave_one_out likelihoods log_target low_noise mixture moments network noise noise_prior
philox posterior precision prior range_of_numbers rerun_error resume sampled_scales sampled_variance sampling
sklearn_weights store student_scale student_t target until verdict warmup
""".split()

HEADER = """#pragma once
extern "C" {
__attribute__((visibility("default"))) extern int patrac_mutant;
__attribute__((visibility("default"))) extern unsigned char patrac_mutants_reached[COUNT];
}
[[gnu::always_inline]] inline bool mutant_now(int number) {
    patrac_mutants_reached[number] = 1;
    return patrac_mutant == number;
}
constexpr bool mutant_at(int number) {
    if (__builtin_is_constant_evaluated()) return false;
    return mutant_now(number);
}
"""
SWITCH = """#include <cstdlib>
int patrac_mutant = [] {
    const char* chosen = std::getenv("PATRAC_MUTANT");
    return chosen ? std::atoi(chosen) : 0;
}();
unsigned char patrac_mutants_reached[COUNT];
"""
MODULE = """import os

chosen = int(os.environ.get("PATRAC_MUTANT", "0"))
reached = bytearray(COUNT)


def at(number: int) -> bool:
    reached[number] = 1
    return chosen == number
"""


def candidates(seed: int, scale: float) -> list[sites.Mutant]:
    """Return changes drawn at random: a half more of C++ than are asked for, since some will not compile."""
    made: list[sites.Mutant] = []
    for group, (patterns, count) in GROUPS.items():
        choose = random.Random(f"{seed} {group}")
        files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        places = [(path, change) for path in files for change in sites.changes(path, choose)]
        wanted = round(count * scale * (1.6 if group.startswith("csrc") else 1.0))
        for path, change in choose.sample(places, min(wanted, len(places))):
            source = path.read_text(encoding="utf-8")
            line = source.count("\n", 0, change.start) + 1
            name = path.relative_to(ROOT).as_posix()
            before = source[change.start : change.end]
            made.append(
                sites.Mutant(len(made) + 1, name, line, change.start, change.end, change.kind, before, change.after)
            )
    return made


def group_of(mutant: sites.Mutant) -> str:
    """Return the group of a mutant's file."""
    return next(group for group in GROUPS if mutant.file.startswith((group, f"{PACKAGE}/{group}")))


def write_copy(copy: Path, mutants: list[sites.Mutant]) -> None:
    """Write the sources with the mutants behind their switches; a file that stays as it was is not written again."""
    count = str(max((m.number for m in mutants), default=0) + 1)
    wanted = {path.relative_to(ROOT).as_posix() for path in [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("*.*")]}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "python").rglob("*") if path.is_file()}
    texts: dict[str, bytes] = {"csrc/mutants.hpp": HEADER.replace("COUNT", count).encode()}
    texts["csrc/mutants.cpp"] = b""
    texts["python/patrac_mutants.py"] = MODULE.replace("COUNT", count).encode()
    for name in wanted:
        if Path(name).suffix in (".so", ".pyc"):
            continue
        of_file = [m for m in mutants if m.file == name]
        texts[name] = (ROOT / name).read_bytes()
        if of_file:
            texts[name] = sites.rewritten(texts[name].decode(), of_file, name.endswith(".py")).encode()
    texts["csrc/device.cpp"] += SWITCH.replace("COUNT", count).encode()
    for name, text in texts.items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != text:
            path.write_bytes(text)


def build(folder: Path, mutants: list[sites.Mutant], options: list[str]) -> list[sites.Mutant]:
    """Build the copy and return its mutants, less those that do not compile or stand in code for other machines."""
    copy, objects = folder / "copy", folder / "objects"
    write_copy(copy, mutants)
    flags = f"-O1 -DNDEBUG -w -include {copy / 'csrc' / 'mutants.hpp'}"
    configure = ["cmake", "-G", "Ninja", "-S", str(copy), "-B", str(objects), "-DPATRAC_CUDA=OFF", "-DPATRAC_LEVELS=v3"]
    configure += ["-DCMAKE_BUILD_TYPE=Mutants", f"-DCMAKE_CXX_FLAGS_MUTANTS={flags}", *options]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((objects / "compile_commands.json").read_text())
    seen: set[int] = set()
    for one in commands:
        text = re.sub(r" -o \S+", "", one["command"]).replace(" -c ", " -E -P ")
        out = subprocess.run(text, shell=True, cwd=one["directory"], capture_output=True, text=True, check=True).stdout
        seen |= {int(n) for n in re.findall(r"mutant_at\((\d+)\)", out)}
    mutants = [m for m in mutants if not m.file.startswith("csrc") or m.number in seen]
    while True:
        write_copy(copy, mutants)
        made = subprocess.run(["ninja", "-C", str(objects), "-k", "0", "-j", "1"], capture_output=True, text=True)
        places = set(re.findall(rf"^{re.escape(str(copy))}/(\S+?):(\d+):\d+: error", made.stdout, re.MULTILINE))
        (folder / "build.log").write_text(made.stdout)
        if made.returncode == 0:
            break
        kept = [
            m
            for m in mutants
            if not any(m.file == f and m.line <= int(n) <= m.line + m.before.count("\n") for f, n in places)
        ]
        print(f"{len(mutants) - len(kept)} mutants do not compile", flush=True)
        if len(kept) == len(mutants):
            raise RuntimeError(made.stdout[-3000:])
        mutants = kept
    (core,) = objects.glob("_core*")
    shutil.copy(core, copy / PACKAGE / "engine")
    return mutants


def record(folder: Path, kept: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the tables of docs/mutations.md; the reasons of changes that survived before are kept.

    A reason that begins with "the same" says that the change can change no result.
    """
    results = json.loads((folder / "results.json").read_text())
    counts = {group: Counter[str]() for group in GROUPS}
    survivors = []
    reasons = {
        tuple(row[:2]): row[2] for entry in kept["entries"] if entry["name"] == "survivors" for row in entry["rows"]
    }
    for one in json.loads((folder / "mutants.json").read_text()):
        mutant = sites.Mutant(**one)
        if str(mutant.number) not in results:
            continue
        status = results[str(mutant.number)]["status"]
        counts[group_of(mutant)][status] += 1
        if status in ("survived", "not reached"):
            place = f"{mutant.file.removeprefix('python/')}:{mutant.line}"
            before, after = (" ".join(text.split()).replace("|", "\\|") for text in (mutant.before, mutant.after))
            change = f"`{before}` → `{after}`"
            reason = reasons.get((place, change), "")
            survivors.append([place, change, reason])
            counts[group_of(mutant)]["same"] += reason.startswith("the same")
    counts["all"] = sum(counts.values(), Counter())
    rows: list[list[Any]] = []
    for group, count in counts.items():
        missed, ended, same = count["survived"] + count["not reached"], count["crashes"] + count["hangs"], count["same"]
        seen = count["found"] + ended
        if made := seen + missed:
            shares = (f"{100 * seen / of:.1f}%" if of else "" for of in (made, made - same))
            rows.append([group, made, count["found"], ended, missed, same, *shares])
    about = {"machine": f"x86-64, {os.cpu_count()} cores", "commit": _commit(), "date": date.today().isoformat()}
    about["command"] = command
    columns = ["formulas", "made", "found by a test", "crashed or hung", "survived", "of them the same results"]
    columns += ["found", "found of those that can change a result"]
    found = {"name": "found", **about, "columns": columns, "rows": rows}
    missed_ones = {
        "name": "survivors",
        **about,
        "columns": ["place", "change", "why no test sees it"],
        "rows": survivors,
    }
    return {"title": "Changes of formulas that the tests find", "entries": [found, missed_ones]}


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    """Make, build and run the mutants, or go on with those that have no result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the choice of changes")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the default number of changes")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "mutants", help="folder of the copy")
    parser.add_argument("--cmake", nargs="*", default=[], help="further options of CMake, as Dpybind11_DIR=...")
    parser.add_argument("--json", type=Path, help="file of the record, as bench/results/mutations/formulas.json")
    parser.add_argument("--only", default="", help="numbers of mutants to run again, with commas")
    parser.add_argument("--seconds", type=float, default=100.0, help="processor time of the tests of one mutant")
    parser.add_argument("--longest", type=float, default=3.0, help="processor time of a test; longer ones are left out")
    parser.add_argument("--each", type=int, default=0, help="cases of each test function, 0 for all")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="names of test files without test_ and .py")
    args = parser.parse_args()
    folder = args.build.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mutants.json"
    patterns = [pattern for of_group, _ in GROUPS.values() for pattern in of_group]
    sources = hashlib.sha256(b"".join(path.read_bytes() for one in patterns for path in sorted(ROOT.glob(one))))
    choice = {"seed": args.seed, "scale": args.scale, "sources": sources.hexdigest()}
    chosen = folder / "choice.json"
    if file.exists() and json.loads(chosen.read_text()) != choice:
        parser.error(f"--build: {folder} has the changes of another seed, scale or source; give another folder")
    chosen.write_text(json.dumps(choice))
    if not file.exists():
        built = build(folder, candidates(args.seed, args.scale), [f"-{option}" for option in args.cmake])
        kept: list[sites.Mutant] = []
        for group, (_, count) in GROUPS.items():
            kept += [m for m in built if group_of(m) == group][: round(count * args.scale)]
        file.write_text(json.dumps([asdict(m) for m in kept], indent=1))
    paths = [str(folder / "copy" / "python"), str(ROOT / "tests" / "mutation"), str(ROOT / "tests")]
    settings = {"PATRAC_MUTANTS": str(folder), "PATRAC_MUTANTS_ONLY": args.only, "PYTHONPATH": os.pathsep.join(paths)}
    settings |= {
        "OMP_NUM_THREADS": "1",
        "PATRAC_MUTANTS_SECONDS": str(args.seconds),
        "PATRAC_MUTANTS_LONGEST": str(args.longest),
        "PATRAC_MUTANTS_EACH": str(args.each),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    files = [f"tests/test_{name}.py" for name in args.tests]
    options = [
        "-q",
        "-s",
        "-p",
        "forks",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "-m",
        "not slow",
        "-k",
        "not emulated and not cuda",
    ]
    subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, env=os.environ | settings, check=True)
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {"entries": []}
    made = record(folder, kept, shlex.join(["python", "tests/mutation/run.py", *sys.argv[1:]]))
    for entry in made["entries"]:
        for row in [entry["columns"], *entry["rows"]]:
            print(" | ".join(str(cell) for cell in row))
    if args.json:
        args.json.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
