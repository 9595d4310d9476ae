"""Options of the command line that are made from the parameters of the estimators."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Parameters that take objects or that the command sets itself.
_NO_OPTIONS = ("kernel", "verbose", "warm_start")
# What the option `--traceback` does, which every command has.
TRACEBACK = "after an error, print its traceback"


def add_parameters(parser: argparse.ArgumentParser, classes: Sequence[type], defaults: Mapping[str, Any]) -> None:
    """Add an option for each parameter of the classes, with its type and documentation there.

    An option that is not given is absent from the parsed arguments, so that the default of the class holds.
    """
    group = parser.add_argument_group(
        "the fit", f"The parameters of {' and '.join(one.__name__ for one in classes)}. X is the table, y the target."
    )
    added: set[str] = set(_NO_OPTIONS)
    for one in classes:
        documented = _documentation(one)
        for name, parameter in inspect.signature(one).parameters.items():
            if name in added:
                continue
            added.add(name)
            kind, text = documented[name]
            option = f"--{name.replace('_', '-')}"
            text += f" On the command line the default is {defaults[name]}." if name in defaults else ""
            arguments: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text.replace("%", "%%")}
            if str(parameter.annotation) in ("bool", "bool | None"):
                group.add_argument(option, action=argparse.BooleanOptionalAction, **arguments)
                continue
            choices = re.findall(r'"([\w-]+)"', re.sub(r"^.*\{|\}.*$", "", kind)) if "{" in kind else None
            many = "Sequence" in str(parameter.annotation)
            group.add_argument(
                option,
                type=_type(str(parameter.annotation)),
                choices=choices,
                nargs="+" if many else None,
                metavar=None if choices else ("N" if "int" in kind.split(" or ")[0] else name.upper()),
                **arguments,
            )


def parameters_of(args: argparse.Namespace, made: type) -> dict[str, Any]:
    """Return the parameters of a class that were given as options."""
    names = inspect.signature(made).parameters
    return {name: value for name, value in vars(args).items() if name in names and name not in _NO_OPTIONS}


def _type(annotation: str) -> Any:
    """Return the type of an option's value, of which a whole number that may be text is one if it looks so."""
    if "str" in annotation:
        return _number_or_text if "int | str" in annotation else str
    return float if "float" in annotation else int


def _number_or_text(value: str) -> int | str:
    """Return a whole number, or text that is none."""
    return int(value) if value.isdecimal() else value


def _documentation(made: type) -> dict[str, tuple[str, str]]:
    """Return type and description of each parameter from the docstring of a class, in the style of NumPy."""
    lines = inspect.cleandoc(made.__doc__ or "").split("\n")
    start = lines.index("Parameters") + 2
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in lines[start:]:
        if not line:
            break
        if line[0] != " ":
            name, kind = line.split(" : ", 1)
            found[name] = (kind, "")
        else:
            kind, text = found[name]
            found[name] = (kind, f"{text} {line.strip()}".strip())
    return found
