"""patrac_native: Markov chain Monte Carlo for partially Bayesian multilayer perceptrons.

Train a network, rank its hidden nodes, make the top ones Bayesian under a trace-class Gaussian prior, and sample them
(Carter & Sell 2025, Partial Trace-Class Bayesian Neural Networks):

>>> import numpy as np
>>> import patrac_native as pn
>>> X = np.linspace(-3, 3, 40)[:, None]
>>> y = np.sin(X[:, 0])
>>> net = pn.train([1, 8, 8, 1], X, y, likelihood=pn.Gaussian(0.1), l2=0.1, max_epochs=500, progress=False)
>>> post = pn.Posterior(net, pn.Mix(2), pn.TraceClassPrior(1.5, 2.0, 0.5), pn.Gaussian(0.1), X, y)
>>> draws = pn.sample(post, chains=2, draws=100, thin=10, warmup=2000, seed=1)
>>> draws.predict(X).shape
(2, 100, 40, 1)
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from patrac_native import diagnostics as diagnostics
from patrac_native import interop as interop
from patrac_native import plots as plots
from patrac_native import report as report
from patrac_native.architectures import Architecture as Architecture
from patrac_native.architectures import Custom, Full, Mix, Out, Sep
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.laplace import Laplace
from patrac_native.engine.machine import build_info as build_info
from patrac_native.kernels import PCN, PCNL, EllipticalSlice, Exact, MGrad
from patrac_native.kernels import Kernel as Kernel
from patrac_native.likelihoods import (
    Bernoulli,
    Categorical,
    CensoredGaussian,
    DiscreteValues,
    Gaussian,
    HeteroscedasticGaussian,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from patrac_native.likelihoods import Likelihood as Likelihood
from patrac_native.network.network import Network
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.registries import check_registries as _check_registries
from patrac_native.posterior.target import Target
from patrac_native.priors import GaussianPrior, SampledScales, TraceClassPrior
from patrac_native.priors import Prior as Prior
from patrac_native.sampling.enough_draws import EnoughDraws
from patrac_native.sampling.handle import Run as Run
from patrac_native.sampling.sampler import resume, sample, sample_many, start
from patrac_native.sampling.warmup import Warmup, paper_warmup
from patrac_native.training.many import train_many
from patrac_native.training.training import train
from patrac_native.validation.notes import Note as Note

if _TYPE_CHECKING:
    from patrac_native.fit.classifier import PatracClassifier
    from patrac_native.fit.regressor import PatracRegressor

# Outside __all__: the base classes Architecture, Kernel, Likelihood and Prior and the handle Run, for annotations; the
# class of the package's warnings, Note; what tells of the build, __version__ and build_info; and the modules
# diagnostics, interop, plots and report, whose names programs have for variables of their own.
_check_registries()
__version__ = _version("patrac_native")

__all__ = [
    "PCN",
    "PCNL",
    "Bernoulli",
    "Categorical",
    "CensoredGaussian",
    "Custom",
    "DiscreteValues",
    "Draws",
    "DrawsMixture",
    "EllipticalSlice",
    "EnoughDraws",
    "Exact",
    "Full",
    "Gaussian",
    "GaussianPrior",
    "HeteroscedasticGaussian",
    "Laplace",
    "MGrad",
    "Mix",
    "NegativeBinomial",
    "Network",
    "Out",
    "PatracClassifier",
    "PatracRegressor",
    "Poisson",
    "Posterior",
    "SampledScales",
    "Sep",
    "StudentT",
    "Target",
    "TraceClassPrior",
    "Warmup",
    "paper_warmup",
    "resume",
    "sample",
    "sample_many",
    "start",
    "train",
    "train_many",
]


def __getattr__(name: str) -> _Any:
    """Import an estimator at its first use, which keeps the import of the package light; raise AttributeError else."""
    if name not in ("PatracClassifier", "PatracRegressor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from patrac_native.fit import classifier, regressor

    return regressor.PatracRegressor if name == "PatracRegressor" else classifier.PatracClassifier


def __dir__() -> list[str]:
    """Return the public names: `dir(pn)` and tab completion leave the submodules out."""
    return [*__all__, "__version__"]
