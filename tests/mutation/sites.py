"""Places where one small change makes a formula wrong, and a source file with all its changes behind switches.

A change is a sign or operator, a constant, a comparison or an index. Each becomes a conditional expression,
`(at(17) ? changed : original)`, so that one build holds all mutants and a number chooses between them.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "**": "*",
    "//": "*",
    "<<": ">>",
    ">>": "<<",
    "+=": "-=",
    "-=": "+=",
}
COMPARISONS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
    "&&": ("||",),
    "||": ("&&",),
    "and": ("or",),
    "or": ("and",),
}


@dataclass(frozen=True)
class Mutant:
    """A change of the characters [start, end) of a file to `after`; `number` counts from 1, 0 is the original."""

    number: int
    file: str
    line: int
    start: int
    end: int
    kind: str
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """A mutant without file and number."""

    start: int
    end: int
    kind: str
    after: str


def changes(path: Path, choose: random.Random) -> list[Change]:
    """Return one change for each place of a file that can be changed."""
    source = path.read_text(encoding="utf-8")
    found = _python(source, choose) if path.suffix == ".py" else _cpp(source, choose)
    # What spans lines is put on one line, which a comment would end.
    comment = "#" if path.suffix == ".py" else "//"
    return [one for one in found if comment not in source[one.start : one.end]]


def rewritten(source: str, mutants: list[Mutant], python: bool) -> str:
    """Return the source with all mutants behind their switches; every line keeps its number."""
    return _switched(source, 0, len(source), sorted(mutants, key=lambda m: (m.start, -m.end)), python)


def _switched(source: str, start: int, end: int, mutants: list[Mutant], python: bool) -> str:
    pieces, place = [], start
    while mutants:
        outer = mutants[0]
        same = [m for m in mutants if (m.start, m.end) == (outer.start, outer.end)]
        inner = [m for m in mutants if m not in same and m.end <= outer.end]
        mutants = [m for m in mutants if m not in same and m not in inner]
        body = _switched(source, outer.start, outer.end, inner, python)
        for m in same:
            after = " ".join(m.after.split())
            if python:
                body = f'(({after}) if __import__("patrac_mutants").at({m.number}) else ({body}))'
            else:
                body = f"(mutant_at({m.number}) ? ({after}) : ({body}))"
        pieces += [source[place : outer.start], body]
        place = outer.end
    return "".join([*pieces, source[place:end]])


def _other_number(text: str, value: float, suffix: str = "") -> str:
    if isinstance(value, int):
        return f"{text} + 1"
    return f"{text} * 1.1{suffix}" if value else f"1.0{suffix}"


# --- C++ -------------------------------------------------------------------------------------------------------------

# Where a value must be known to the compiler, or no value stands at all. Declarations that are constexpr, conditions of
# `if constexpr` and of #if, and values of `case` are left out too.
_FIXED = {
    "template_argument_list",
    "template_parameter_list",
    "static_assert_declaration",
    "enumerator",
    "array_declarator",
    "attribute_specifier",
    "attribute_declaration",
    "requires_clause",
    "requires_expression",
    "concept_definition",
    "sizeof_expression",
    "decltype",
    "noexcept",
    "preproc_def",
    "preproc_function_def",
    "preproc_call",
    "bitfield_clause",
    "ERROR",
}


def _cpp(source: str, choose: random.Random) -> Iterator[Change]:
    import tree_sitter
    import tree_sitter_cpp

    # The parser knows no macros: one of the same length stands for that which begins functions.
    text = source.replace("PATRAC_FN ", "inline    ").encode("ascii", "replace")
    root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(text).root_node
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in _FIXED or _is_constexpr(node):
            continue
        stack += [child for child in reversed(node.children) if not _is_condition(node, child)]
        yield from _cpp_node(source, node, choose)


def _is_constexpr(node: Any) -> bool:
    declares = node.type in ("declaration", "field_declaration")
    return declares and any(child.text == b"constexpr" for child in node.children)


def _is_condition(node: Any, child: Any) -> bool:
    """Whether the compiler must know the value of a child."""
    if node.type == "if_statement" and any(one.type == "constexpr" for one in node.children):
        return bool(child == node.child_by_field_name("condition"))
    if node.type in ("preproc_if", "preproc_elif"):
        return bool(child == node.child_by_field_name("condition"))
    return bool(node.type == "case_statement" and child == node.child_by_field_name("value"))


def _cpp_node(source: str, node: Any, choose: random.Random) -> Iterator[Change]:
    start, end = node.start_byte, node.end_byte
    if node.type in ("binary_expression", "assignment_expression"):
        operator = node.child_by_field_name("operator")
        text = operator.text.decode()
        kind = "comparison" if text in COMPARISONS else "sign"
        other = choose.choice(COMPARISONS[text]) if text in COMPARISONS else OPERATORS.get(text)
        if other:
            yield Change(
                start, end, kind, source[start : operator.start_byte] + other + source[operator.end_byte : end]
            )
    elif node.type == "unary_expression" and source[start] == "-":
        yield Change(start, end, "sign", source[start + 1 : end].strip())
    elif node.type == "subscript_expression":
        index = node.child_by_field_name("indices").named_children
        if len(index) == 1 and index[0].type != "number_literal":
            inside = source[index[0].start_byte : index[0].end_byte]
            yield Change(index[0].start_byte, index[0].end_byte, "index", f"({inside}) + 1")
    elif node.type == "number_literal":
        text = source[start:end].replace("'", "")
        is_float = any(mark in text.lower() for mark in ("p" if "0x" in text.lower() else ".e"))
        suffix = "f" if is_float and text.endswith("f") else ""
        if is_float:
            digits = text.removesuffix("f")
            value: float = float.fromhex(digits) if "0x" in digits.lower() else float(digits)
        else:
            value = 1
        kind = "index" if node.parent.type == "subscript_argument_list" else "constant"
        yield Change(start, end, kind, _other_number(source[start:end], value, suffix))


# --- Python ----------------------------------------------------------------------------------------------------------

_PYTHON_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.FloorDiv: "//",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
}


def _python(source: str, choose: random.Random) -> Iterator[Change]:
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    offsets = [line.encode() for line in source.splitlines(keepends=True)]

    def at(line: int, column: int) -> int:
        return lines[line - 1] + len(offsets[line - 1][:column].decode())

    def span(node: Any) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def visit(node: ast.AST, in_index: bool = False) -> Iterator[Change]:
        yield from changed(node, in_index)
        if isinstance(node, ast.UnaryOp) and _number(node) is not None:
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                # Words of errors, of warnings and of reports are no formulas.
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert):
                    yield from visit(child, in_index or (isinstance(node, ast.Subscript) and name == "slice"))

    def changed(node: ast.AST, in_index: bool) -> Iterator[Change]:
        if not isinstance(node, ast.expr | ast.AugAssign):
            return
        start, end = span(node)
        if isinstance(node, ast.BinOp):
            text = _PYTHON_OPERATORS.get(type(node.op))
            if text and not has_words(node):
                yield between(node.left, node.right, start, end, "sign", text, OPERATORS[text])
        elif isinstance(node, ast.Compare | ast.BoolOp):
            pair = (node.left, node.comparators[0]) if isinstance(node, ast.Compare) else node.values[:2]
            text = _PYTHON_OPERATORS[type(node.ops[0] if isinstance(node, ast.Compare) else node.op)]
            if isinstance(node, ast.Compare) or len(node.values) == 2:
                yield between(*pair, start, end, "comparison", text, choose.choice(COMPARISONS[text]))
        elif _number(node) is not None:
            value = _number(node)
            text = source[start:end]
            if isinstance(value, bool):
                yield Change(start, end, "constant", str(not value))
            else:
                yield Change(start, end, "index" if in_index else "constant", _other_number(text, value))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            kind = "sign" if isinstance(node.op, ast.USub) else "comparison"
            first, last = span(node.operand)
            yield Change(start, end, kind, source[first:last])
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub) and not has_words(node.value):
            first, last = span(node.value)
            yield Change(first, last, "sign", f"-({source[first:last]})")

    def has_words(node: ast.AST) -> bool:
        return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in ast.walk(node))

    def between(left: ast.AST, right: ast.AST, start: int, end: int, kind: str, text: str, other: str) -> Change:
        first, last = span(left)[1], span(right)[0]
        middle = source[first:last]
        return Change(start, end, kind, source[start:first] + middle.replace(text, other, 1) + source[last:end])

    yield from visit(ast.parse(source))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _number(node: ast.AST) -> float | None:
    """Return the value of a number, with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_number(node.operand):
        return -node.operand.value  # type: ignore[attr-defined,no-any-return]
    return node.value if _is_number(node) else None  # type: ignore[attr-defined,no-any-return]
