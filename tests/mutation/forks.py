"""A pytest plugin: runs the tests that reach a mutant, for each mutant in a process forked after the collection.

Imports and collection, which take seconds, are done once. A first fork runs all tests without a mutant and records
which mutants each of them reaches and the processor time that it takes. Fixtures and caches are filled in the forks
alone, so no mutant meets what another one left.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import patrac_mutants
import pytest
import torch._dynamo  # noqa: F401 - the time limit of a test would leave its import by the first training half done
from _pytest.runner import runtestprotocol

from patrac_native.engine import _core

BUILD = Path(os.environ["PATRAC_MUTANTS"])
LIMIT = float(os.environ["PATRAC_MUTANTS_SECONDS"])  # of processor time for the tests of one mutant
LONGEST = float(os.environ["PATRAC_MUTANTS_LONGEST"])  # of processor time of a test; longer ones are left out
EACH = int(os.environ["PATRAC_MUTANTS_EACH"])  # cases of a test function
AGAIN = [number for number in os.environ["PATRAC_MUTANTS_ONLY"].split(",") if number]
LIBRARY = ctypes.CDLL(_core.__file__)
CHOSEN = ctypes.c_int.in_dll(LIBRARY, "patrac_mutant")
REACHED = (ctypes.c_ubyte * len(patrac_mutants.reached)).in_dll(LIBRARY, "patrac_mutants_reached")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Record what the tests reach, unless that was done, and run each mutant that has no result yet."""
    mutants = json.loads((BUILD / "mutants.json").read_text())
    items = {item.nodeid: item for item in _spaced(session.items)}
    at_import = _reached_now()
    records = BUILD / "reached.json"
    known = json.loads(records.read_text()) if records.exists() else {}
    if missing := [item for name, item in items.items() if name not in known]:
        _in_fork(lambda: _record(missing, known, records), BUILD / "record.log", None)
        known = json.loads(records.read_text())
    tests = {name: one for name, one in known.items() if name in items and one["passed"]}
    results = BUILD / "results.json"
    found: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    sound: set[str] = set()
    kills = Counter(one["test"] for one in found.values())
    random.Random(0).shuffle(mutants)  # so that a run that is stopped has some of each group
    for mutant in mutants:
        number = mutant["number"]
        if str(number) not in AGAIN if AGAIN else str(number) in found:
            continue
        chosen = [name for name, one in tests.items() if number in one["reached"]]
        if in_module := not chosen and number in at_import:  # what tests of its file use
            others = {m["number"] for m in mutants if m["file"] == mutant["file"]}
            chosen = [name for name, one in tests.items() if others & set(one["reached"])]
        stem = Path(mutant["file"]).stem
        # The likeliest to find it, per second, come first.
        chosen.sort(key=lambda name: (0.05 + kills[name] + (stem in name) / 2) / (0.05 + tests[name]["seconds"]))
        chosen.reverse()
        result = _result(number, [items[name] for name in chosen], tests, in_module)
        while result["test"] and result["test"] not in sound:  # does it pass without a mutant, by itself?
            if not _result(0, [items[result["test"]]], tests, False)["test"]:
                sound.add(result["test"])
                break
            chosen.remove(result["test"])
            del tests[result["test"]]
            result = _result(number, [items[name] for name in chosen], tests, in_module)
        kills[result["test"]] += bool(result["test"])
        found[str(number)] = result
        results.write_text(json.dumps(found, indent=1))
        place = f"{mutant['file']}:{mutant['line']}"
        print(f"{number:4} {result['status']:11} {result['seconds']:6.1f} s {place} {result['test']}", flush=True)
    return True


def _spaced(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return at most EACH cases of each test function, evenly spaced; all of them if it is 0."""
    of_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        of_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [one for cases in of_function.values() for one in cases[:: max(1, len(cases) // EACH) if EACH else 1]]


def _result(number: int, chosen: list[pytest.Item], tests: dict[str, Any], in_module: bool) -> dict[str, Any]:
    """Run a mutant's tests until one fails, within the limit; `in_module` where the mutant acts at import."""
    within: list[pytest.Item] = []
    total = 0.0
    for item in chosen:
        if not within or total + tests[item.nodeid]["seconds"] <= LIMIT:
            within.append(item)
            total += tests[item.nodeid]["seconds"]
    log, place = BUILD / "logs" / f"{number}.log", BUILD / "test_that_runs"
    log.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)

    def run() -> int:
        os.environ["PATRAC_MUTANT"] = str(number)
        if in_module:
            names = [item.nodeid for item in within]
            os.execv(sys.executable, [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", *names])
        patrac_mutants.chosen = CHOSEN.value = number
        return _run(within, tests, place)

    start = time.perf_counter()
    # Wall time is for a deadlock alone: the machine may have other work.
    code = _in_fork(run, log, 900.0 + 8.0 * total) if within else 0
    status = {0: "survived", 1: "found", -signal.SIGPROF: "hangs", _TOO_LONG: "hangs"}.get(code, "crashes")
    return {
        "status": status if within else "not reached",
        "test": place.read_text() if place.exists() else "",
        "tests": len(within),
        "left_out": len(chosen) - len(within),
        "seconds": round(time.perf_counter() - start, 1),
    }


def _reached_now() -> set[int]:
    """Return the mutants reached since the last call."""
    now = {n for n in range(len(REACHED)) if REACHED[n] or patrac_mutants.reached[n]}
    ctypes.memset(REACHED, 0, len(REACHED))
    patrac_mutants.reached[:] = bytes(len(REACHED))
    return now


def _used() -> float:
    """Return the processor time of this process and of the children that ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _record(items: list[pytest.Item], records: dict[str, Any], file: Path) -> int:
    def end(*_: object) -> None:
        raise TimeoutError("this test is too long to run for each mutant")

    signal.signal(signal.SIGPROF, end)
    for item, following in zip(items, [*items[1:], None], strict=True):
        start = _used()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        reports = runtestprotocol(item, nextitem=following, log=False)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        seconds, passed = round(_used() - start, 3), all(report.passed for report in reports)
        print(item.nodeid, passed, seconds, *(report.longreprtext for report in reports if report.failed), flush=True)
        records[item.nodeid] = {"seconds": seconds, "passed": passed, "reached": sorted(_reached_now())}
        if len(records) % 50 == 0:
            file.write_text(json.dumps(records))
    file.write_text(json.dumps(records))
    return 0


def _run(items: list[pytest.Item], tests: dict[str, Any], place: Path) -> int:
    """Run tests until one fails; one that takes far longer than it did without the mutant is ended by a signal."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        place.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, 20.0 + 8.0 * tests[item.nodeid]["seconds"])
        reports = runtestprotocol(item, nextitem=following, log=False)
        if failed := [report.longreprtext for report in reports if report.failed]:
            print(*failed)
            return 1
    place.unlink()
    return 0


_TOO_LONG = -1000


def _in_fork(work: Callable[[], int], log: Path, seconds: float | None) -> int:
    """Return the exit code of `work` in a fork, or the negative number of the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setpgid(0, 0)
            with log.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            if seconds is not None:  # a changed size must not take all memory
                resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            code = work()
            sys.stdout.flush()
        finally:
            os._exit(code)
    end = time.monotonic() + (seconds or 1e9)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return _TOO_LONG
