"""A base class that rejects incomplete subclasses when they are defined, and registries of classes by name."""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound="Complete")


class Complete(ABC):  # noqa: B024 - its subclasses have the abstract methods
    """Base class whose abstract methods and class attributes are checked when a subclass is defined.

    An abstract base class of the standard library raises only when an object is constructed, and never for a missing
    class attribute. Here the statement `class Incomplete(Base)` itself raises TypeError unless the class implements
    every abstract method and gives a value to every attribute annotated as `ClassVar`. An intermediate base class is
    declared as `class Intermediate(Base, abstract=True)` and may leave some of them undefined.
    """

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if abstract:
            return
        missing = {name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)}
        for base in cls.__mro__:
            annotations = inspect.get_annotations(base)
            missing |= {
                name for name, kind in annotations.items() if "ClassVar" in str(kind) and not hasattr(cls, name)
            }
        if missing:
            raise TypeError(f"{cls.__name__} must define {', '.join(sorted(missing))}; see {cls.__mro__[1].__name__}.")


def by_name(classes: Iterable[type[Kind]]) -> dict[str, type[Kind]]:
    """Return a registry that maps each class's `name` to the class; raise ValueError if two share a name."""
    registry: dict[str, type[Kind]] = {}
    for one in classes:
        name: str = one.name  # type: ignore[attr-defined]  # every registered base class declares it
        if name in registry:
            raise ValueError(f"{registry[name].__name__} and {one.__name__} both have the name {name!r}.")
        registry[name] = one
    return registry


def entry_of(
    registry: Mapping[str, type[Kind]], content: Mapping[str, Any], what: str
) -> tuple[type[Kind], dict[str, Any]]:
    """Look up the class that stored content names."""
    name: Any = content.get("name")
    if name not in registry:
        raise ValueError(f"{what} name must be one of {', '.join(registry)}; got {name!r}.")
    return registry[name], {key: value for key, value in content.items() if key != "name"}
