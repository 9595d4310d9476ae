"""Smoke test of an installed package, in an environment without pytest: `python tests/smoke.py`.

Nothing here needs torch.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import patrac_native as pn


def main() -> None:
    """Train a network, sample every architecture at every level of this machine, and read the draws from a file."""
    assert Path(__file__).resolve().parents[1] / "python" not in Path(pn.__file__).resolve().parents, "not installed"
    levels = pn.build_info()["SIMD levels"].split(", ")
    if platform.machine() == "x86_64":
        assert levels == ["v2", "v3", "v4"], "a package has all levels"
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    net = pn.train([1, 8, 1], X, y, likelihood=pn.Gaussian(0.01), seed=0, progress=False)
    custom = pn.Custom([np.ones((8, 1), bool), np.ones((1, 8), bool)], [np.zeros(8, bool), np.ones(1, bool)])
    settings: dict[str, Any] = {"chains": 2, "draws": 20, "warmup": 200, "seed": 1, "progress": False}
    for architecture in (pn.Full(), pn.Mix(3), pn.Out(5), pn.Sep(2), custom):
        post = pn.Posterior(net, architecture, pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(0.01), X, y)
        draws = pn.sample(post, **settings)
        with tempfile.TemporaryDirectory() as folder:
            draws.save(Path(folder) / "draws.npz")
            f = pn.Draws.load(Path(folder) / "draws.npz").predict(X)
        assert f.shape == (2, 20, 60, 1) and np.isfinite(f).all() and f.std() > 0
    assert "torch" not in sys.modules
    version = importlib.metadata.version("patrac_native")
    print(f"patrac_native {version} trains, samples, predicts and reads its files without torch; levels {levels}")


if __name__ == "__main__":
    main()
