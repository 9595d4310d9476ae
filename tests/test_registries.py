"""Registries: a name that is registered in only one place is an error, and tests exercise every registered class."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.architectures import ARCHITECTURES
from patrac_native.engine import _core
from patrac_native.kernels import KERNELS
from patrac_native.likelihoods import LIKELIHOODS, PredictiveMixture, RealLikelihood
from patrac_native.network.activations import ACTIVATIONS
from patrac_native.posterior.registries import check_registries
from patrac_native.priors import PRIORS
from patrac_native.studies.floor import measure_rate
from patrac_native.validation.complete import by_name
from scripts import process

TABLES: dict[str, dict[str, Any]] = {"activations": ACTIVATIONS, "likelihoods": LIKELIHOODS, "kernels": KERNELS}
ENTRIES = [
    (table, name)
    for table, registry in TABLES.items()
    for name, one in registry.items()
    if getattr(one, "core_name", None) is None
]


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_a_name_that_one_side_lacks_is_an_import_error(table: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = getattr(_core, table)()
    monkeypatch.setattr(_core, table, lambda: [known for known in both if known != name])
    with pytest.raises(ImportError, match=f"the {table[:-1]} {name} is unknown to the core"):
        check_registries()
    monkeypatch.setattr(_core, table, lambda: both)
    monkeypatch.delitem(TABLES[table], name)
    with pytest.raises(ImportError, match=f"the core's {table[:-1]} {name} is in no registry of Python"):
        check_registries()


def test_likelihoods_of_one_name_in_the_core_name_a_registered_one() -> None:
    assert {one.core_name for one in LIKELIHOODS.values()} - {None} == {"categorical"} <= set(_core.likelihoods())


def test_importing_the_package_compares_the_registries() -> None:
    """With a core that knows one more kernel, in place before the package is imported."""
    code = (
        "import importlib.util as util, sys\n"
        f"spec = util.spec_from_file_location('patrac_native.engine._core', {_core.__file__!r})\n"
        "core = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(core)\n"
        "known = core.kernels()\n"
        "core.kernels = lambda: [*known, 'nuts']\n"
        "sys.modules['patrac_native.engine._core'] = core\n"
        "import patrac_native\n"
    )
    done = process("-c", code)
    assert done.returncode == 1
    assert "ImportError" in done.stderr and "the core's kernel nuts is in no registry" in done.stderr


def required(base: type) -> list[str]:
    """Abstract methods of a base class, and class attributes that it declares without a value."""
    names = {name for name in dir(base) if getattr(getattr(base, name, None), "__isabstractmethod__", False)}
    for each in base.__mro__:
        declared = inspect.get_annotations(each)
        names |= {name for name, kind in declared.items() if "ClassVar" in str(kind) and not hasattr(base, name)}
    return sorted(names)


COMPLETE: list[tuple[type, type]] = [
    (pn.Likelihood, pn.Gaussian),
    (RealLikelihood, pn.Gaussian),
    (pn.Kernel, pn.MGrad),
    (pn.Architecture, pn.Mix),
    (pn.Prior, pn.GaussianPrior),
]


@pytest.mark.parametrize(
    ("base", "complete", "left_out"), [(base, whole, name) for base, whole in COMPLETE for name in required(base)]
)
def test_a_class_that_leaves_something_out_cannot_be_defined(base: type, complete: type, left_out: str) -> None:
    body = {name: inspect.getattr_static(complete, name) for name in required(base)}
    type("Whole", (base,), dict(body))
    del body[left_out]
    with pytest.raises(TypeError, match=f"Partial must define {left_out};"):
        type("Partial", (base,), body)


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Gaussian and Gaussian both have the name 'gaussian'"):
        by_name((pn.Gaussian, pn.Gaussian))


# What is registered is exercised


def test_the_problems_of_the_tests_cover_the_registries() -> None:
    """Tests take architectures, likelihoods and activations from `problems`."""
    rng = np.random.default_rng(0)
    net = problems.random_network(rng, (2, 3, 3, 2))
    posed = {problems.random_data(name, rng, 4, 2, 2).likelihood.name for name in problems.LIKELIHOODS}
    assert posed == set(LIKELIHOODS)
    assert {problems.architecture(name, rng, net).name for name in problems.ARCHITECTURES} == set(ARCHITECTURES)
    assert set(problems.ACTIVATIONS) == set(ACTIVATIONS)


def test_every_registered_class_is_public() -> None:
    for registry in (ARCHITECTURES, PRIORS, LIKELIHOODS, KERNELS):
        for name, one in registry.items():
            assert one.name == name and getattr(pn, one.__name__) is one


def concrete(base: type) -> set[type]:
    """The package's own subclasses of a base class that can be used: those with a name."""
    found = set()
    for one in base.__subclasses__():
        found |= concrete(one)
        if one.__module__.startswith("patrac_native.") and hasattr(one, "name"):
            found.add(one)
    return found


