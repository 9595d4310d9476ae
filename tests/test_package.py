"""The package as a whole: light imports, names, types, doctests, versions, and nothing that belongs to one machine."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import pkgutil
import re
import tomllib
import types
from pathlib import Path

import pytest

import patrac_native as pn
from patrac_native.engine import _core
from scripts import output_of, process

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "matplotlib", "scipy", "pandas", "arviz_stats", "arviz", "jinja2", "tqdm", "sklearn", "jax", "nutpie")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pn.__path__, "patrac_native.")
    if not module.name.endswith(("._core", ".__main__"))
)


# What docs/deprecation.md calls public: a name leaves these lists two steps after it was deprecated.
PUBLIC = """
Bernoulli Categorical CensoredGaussian Custom DiscreteValues Draws DrawsMixture EllipticalSlice EnoughDraws Exact Full
Gaussian GaussianPrior HeteroscedasticGaussian Laplace MGrad Mix NegativeBinomial Network Out PCN PCNL PatracClassifier
PatracRegressor Poisson Posterior SampledScales Sep StudentT Target TraceClassPrior Warmup paper_warmup resume sample
sample_many start train train_many
""".split()
BESIDE = ["Architecture", "Kernel", "Likelihood", "Note", "Prior", "Run", "build_info"]
MODULES_BESIDE = ["diagnostics", "interop", "plots", "report"]


def test_the_public_names_are_those_of_the_policy() -> None:
    assert sorted(pn.__all__) == sorted(PUBLIC)
    assert all(isinstance(getattr(pn, name), types.ModuleType) for name in MODULES_BESIDE)


def test_dir_lists_the_public_names_alone() -> None:
    assert set(dir(pn)) == {*pn.__all__, "__version__"}


def test_wheels_hold_the_notices_of_what_is_compiled_into_them() -> None:
    """The build puts these files into the wheel's metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE", "NOTICE"] and (ROOT / "LICENSE").exists()
    notice = " ".join((ROOT / "NOTICE").read_text().split())
    assert "Copyright (c) 2016 Wenzel Jakob" in notice and "above copyright notice, this list of conditions" in notice
    assert "This software contains source code provided by NVIDIA Corporation." in notice and "cudart" in notice


def test_there_are_at_most_forty_names_and_few_beside_them() -> None:
    """A name that is no module and neither in `__all__` nor in this list is public by mistake."""
    assert len(pn.__all__) <= 40
    beside = {
        name
        for name, value in vars(pn).items()
        if not (name.startswith("_") or name in pn.__all__ or isinstance(value, types.ModuleType))
    }
    assert beside == set(BESIDE)


def test_import_sampling_and_prediction_load_nothing_heavy() -> None:
    """Heavy packages are imported where they are used: importing this one takes far less than 0.4 s, and sampling and
    prediction of tanh networks need only NumPy."""
    code = (
        "import sys, numpy as np, patrac_native as pn\n"
        "net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])\n"
        "X = np.linspace(-1, 1, 5)[:, None]\n"
        "post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])\n"
        "pn.sample(post, chains=1, draws=2, warmup=200, progress=False).predict(X)\n"
        "print(*sys.modules)"
    )
    loaded = output_of(code).split()
    assert "patrac_native.engine._core" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_training_and_convergence_load_no_torch_and_no_arviz() -> None:
    """Either takes seconds to import, which is as long as a fit of few rows; torch is not even a requirement."""
    code = (
        "import sys, numpy as np, patrac_native as pn\n"
        "X = np.linspace(-1, 1, 40)[:, None]\n"
        "pn.train([1, 3, 1], X, X[:, 0], max_epochs=5, progress=False)\n"
        "assert pn.diagnostics.convergence(np.random.default_rng(0).normal(size=(2, 50, 3))).max_rhat < 2\n"
        "print(*sys.modules)"
    )
    loaded = output_of(code).split()
    assert [name for name in ("torch", "arviz_stats") if name in loaded] == []


def test_only_exchange_with_torch_needs_it() -> None:
    """torch is hundreds of megabytes, and an extra."""
    code = """
    import sys, tempfile
    import numpy as np

    class NoTorch:
        def find_spec(name, path=None, target=None):
            if name.split(".")[0] == "torch":
                raise ModuleNotFoundError(name, name=name)

    sys.meta_path.insert(0, NoTorch)
    import patrac_native as pn
    from patrac_native.network.activations import ACTIVATIONS
    X = np.linspace(-1, 1, 30)[:, None]
    for activation in ACTIVATIONS:
        net = pn.train([1, 2, 1], X, X, activation=activation, l2=0.1, max_epochs=20, batch_size=16, progress=False)
        for architecture in (pn.Full(), pn.Mix(1), pn.Out(1), pn.Sep(1)):
            post = pn.Posterior(net, architecture, pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
            draws = pn.sample(post, chains=2, draws=20, warmup=200, seed=0, progress=False)
        with tempfile.TemporaryDirectory() as folder:
            draws.save(folder + "/draws.npz")
            read = pn.Draws.load(folder + "/draws.npz")
        assert np.array_equal(read.predict(X), draws.predict(X))
        assert np.isfinite(read.distribution(X).nlpd(X[:, 0]))
        read.summary(X)
    for needs_torch in (
        net.to_torch, lambda: post.to_torch("likelihood"), lambda: post.network.to_torch(draws.theta[0, 0]),
        lambda: pn.train([1, 2, 1], X, X, optimizer="nadam", progress=False),
    ):
        try:
            needs_torch()
        except ImportError as error:
            assert str(error).endswith("needs torch, which is not installed: pip install 'patrac_native[torch]'")
        else:
            raise AssertionError("torch was found")
    """
    output_of(code)


