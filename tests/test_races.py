"""The device functions under sanitizers: no race and no memory error, and sanitizers that detect mistakes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Sources whose pointers and indices are in question; what lays models out for them on the host is checked for addresses
# alone, since undefined behaviour makes it the longest to compile.
DEVICE_SOURCES = ("races.cpp", "emulated.cpp")
CASES = 13

# (file below csrc/cuda, text, what takes its place; {} is replaced by an expression that is true for this mistake)
Mistake = tuple[str, str, str]

# Barriers taken away, and warps of how many threads show it.
BARRIERS: dict[str, tuple[Mistake, int]] = {
    # The activations below a layer are read by its gradient and written by the reverse pass that follows.
    "reverse pass": (
        ("tile.hpp", "block.sync();  // the activations below are read no more", "if (!{}) block.sync();"),
        32,
    ),
    # Derivatives of a layer are written by the reverse pass and read by its gradient.
    "derivatives below": (
        ("tile.hpp", "block.sync();  // the derivatives below are there", "if (!{}) block.sync();"),
        32,
    ),
    # A chain's numbers are read by all threads before a draw is kept, and written by one after that. Where a draw of
    # the variances has made the sums of the kept draw before, no sum stands between.
    "numbers of a kept draw": (
        (
            "chain.hpp",
            "block_.sync();  // all threads know by the chain's numbers that there is a draw to keep",
            "if (!{}) block_.sync();",
        ),
        32,
    ),
    # Here the sums of the kept draw do.
    "sums of one warp": (
        (
            "thread_block.hpp",
            "block.sync();  // the sums of the last call have been read",
            "if (!{}) block.sync();",
        ),
        32,
    ),
    "sums of several warps": (
        ("thread_block.hpp", "block.sync();  // the sums of the warps are there", "if (!{}) block.sync();"),
        2,
    ),
}
MEMORY: dict[str, Mistake] = {
    # A warp reads whole groups of rows.
    "rows beyond the last": (
        "wide_inputs.hpp",
        "(n + beyond) * inputs.padded_features",
        "(n + ({} ? 0 : beyond)) * inputs.padded_features",
    ),
    # Four values are read at once, from where a device can.
    "weights where four do not begin": (
        "data_set.cpp",
        "return (count + 3) / 4 * 4;",
        "return {} ? count : (count + 3) / 4 * 4;",
    ),
}
MISTAKES: dict[str, Mistake] = {**{name: mistake for name, (mistake, _) in BARRIERS.items()}, **MEMORY}


def build(folder: Path, command: list[str]) -> None:
    """Compile and link tests/races/races.cpp in `folder`, with all mistakes, each of which a run may choose."""
    shutil.copytree(ROOT / "csrc", folder / "csrc")
    shutil.copytree(ROOT / "tests" / "races", folder / "tests" / "races")
    for name, (file, right, wrong) in MISTAKES.items():
        (path,) = (folder / "csrc" / "cuda").rglob(file)
        text = path.read_text()
        assert text.count(right) == 1, name
        path.write_text(text.replace(right, wrong.format(f'is_chosen_mistake("{name}")')))
    sources = [Path("tests", "races", "races.cpp"), Path("csrc", "device.cpp")]
    for part in ("cuda", "model", "schedule", "shared"):
        sources += sorted(path.relative_to(folder) for path in (folder / "csrc" / part).rglob("*.cpp"))
    sources.sort(key=lambda path: path.name not in DEVICE_SOURCES)  # the longest to compile come first

    def compiled(source: Path) -> subprocess.CompletedProcess[str]:
        arguments = ["-c", str(source), "-o", str(source.with_suffix(".o"))]
        if source.name not in DEVICE_SOURCES:
            arguments.append("-fno-sanitize=undefined")
        environment = {**os.environ, "CCACHE_NOHASHDIR": "1"}  # whose results do not depend on the folder of the run
        return subprocess.run(
            [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environment
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the two that take long side by side
        for done in pool.map(compiled, sources):
            assert done.returncode == 0, done.stderr
    objects = [str(source.with_suffix(".o")) for source in sources]
    linked = subprocess.run(
        [*command, "-o", "races", *objects], cwd=folder, capture_output=True, text=True, check=False
    )
    if "cannot find" in linked.stderr and "san" in linked.stderr:
        (folder / "no-sanitizer").touch()
        return
    assert linked.returncode == 0, linked.stderr


def built(places: Path, command: list[str]) -> Path:
    """Return the program, built once for all tests and workers; skip if the compiler lacks the sanitizer."""
    digest = hashlib.sha256(" ".join(command).encode()).hexdigest()[:16]
    folder = places / f"races-{digest}"
    with open(places / f"races-{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder, command)
            (folder / "built").touch()
    if (folder / "no-sanitizer").exists():
        pytest.skip("the compiler has no such sanitizer")
    return folder / "races"


def run_sanitized(
    folder: Path, *flags: str, sanitizers: str, mistake: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests/races/races.cpp under sanitizers, with one of the mistakes or without."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    # Where there is a ccache, sources that did not change are not compiled again.
    cache = [found] if (found := shutil.which("ccache")) else []
    # Optimising the checks of undefined behaviour takes longer than it saves; threads that spin gain from it.
    level = "-O1" if sanitizers == "thread" else "-O0"
    command = [*cache, compiler, "-std=c++20", level, "-g1", "-ffp-contract=off", "-w", "-pthread", "-Icsrc", *flags]
    command += ["-include", "tests/races/mistakes.hpp", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    # Above the tests' own folders and, unless --basetemp is given, above those of workers that run tests side by side.
    places = next((place for place in folder.parents if re.fullmatch(r"pytest-\d+", place.name)), folder.parent)
    program = built(places, command)
    # The thread sanitizer needs memory where address randomisation may put something else.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    options = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0", "MISTAKE": mistake or ""}
    result = subprocess.run(
        [*fixed, str(program)], capture_output=True, text=True, check=False, env={**os.environ, **options}
    )
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    return result


def run_threads(folder: Path, warp: int, mistake: str | None = None) -> subprocess.CompletedProcess[str]:
    """Under the thread sanitizer, blocks of four threads: one warp, or two of `warp` = 2."""
    return run_sanitized(folder, f"-DPATRAC_SANITIZED_WARP={warp}", sanitizers="thread", mistake=mistake)


def run_memory(folder: Path, mistake: str | None = None) -> subprocess.CompletedProcess[str]:
    """Under those of addresses and of undefined behaviour, which see reads beyond an array and pointers out of step."""
    return run_sanitized(folder, sanitizers="address,undefined", mistake=mistake)


@pytest.mark.slow
@pytest.mark.parametrize("warp", [32, 2], ids=["one warp", "two warps"])
def test_device_functions_have_no_race(warp: int, tmp_path: Path) -> None:
    result = run_threads(tmp_path, warp)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ran") == CASES


@pytest.mark.slow
@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_missing_barrier_is_found(barrier: str, tmp_path: Path) -> None:
    result = run_threads(tmp_path, BARRIERS[barrier][1], barrier)
    assert result.returncode != 0 and "data race" in result.stderr


@pytest.mark.slow
def test_device_functions_stay_within_their_memory(tmp_path: Path) -> None:
    result = run_memory(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ran") == 2 * CASES  # in both types


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MEMORY)
def test_faults_of_memory_are_found(mistake: str, tmp_path: Path) -> None:
    result = run_memory(tmp_path, mistake)
    assert result.returncode != 0
    assert "heap-buffer-overflow" in result.stderr or "misaligned address" in result.stderr
