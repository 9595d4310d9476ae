"""Counts what nvcc makes of the kernels of a step: instructions of each stage, registers, spills; no GPU is needed.

It compiles the kernels that 1-50-50-1 and 3072-50-50-10 run (tanh, float32), disassembles them, and attributes each
instruction to a stage of the step by the lines that it was inlined from. These are static counts: the body of a loop
counts once, and code that a run never reaches counts too. The barriers of a step are counted as an emulated device
passes them.

    python bench/gpu_counts.py                  print the tables
    python bench/gpu_counts.py --record         also write them to bench/results/performance/gpu_counts.json

It needs nvcc, CUDA 12 or later, and nvdisasm: on the path, or from `pip install nvidia-cuda-nvdisasm`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "bench" / "results" / "performance" / "gpu_counts.json"
# As CMakeLists.txt compiles device code; the lines do not change it.
FLAGS = ["-std=c++20", "-O3", "--fmad=false", "-lineinfo", "-Xptxas=-v", "-Xcompiler=-ffp-contract=off"]

# (stage of cuda/device/launch_order.hpp, its launch) of each kernel.
CHAIN = "ChainStage<float, TanhActivation, TileTarget, true, {}>"
KERNELS = {
    "one block a chain": (CHAIN.format("false"), "ChainLaunch<float>"),
    "the same with sampled variances": (CHAIN.format("true"), "ChainLaunch<float>"),
    "slabs: advance": ("AdvanceStage", "SlabLaunch<float>"),
    "slabs: wide first layer": ("WideForwardStage<ByteInputs<ExactParts>>", "SlabLaunch<float>"),
    "slabs: evaluate": ("EvaluateStage<TanhActivation, SlabPlace::parameters_apart>", "SlabLaunch<float>"),
    "slabs: gradient of the wide layer": ("WideGradientStage<ByteInputs<ExactParts>>", "SlabLaunch<float>"),
    "slabs: the same, coarse": ("WideGradientStage<ByteInputs<RoundedPart>>", "SlabLaunch<float>"),
    "slabs: reduce": ("ReduceStage", "SlabLaunch<float>"),
    "slabs: decide": ("DecideStage", "SlabLaunch<float>"),
}
SOURCE = """#define PATRAC_LEVEL cuda
#define PATRAC_VECTOR_BYTES 16
#include "cuda/device/cuda_launcher.hpp"
namespace patrac::cuda {{
using Stage = {stage};
using Work = {launch};
template __global__ void run_stage<Stage, Work>(const __grid_constant__ Work, const Stage);
}}
"""

# The stages of a step in a chain's kernel: the first that names a function from which an instruction is inlined. The
# first two use functions of the others.
STAGES = {
    "draw of noise variances": {"draw_variance", "find_squares", "rescale", "evaluate_again"},
    "kept draw": {"keep_draw", "complete"},
    "noise and proposal": {"propose"},
    "forward": {"forward", "find_own_outputs"},
    "likelihood": {"likelihood", "likelihood_of"},
    "reverse: gradients": {"outer", "outer_by"},
    "reverse: derivatives below": {"contract", "contract_by"},
    "reverse: rest": {"reverse"},
    "log ratio": {"add_to_ratio"},
    "sums over the block": {"sum_over_block", "sum_after_barrier"},
    "accept test": {"moves", "accepts"},
    "the new state": {"take"},
    "record": {"record"},
    "rest of a step": {"step"},
}
REST = "before and after the steps"
# What is counted beside all instructions, by the name of the instruction before its first dot.
KINDS = {"barriers": "BAR", "FFMA": "FFMA", "MUFU": "MUFU", "LDS": "LDS", "LDG": "LDG", "generic LD": "LD"}

NAMED = re.compile(r"PATRAC_DEVICE\b[^;(]*?\b(\w+)\(")
LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


def find_tool(name: str) -> str:
    """Return the path of a CUDA tool, from the search path or from NVIDIA's Python packages."""
    if found := shutil.which(name):
        return found
    packages = importlib.util.find_spec("nvidia")
    for place in (packages.submodule_search_locations or []) if packages else []:
        for tool in sorted(Path(place).glob(f"*/bin/{name}")):
            return str(tool)
    install = "install the CUDA toolkit" if name == "nvcc" else f"pip install nvidia-cuda-{name}"
    sys.exit(f"{name} is neither on the path nor among NVIDIA's Python packages: {install}")


