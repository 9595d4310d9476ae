"""What a killed run leaves: stores of patrac_native, nutpie and PyMC for one posterior and the same kill.

`python bench/killed_runs.py SIDE --seconds 30` starts a run of 2 chains in a process of its own, kills it by SIGKILL so
many seconds after its store got its first file, and prints what can be read and what can be continued. SIDE is
`patrac`, `nutpie` or `pymc`, whose package must be installed. PyMC's store needs `zarr<3`, an environment of its own,
and NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE=1, since the state of its samplers is a pickle. The posterior is that of all
weights of a 1-5-1 tanh network with normal priors and known noise, on 100 rows.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, 100)
Y = np.sin(X) + 0.3 * RNG.normal(size=100)
DRAWS, TUNE, CHAINS = 1_000_000, 500, 2
PACKAGES = {"patrac": ("patrac-native", "zarr"), "nutpie": ("nutpie", "zarr"), "pymc": ("pymc", "zarr")}


def patrac_posterior() -> Any:
    """Return the posterior."""
    import patrac_native as pn

    rng = np.random.default_rng(1)
    net = pn.Network([rng.normal(size=(5, 1)), rng.normal(size=(1, 5))], [rng.normal(size=5), rng.normal(size=1)])
    return pn.Posterior(net, pn.Full(), pn.GaussianPrior(1.0), pn.Gaussian(0.09), X[:, None], Y)


def pymc_model() -> Any:
    """Return the same posterior as a model of PyMC, which nutpie compiles."""
    import pymc as pm

    with pm.Model() as model:
        w1, b1, w2 = (pm.Normal(name, 0, 1, shape=5) for name in ("w1", "b1", "w2"))
        f = pm.math.dot(pm.math.tanh(X[:, None] * w1 + b1), w2) + pm.Normal("b2", 0, 1)
        pm.Normal("y", f, 0.3, observed=Y)
    return model


def run(side: str, store: str) -> None:
    """Sample until the kill; the settings are those of the library but for the lengths of chunks and warm-up."""
    if side == "patrac":
        import patrac_native as pn

        pn.sample(patrac_posterior(), chains=CHAINS, draws=10**9, thin=30, seed=1, store=store, progress=False)
    elif side == "nutpie":
        import nutpie

        os.mkdir(store)
        model = nutpie.compile_pymc_model(pymc_model())
        nutpie.sample(
            model,
            draws=DRAWS,
            tune=TUNE,
            chains=CHAINS,
            seed=1,
            progress_bar=False,
            zarr_store=nutpie._lib.store.LocalStore(store),
        )
    else:
        import pymc as pm
        from pymc.backends.zarr import ZarrTrace

        with pymc_model():
            trace = ZarrTrace(store=store, draws_per_chunk=100)
            pm.sample(draws=DRAWS, tune=TUNE, chains=CHAINS, random_seed=1, trace=trace, progressbar=False)


def whole_draws(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    """Return the number of draws of each chain that are in an array of full length."""
    found: list[int] = (np.isfinite(values).all(2) & (values != 0).any(2)).sum(1).tolist()
    return found


def left_by(side: str, store: str) -> str:
    """Say what can be read, and try to go on."""
    if side == "patrac":
        import patrac_native as pn

        so_far = pn.Draws.load(store)
        settings = {"chains": CHAINS, "draws": so_far.n_draws + 1000, "thin": 30, "seed": 1, "progress": False}
        whole = pn.sample(patrac_posterior(), **settings)
        more = pn.resume(store, so_far.n_draws + 1000, progress=False)
        is_same = np.array_equal(np.asarray(more.theta), np.asarray(whole.theta))
        return (
            f"{so_far.n_draws} draws of each chain; resumed by 1000: {'the' if is_same else 'NOT the'} bits of one run"
        )
    if side == "nutpie":
        import xarray

        tree = xarray.open_datatree(store, engine="zarr", consolidated=False)
        return f"{whole_draws(tree['posterior']['w1'].values[:, :200_000])} draws of {DRAWS} places; no way to go on"
    import zarr
    from pymc.backends.zarr import ZarrTrace

    group = zarr.open(store, "r")
    draws = whole_draws(group["posterior"]["w1"][:, :200_000])
    try:
        ZarrTrace(store=store).to_inferencedata()
        found = "read by ZarrTrace"
    except Exception as error:
        found = f"ZarrTrace of the store: {type(error).__name__} {error}"
    return f"{draws} states of each chain, {TUNE} of warm-up among them; {found}; no public way to go on"


def main() -> None:
    """Start, kill, look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=PACKAGES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.side, arguments.run)
        return
    print(*(f"{package} {version(package)}" for package in PACKAGES[arguments.side]))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "run.zarr"
        with subprocess.Popen([sys.executable, __file__, arguments.side, "--run", str(store)]) as process:
            while not (store.is_dir() and any(path.is_file() for path in store.rglob("*"))):
                if process.poll() is not None:
                    raise SystemExit("the run ended before its kill")
                time.sleep(0.1)
            time.sleep(arguments.seconds)
            process.send_signal(signal.SIGKILL)
        files = [path for path in store.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        print(f"killed after {arguments.seconds:g} s: {len(files)} files, {size:.1f} MB")
        print(left_by(arguments.side, str(store)))


if __name__ == "__main__":
    main()