def test_every_public_name_is_there_and_documented() -> None:
    assert sorted(pn.__all__, key=str) == sorted(set(pn.__all__))
    for name in pn.__all__:
        value = getattr(pn, name)
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"


def test_the_package_says_that_it_is_typed() -> None:
    files = importlib.resources.files("patrac_native")
    assert (files / "py.typed").is_file()
    assert (files / "engine" / "_core.pyi").is_file()


def test_the_stub_names_what_the_compiled_core_has() -> None:
    stub = (importlib.resources.files("patrac_native.engine") / "_core.pyi").read_text()
    declared = set(re.findall(r"^(?:def|class) ([A-Za-z]\w*)", stub, re.M)) | set(
        re.findall(r"^([A-Z_]\w+(?=: )|[a-z]\w+(?= = ))", stub, re.M)
    )
    assert declared == {name for name in dir(_core) if not name.startswith("__")}
    for kind in ("Model", "DeviceModel"):
        body = stub.split(f"class _{kind}")[1].split(f"class {kind}32")[0]
        methods = {entry for entry in re.findall(r"def (\w+)", body) if not entry.startswith("_")}
        for name in (f"{kind}32", f"{kind}64"):
            assert {entry for entry in dir(getattr(_core, name)) if not entry.startswith("_")} == methods
    testing = {name for name in dir(_core.testing) if not name.startswith("__")}
    assert testing == set(re.findall(r"def (\w+)", stub.split("class testing")[1]))


def test_doctests() -> None:
    """Those of the package's docstring, train, sample and predict, and of all modules."""
    pytest.importorskip("torch")
    attempted = 0
    for name in ("patrac_native", *MODULES):
        results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
        assert results.failed == 0, name
        attempted += results.attempted
        assert attempted > 0, "the package's own docstring has an example"
    assert attempted > 10


@pytest.mark.slow
def test_mypy_strict_finds_nothing() -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    done = process("-m", "mypy", "--no-error-summary", cwd=ROOT, timeout=1200)
    assert (done.returncode, done.stdout) == (0, "")


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pn.__version__ == importlib.metadata.version("patrac_native") == project["version"]
    assert pn.build_info()["patrac_native"] == pn.__version__
    assert f"\nversion: {pn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == pn.__version__


def test_pre_commit_runs_the_pinned_versions() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    found = dict(re.findall(r"(ruff|clang-format|codespell)(?:-pre-commit)?\n +rev: v(\S+)", hooks))
    assert found == {name: pinned[name] for name in ("ruff", "clang-format", "codespell")}


def test_build_info_names_compiler_flags_levels_and_cuda() -> None:
    info = pn.build_info()
    assert "-O3" in info["flags"] and "-ffp-contract=off" in info["flags"]
    assert "fast-math" not in info["flags"] and "march=native" not in info["flags"]
    assert info["compiler"].split()[0] in ("GNU", "Clang", "AppleClang")
    assert info["SIMD level in use"].split()[0] in info["SIMD levels"].split(", ")
    assert info["CUDA"].startswith(f"built with {_core.CUDA}, " if _core.CUDA else "no (built without)")


def tracked_text() -> dict[str, str]:
    """Every text file of the package, its tests, its build and its documents."""
    places = ("python", "csrc", "tests", "docs", "bench", ".ci")
    files = [path for place in places for path in (ROOT / place).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    endings = {"", *".py .pyi .hpp .cpp .cu .cmake .md .toml .txt .json .j2 .yml .yaml .css".split()}
    caches = re.compile(r"(^|/)(__pycache__|\.[a-z]+_cache)/")
    names = {path.relative_to(ROOT).as_posix(): path for path in files if path.suffix in endings}
    return {name: path.read_text(errors="replace") for name, path in names.items() if not caches.search(name)}


def test_nothing_belongs_to_one_machine() -> None:
    """No absolute path of a user or a workplace, and no instruction set chosen by the building machine."""
    # Written in pieces, so that this file passes its own test.
    folders = "|".join(("ho" + "me", "ro" + "ot", "wor" + "k", "Use" + "rs", "far" + "m"))
    path = re.compile(rf"(?<![A-Za-z0-9_.~])/({folders})/[a-z]")
    native, fast = "-march=" + "native", "-ffast" + "-math"
    texts = tracked_text()
    assert len(texts) > 50
    for name, text in texts.items():
        assert not path.search(text), name
        if name == "CMakeLists.txt" or name.startswith("csrc"):
            assert native not in text and fast not in text, name