@cache
def functions(path: str) -> tuple[list[int], list[str]]:
    """Return the lines at which device functions of a source begin, and their names."""
    begins = [
        (number, named[1])
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
        if (named := NAMED.search(line))
    ]
    return [number for number, _ in begins], [name for _, name in begins]


def function_at(path: str, line: int) -> str:
    """Return the name of the device function to which a line belongs."""
    if not Path(path).is_file():
        return ""
    numbers, names = functions(path)
    return names[at - 1] if (at := bisect(numbers, line)) > 0 else ""


def count_stages(assembly: str) -> dict[str, Counter[str]]:
    """Count the instructions of each stage in what `nvdisasm -gi -c` prints."""
    counts: dict[str, Counter[str]] = {}
    stage, inlined, is_new = REST, set[str](), True
    for line in assembly.splitlines():
        if place := LINE.search(line):
            if is_new:
                inlined, is_new = set(), False
            inlined.add(function_at(place[1], int(place[2])))
        elif instruction := INSTRUCTION.match(line):
            if not is_new:
                stage = next((name for name, of in STAGES.items() if of & inlined), REST)
                is_new = True
            counts.setdefault(stage, Counter()).update(("all", instruction[1].partition(".")[0]))
    return counts


def compiled(source: str, csrc: Path, architecture: str) -> tuple[str, str]:
    """Return the disassembly of a source, and what ptxas says of it."""
    with tempfile.TemporaryDirectory() as folder:
        file, binary = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        file.write_text(source)
        command = [find_tool("nvcc"), *FLAGS, f"-arch={architecture}", f"-I{csrc}", "-cubin", "-o", str(binary)]
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        disassemble = [find_tool("nvdisasm"), "-gi", "-c", str(binary)]
        return subprocess.run(disassemble, capture_output=True, text=True, check=True).stdout, done.stderr


def resources(ptxas: str) -> list[Any]:
    """Return the registers of a kernel and the bytes that it spills, stored and loaded.

    >>> resources("8 bytes spill stores, 12 bytes spill loads\\nptxas info    : Used 128 registers")
    [128, '8 + 12']
    """
    (registers,) = re.findall(r"Used (\d+) registers", ptxas)
    spills = [sum(map(int, re.findall(rf"(\d+) bytes spill {what}", ptxas))) for what in ("stores", "loads")]
    return [int(registers), "none" if not any(spills) else " + ".join(map(str, spills))]


def kinds_of(count: Counter[str]) -> list[int]:
    return [count[instruction] for instruction in KINDS.values()]


def barriers_of_steps() -> list[list[Any]]:
    """Return the barriers of a step of 1-50-50-1 in a block of two warps, whose rows are one tile.

    An emulated device has one multiprocessor. As on a card, a chain that has it for itself uses more shared memory.
    """
    import numpy as np

    import patrac_native as pn
    from patrac_native.engine import testing

    def passed(post: pn.Posterior, steps: int, chains: int, options: dict[str, Any]) -> float:
        options = {"chains": chains, "draws": 1, "thin": steps, "warmup": None, "progress": False} | options
        before = testing.emulated_barriers()
        pn.sample(post, pn.PCNL(0.01), device="emulated:64", **options)
        return (testing.emulated_barriers() - before) / chains

    rng = np.random.default_rng(0)
    sizes = (1, 50, 50, 1)
    weights = [rng.standard_normal(shape) for shape in zip(sizes[1:], sizes[:-1], strict=True)]
    net = pn.Network(weights, [np.zeros(size) for size in sizes[1:]])
    X, y = rng.standard_normal((60, 1)), rng.standard_normal(60)
    fixed, drawn = pn.Gaussian(1.0), pn.Gaussian("sampled", b=1.0)
    cases: list[tuple[pn.Gaussian, int, dict[str, Any]]] = [(fixed, 1, {}), (fixed, 2, {})]
    cases.append((drawn, 2, {"variance_every": 1}))
    rows = []
    for architecture in (pn.Full(), pn.Mix(5), pn.Sep(2)):
        row: list[Any] = [f"`{architecture}`"]
        for likelihood, chains, options in cases:
            prior = pn.TraceClassPrior(1.5, 2.0, 0.5)
            post = pn.Posterior(net, architecture, prior, likelihood, X, y, dtype="float32")
            few, many = (passed(post, steps, chains, options) for steps in (10, 20))
            of_step, rest = divmod(many - few, 10)
            assert rest == 0
            row.append(int(of_step))
        rows.append(row)
    return rows


