"""Memory or threads that are not there: MemoryError with what was asked for, the process and later calls unharmed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from scripts import process

# How many allocations of a call fail in turn at most: those of a run are many and alike.
MAX_FAILURES = 20
CALLS = {
    "construction": "new().log_likelihood(theta)",
    "rows shared by threads": "full.log_likelihood_and_grad(full.theta_map, threads=4)[1]",
    "points shared by threads": "new().log_likelihood_and_grad(np.tile(theta, (6, 1)), threads=3)[1]",
    "collapsed": "post.density('collapsed').value(np.tile(theta[: post.density('collapsed').dim], (3, 1)))",
    "predict": "post.network.predict(np.tile(theta, (6, 1)), X[:100], threads=3)",
    "run": "run(post, pn.MGrad(0.1), threads=3)",
    "run with shared rows": "run(post, pn.MGrad(0.1), threads=9)",
    "collapsed run": "run(post, pn.MGrad(0.1, collapse=True), threads=3)",
    "elliptical slice": "run(post, pn.EllipticalSlice(), threads=3)",
    "exact": "run(pn.Posterior(net, pn.Out(5), prior, pn.Gaussian(0.5), X[:90], y[:90]), pn.Exact(), threads=3)",
    "target": "run(pn.Target(function, np.ones(3)), pn.MGrad(0.1), threads=3)",
    "batched target": "run(pn.Target(function, np.ones(3), batched=True), pn.MGrad(0.1), threads=3)",
    "device": "run(post, pn.MGrad(0.1), device='emulated:2')",
}
PREAMBLE = """
    import ctypes, os, sys, warnings
    import numpy as np
    import patrac_native as pn

    rng = np.random.default_rng(7)
    net = pn.Network([rng.normal(size=(30, 8)), rng.normal(size=(30, 30)), rng.normal(size=(1, 30))],
                     [rng.normal(size=30), rng.normal(size=30), rng.normal(size=1)])
    X, y = rng.normal(size=(20_000, 8)), rng.normal(size=20_000)
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)

    def new(architecture=pn.Mix(5)):
        return pn.Posterior(net, architecture, prior, pn.Gaussian(0.5), X, y)

    post, full = new(), new(pn.Full())
    theta = post.theta_map
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def function(x):
        return -0.5 * (x * x).sum(axis=-1), -x

    def run(posterior, kernel, **settings):
        return pn.sample(posterior, kernel, chains=3, draws=4, warmup=None, init="prior", seed=1, progress=False,
                         **settings).theta

    warnings.simplefilter("ignore")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library of failing_allocations.cpp."""
    if sys.platform != "linux":
        pytest.skip("allocations are made to fail by LD_PRELOAD")
    target = tmp_path_factory.mktemp("failing") / "failing.so"
    source = Path(__file__).with_name("failing_allocations.cpp")
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(target), "-ldl"], check=True)
    return target


def run_script(library: Path, text: str) -> str:
    """Run a script in a process with the library; return what it printed."""
    environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    done = process("-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(text), env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_each_allocation_may_fail(library: Path) -> None:
    """The call raises MemoryError that says what it is for, or does without; the next one gives the same numbers."""
    printed = run_script(
        library,
        f"""
        for name, text in {CALLS!r}.items():
            call = eval("lambda: " + text)
            wanted = call()
            library.fail_allocation(10**9)
            call()
            count = library.fail_allocation(0)
            errors = 0
            for n in range(1, count + 1, max(1, count // {MAX_FAILURES})):
                print(name, "allocation", n, "of", count, file=sys.stderr)
                library.fail_allocation(n)
                try:
                    found = call()
                except MemoryError as error:
                    library.fail_allocation(0)
                    errors += 1
                    assert str(error).startswith("not enough memory for "), error
                    found = call()
                library.fail_allocation(0)
                assert np.array_equal(found, wanted)
            assert errors > 0, name
        print("done")
        """,
    )
    assert printed == "done\n"


@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
def test_threads_that_do_not_start(allowed: int, library: Path) -> None:
    """The same numbers with fewer threads; a run needs one, a block of an emulated device all of its own."""
    run_script(
        library,
        f"""
        few = pn.Posterior(net, pn.Mix(5), prior, pn.Gaussian(0.5), X[:50], y[:50])

        def device():
            return run(few, pn.MGrad(0.1), device="emulated:8")

        calls = [
            lambda: full.log_likelihood_and_grad(full.theta_map, threads=4)[1],
            lambda: post.log_likelihood(np.tile(theta, (6, 1)), threads=3),
        ]
        wanted, on_device = [call() for call in calls], device()
        library.allow_threads({allowed})
        found = []
        for call in calls:
            library.allow_threads({allowed})
            found.append(call())
        library.allow_threads({allowed})
        try:
            drawn = run(post, pn.MGrad(0.1), threads=3)
            assert {allowed} > 0, "a run without a thread"
            library.allow_threads(-1)
            assert np.array_equal(drawn, run(post, pn.MGrad(0.1), threads=3))
        except RuntimeError as error:
            assert {allowed} == 0 and "and the system starts none" in str(error), error
            assert "threads = 3 were asked for. Raise the limit on threads" in str(error), error
        library.allow_threads({allowed})
        try:
            device()
            raise SystemExit("a device without its threads")
        except RuntimeError as error:
            assert "a block of 8 host threads was asked for" in str(error), error
        library.allow_threads(-1)
        assert np.array_equal(device(), on_device)
        assert all(map(np.array_equal, found, wanted))
        """,
    )
