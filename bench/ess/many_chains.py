"""Short runs of many chains: how long their warm-up takes, and how far their draws are from the posterior.

`python bench/ess/many_chains.py --data FOLDER --out FILE` takes one draw of each of hundreds of chains after the
default warm-up, after `Warmup.many_chains`, and after the latter behind steps without the accept test. Means of f are
compared with those of a long run of another kernel, in posterior standard deviations; independent draws differ by one
over the root of their number.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
from harness import print_about, write_json
from sklearn.datasets import load_diabetes
from uci_sets import load_split, standardised

import patrac_native as pn

Array = npt.NDArray[np.float64]

KERNELS = {"pCNL": pn.PCNL(), "mGrad, persistent noise": pn.MGrad(persistence=0.9)}
ARCHITECTURES: dict[str, pn.Architecture] = {"Full": pn.Full(), "Mix(5)": pn.Mix(5), "Sep(5)": pn.Sep(5)}
FREE = pn.Warmup.Phase(200, accept_all=True, energy_error=0.1)


def posterior(name: str, architecture: pn.Architecture, data: Path) -> pn.Posterior:
    """Return the posterior of part of d-50-50-1 on a standardised set, the noise that of the residuals."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    else:
        split = standardised(load_split(data, name, 0))
        X, y = split.X, split.y
    net = pn.train([X.shape[1], 50, 50, 1], X, y, seed=0, progress=False)
    variance = float(np.mean((y[:, None] - net.predict(X)) ** 2))
    return pn.Posterior(net, architecture, pn.TraceClassPrior.fit(net), pn.Gaussian(variance), X, y)


def warmups(kernel: pn.Kernel) -> dict[str, pn.Warmup]:
    """Return the warm-ups that are compared."""
    many = pn.Warmup.many_chains(kernel)
    return {
        "default": pn.Warmup.default(kernel),
        "many_chains": many,
        "many_chains after 200 free steps": pn.Warmup((FREE, *many.phases)),
    }


def main() -> int:
    """Measure all and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the UCI sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["diabetes", "boston"])
    parser.add_argument("--architectures", nargs="+", default=["Mix(5)", "Sep(5)"], choices=ARCHITECTURES)
    parser.add_argument("--warmups", nargs="+", default=list(warmups(pn.PCNL())))
    parser.add_argument("--chains", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print_about()
    warnings.simplefilter("ignore", UserWarning)  # of warm-ups that end at their longest, which is recorded
    found: list[dict[str, Any]] = []
    for name in options.sets:
        for label in options.architectures:
            post = posterior(name, ARCHITECTURES[label], options.data)
            at = post.data.X[:: len(post.data.X) // 20]
            long = pn.sample(post, chains=8, draws=2000, thin=40, seed=0, progress=False)
            f = long.predict(at)[..., 0].astype(np.float64)
            mean, sd = f.mean(axis=(0, 1)), f.std(axis=(0, 1))
            error = float((f.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(len(f)) / sd).max())
            for kernel_name, kernel in KERNELS.items():
                for warmup_name in options.warmups:
                    for seed in range(1, options.seeds + 1):
                        begin = time.perf_counter()
                        draws = pn.sample(
                            post,
                            kernel,
                            chains=options.chains,
                            draws=1,
                            warmup=warmups(kernel)[warmup_name],
                            seed=seed,
                            progress=False,
                        )
                        seconds = time.perf_counter() - begin
                        away = (draws.predict(at)[:, 0, :, 0].astype(np.float64).mean(axis=0) - mean) / sd
                        row = {"set": name, "architecture": label, "kernel": kernel_name, "warmup": warmup_name}
                        row |= {"seed": seed, "chains": options.chains, "steps": draws.settings["warmup_steps"]}
                        row |= {"stable": draws.settings["warmup_stable"], "seconds": round(seconds, 2)}
                        row |= {"rms": float(np.sqrt(np.mean(away**2))), "largest": float(np.abs(away).max())}
                        found.append(row | {"error_of_reference": error})
                        print(found[-1], flush=True)
                        write_json(options.out, {"rows": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
