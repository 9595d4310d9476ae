"""Importing this pins the process to one core and keeps XLA and the BLAS libraries to one thread.

It must come before everything that starts threads. PATRAC_BENCH_CORE names the core, by default the last one that the
process may use.
"""

from __future__ import annotations

import os

_available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
CORE = int(os.environ.get("PATRAC_BENCH_CORE", _available[-1]))
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {CORE})

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
_flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_flags}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