@pytest.mark.parametrize(
    ("base", "registry"),
    [(pn.Architecture, ARCHITECTURES), (pn.Prior, PRIORS), (pn.Likelihood, LIKELIHOODS), (pn.Kernel, KERNELS)],
    ids=["architectures", "priors", "likelihoods", "kernels"],
)
def test_every_class_is_registered(base: type, registry: dict[str, type]) -> None:
    """Files with a class that is not registered could not be read."""
    assert concrete(base) == set(registry.values())


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_runs_with_its_defaults(name: str) -> None:
    """Every kernel runs on the CPU, and on devices that it supports."""
    kernel = KERNELS[name]()
    post = problems.problem(problems.rng_of("registry", name), (2, 6, 5, 1), 20, "out", dtype="float32").post
    draws = pn.sample(post, kernel, chains=2, draws=20, warmup=200, seed=1, threads=1)
    assert np.isfinite(draws.theta).all() and np.ptp(draws.theta, axis=1).min() > 0
    if kernel.runs_on_devices:
        there = pn.sample(post, kernel, chains=2, draws=5, warmup=200, seed=1, device="emulated:4")
        assert np.isfinite(there.theta).all()
    else:
        with pytest.raises(ValueError, match=r"Use one of them, or device=\"cpu\""):
            pn.sample(post, kernel, chains=2, draws=5, warmup=200, seed=1, device="emulated:4")


@pytest.mark.parametrize("place", ["cpu", "emulated:4"])
@pytest.mark.parametrize("name", problems.LIKELIHOODS)
def test_every_likelihood_runs_from_data_to_predictions(name: str, place: str, tmp_path: Path) -> None:
    """Every likelihood is sampled, stored, predicted with noise and summarised; l of the draws is its density's."""
    problem = problems.problem(problems.rng_of("registry", name), (2, 6, 5, 3), 20, likelihood=name)
    post, likelihood = problem.post, problem.data.likelihood
    draws = pn.sample(post, pn.MGrad(), chains=2, draws=10, warmup=200, seed=1, device=place, threads=1)
    offset = problem.data.offset
    f = draws.distribution(problem.X, offset=offset).outputs().reshape(2, 10, 20, -1)
    np.testing.assert_array_equal(draws.predict(problem.X, offset=offset), likelihood.predicted(f))
    own = likelihood.log_likelihood_rows(f, post.data.y) @ post.data.row_weights
    # Sums of 20 rows and of a network's layers in float64, of numbers of order 10 to 100.
    np.testing.assert_allclose(draws.stats["log_likelihood"], own, rtol=1e-9, atol=1e-9)
    y = draws.predictive(problem.X, offset=offset, seed=1)
    draws.save(tmp_path / "draws.npz")
    stored = pn.Draws.load(tmp_path / "draws.npz")
    assert stored.likelihood == likelihood
    np.testing.assert_array_equal(stored.predictive(problem.X, offset=offset, seed=1), y)
    known = y[0, 0] if likelihood.numbers_per_target == 1 else np.stack([y[0, 0]] * 2, axis=-1)
    likelihood.check_targets(known, 20, post.network.n_outputs)
    if not likelihood.has_classes and likelihood.targets != "binary":
        with pytest.raises(TypeError):
            draws.predict_proba(problem.X)
    else:
        assert draws.predict_proba(problem.X).min() >= 0
    assert str(draws.summary(problem.X).verdict())
    assert post.sampled.fit_quality.constant <= 0 or likelihood.targets == "real"


@pytest.mark.parametrize(
    "likelihood",
    [pn.Gaussian(0.3), pn.StudentT(2.5, 0.3), pn.HeteroscedasticGaussian(), pn.CensoredGaussian(0.3)],
    ids=repr,
)
def test_every_real_likelihood_has_noise_that_is_its_density(likelihood: RealLikelihood) -> None:
    """Distribution function, quantiles and density of `located_noise` against `log_likelihood_rows`."""
    m = likelihood.outputs_per_target
    u, f = np.linspace(-4, 4, 33), np.full((33, m), -0.7)
    location, noise = likelihood.located_noise(f[None])
    y = location + noise.scale * u
    numbers = likelihood.numbers_per_target
    known = y.T if numbers == 1 else np.stack([y.T] * 2, axis=-1)
    density = (np.exp(likelihood.log_likelihood_rows(f, known)) * noise.scale).ravel()
    np.testing.assert_allclose(np.exp(noise.log_density(u)), density, rtol=1e-13)
    step = 1e-5
    # Central differences of a smooth distribution function: step^2 / 6 times its third derivative.
    slope = (noise.cdf(u + step) - noise.cdf(u - step)) / (2 * step)
    np.testing.assert_allclose(slope, density, atol=1e-9)
    for probability in (0.005, 0.25, 0.5, 0.9):
        assert noise.cdf(np.asarray(noise.quantile(probability))) == pytest.approx(probability, rel=1e-9)
    f = np.random.default_rng(0).normal(size=(50, 4, m))
    y = np.arange(4.0)
    known = y[:, None] if numbers == 1 else np.stack([y[:, None]] * 2, axis=-1)
    expected = np.log(np.exp(likelihood.log_likelihood_rows(f, known)).mean(axis=0))
    found = PredictiveMixture(*likelihood.located_noise(f)).log_density(y)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_noise_of_every_real_likelihood_is_tested() -> None:
    """The list above contains every class."""
    mark = test_every_real_likelihood_has_noise_that_is_its_density.pytestmark[0]  # type: ignore[attr-defined]
    tested = {type(one).name for one in mark.args[1]}
    assert tested == {name for name, one in LIKELIHOODS.items() if issubclass(one, RealLikelihood)}


def test_costs_are_named_after_functions_that_the_core_times() -> None:
    named = {name for activation in ACTIVATIONS.values() for name in activation.elementary}
    for name in problems.LIKELIHOODS:
        named |= set(problems.random_data(name, np.random.default_rng(0), 4, 2, 2).likelihood.elementary_functions(2))
    for name in named:
        assert measure_rate(name, "float32", _core.default_simd_level()) > 0
