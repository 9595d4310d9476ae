"""Likelihoods, architectures, kernels and priors know their own words and facts: nothing else asks for their class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import patrac_native
from patrac_native.architectures import ARCHITECTURES
from patrac_native.kernels import KERNELS
from patrac_native.likelihoods import LIKELIHOODS, LIKELIHOODS_BY_LABEL, Likelihood
from patrac_native.priors import PRIORS

PACKAGE = Path(patrac_native.__file__).parent
# Where the classes are at home, and may compare themselves with others.
HOMES = {
    "likelihoods": ("likelihoods",),
    "kernels": ("kernels",),
    "priors": ("priors",),
    "architectures": ("architectures.py",),
}


def names(registry: dict[str, type], base: type) -> set[str]:
    """The classes of a registry, and the classes between them and their common base, which alone may be asked for."""
    ancestors = {one.__name__ for known in registry.values() for one in known.__mro__ if issubclass(one, base)}
    return ancestors - {base.__name__}


CONCEPTS: dict[str, set[str]] = {
    "likelihoods": names(LIKELIHOODS, Likelihood),
    "kernels": names(KERNELS, patrac_native.Kernel),
    "priors": names(PRIORS, patrac_native.Prior),
    "architectures": names(ARCHITECTURES, patrac_native.Architecture),
}


def mentioned(node: ast.AST) -> set[str]:
    """All names in an expression, those of attributes included."""
    inner = list(ast.walk(node))
    plain = {one.id for one in inner if isinstance(one, ast.Name)}
    return plain | {one.attr for one in inner if isinstance(one, ast.Attribute)}


def asked(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """The classes by which a module decides: isinstance and issubclass, comparisons with a class, class patterns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                yield node.lineno, mentioned(node.args[1])
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            classes = [one for one in sides if isinstance(one, ast.Name | ast.Attribute)]
            yield node.lineno, {name for one in classes for name in mentioned(one)}
        elif isinstance(node, ast.MatchClass):
            yield node.lineno, mentioned(node.cls)


def questions(source: str, concept: str) -> list[str]:
    """Where a module asks for a class of a concept."""
    found = asked(ast.parse(source))
    return [f"line {line}: {name}" for line, classes in found for name in sorted(classes & CONCEPTS[concept])]


@pytest.mark.parametrize("concept", CONCEPTS)
def test_nothing_asks_for_a_class_of_another_room(concept: str) -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in HOMES[concept]:
            found[str(place)] = questions(path.read_text(), concept)
    assert len(found) > 100
    assert {place: lines for place, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(x, StudentT)",
        "isinstance(x, (int, pn.StudentT))",
        "isinstance(x, Gaussian | RealLikelihood)",
        "issubclass(kind, CountLikelihood)",
        "type(x) is Poisson",
        "x.name == pn.Bernoulli.name",
        "match x:\n    case HeteroscedasticGaussian(): pass",
    ],
)
def test_the_search_finds_each_way_of_asking(source: str) -> None:
    assert questions(source, "likelihoods")


def test_the_search_allows_the_base_class_and_calls() -> None:
    assert not questions("isinstance(x, Likelihood) and likelihood == Gaussian(1.0)", "likelihoods")


@pytest.mark.parametrize("label", LIKELIHOODS_BY_LABEL)
def test_advice_names_registered_likelihoods(label: str) -> None:
    one = LIKELIHOODS_BY_LABEL[label]
    given = {"dispersion": 0.5} if "dispersion" in one.settings else {}
    likelihood = one.from_settings(**given)
    assert likelihood.label == label and one.example.startswith(f"{one.__name__}(")
    for change in (*likelihood.wider(), *likelihood.narrower()):
        assert change.advice and (change.likelihood is None or change.likelihood in LIKELIHOODS_BY_LABEL)
    likelihood = likelihood.for_training_targets(np.array([[0.0], [2.0]] * 2))
    if one.targets in ("real", "count", "value"):
        assert label == "censored" or likelihood.wider() or likelihood.narrower()
        assert likelihood.describe_noise(np.array([0.25]), 2.0, "given").endswith(".")


def test_settings_make_likelihoods() -> None:
    by_label = LIKELIHOODS_BY_LABEL
    assert by_label["gaussian"].from_settings().is_sampled
    assert by_label["gaussian"].from_settings(noise_variance=0.5) == patrac_native.Gaussian(0.5)
    assert by_label["student-t"].from_settings() == patrac_native.StudentT(4.0, "sampled")
    assert by_label["negative-binomial"].from_settings(dispersion=2.0) == patrac_native.NegativeBinomial(2.0)
    with pytest.raises(ValueError, match="dispersion must be given"):
        by_label["negative-binomial"].from_settings()