def count_kernels(csrc: Path, architecture: str, kernels: dict[str, tuple[str, str]]) -> dict[str, list[list[Any]]]:
    """Return the rows of the kernels, and those of the stages of the first."""
    rows: dict[str, list[list[Any]]] = {"kernels": [], "stages": []}
    for kernel, (stage, launch) in kernels.items():
        assembly, ptxas = compiled(SOURCE.format(stage=stage, launch=launch), csrc, architecture)
        stages = count_stages(assembly)
        total = sum(stages.values(), Counter())
        rows["kernels"].append([kernel, total["all"], *resources(ptxas), *kinds_of(total)])
        print(f"{kernel}: {total['all']} instructions", file=sys.stderr)
        if not rows["stages"]:
            first, second, *later = STAGES
            in_order = (*later, first, second, REST)
            rows["stages"] = [
                [name, stages[name]["all"], *kinds_of(stages[name])] for name in in_order if name in stages
            ]
    return rows


def with_state(rows: list[list[Any]], state: str, old: list[list[Any]]) -> list[list[Any]]:
    """Return new rows with their state in the second column, each after its rows of other states."""
    return [
        row
        for new in rows
        for row in (*(row for row in old if row[0] == new[0] and row[1] != state), [new[0], state, *new[1:]])
    ]


def write_record(found: dict[str, list[list[Any]]], about: dict[str, Any], state: str) -> None:
    """Put what was counted into the record, beside what it has of other states of the code."""
    entries = json.loads(RECORD.read_text(encoding="utf-8"))["entries"] if RECORD.exists() else []
    remarks = [entry for entry in entries if isinstance(entry, str)]
    tables = {entry["name"]: entry for entry in entries if not isinstance(entry, str)}

    def put(name: str, columns: list[str], rows: list[list[Any]]) -> None:
        tables[name] = {"name": name, **about, "columns": columns, "rows": rows}

    old = {name: tables[name]["rows"] if name in tables else [] for name in ("kernels", "barriers")}
    put(
        "kernels",
        ["kernel", "state", "instructions", "registers", "bytes spilled, stored + loaded", *KINDS],
        with_state(found["kernels"], state, old["kernels"]),
    )
    put(f"stages_{state}", ["stage", "instructions", *KINDS], found["stages"])
    if found["barriers"]:
        columns = ["1-50-50-1", "state", "a chain a multiprocessor", "more chains", "more, a variance drawn each step"]
        put("barriers", columns, with_state(found["barriers"], state, old["barriers"]))
    text = json.dumps({"title": "What nvcc makes of a step", "entries": [*remarks, *tables.values()]}, indent=2)
    RECORD.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Count, print and perhaps record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    parser.add_argument("--state", default="now", help="the name of this state of the code in the record")
    parser.add_argument("--arch", default="sm_90", help="the architecture to compile for")
    options = parser.parse_args()
    found = count_kernels(ROOT / "csrc", options.arch, KERNELS)
    found["barriers"] = barriers_of_steps()
    for name, rows in found.items():
        print(f"\n{name}; {', '.join(KINDS)} last" if name != "barriers" else f"\n{name}")
        for row in rows:
            print(f"{row[0]:36s}", *(f"{cell!s:>9s}" for cell in row[1:]))
    if options.record:
        version = subprocess.run([find_tool("nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
        (release,) = re.findall(r"release [\d.]+, V([\d.]+)", version)
        commit = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        about = {
            "machine": f"nvcc {release}, {options.arch}; no card",
            "commit": subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip(),
            "date": datetime.date.today().isoformat(),
            "command": shlex.join(["python", *sys.argv]),
        }
        write_record(found, about, options.state)


if __name__ == "__main__":
    main()
