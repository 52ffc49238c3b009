"""The source of a function as a tree, in which layout, comments, docstrings, annotations and the version of Python do not show.

A source file may have been edited since it was imported. It is believed only if it compiles to the very code that runs.
"""

import ast
import inspect
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

LAMBDA = "<lambda>"
WITH_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NO_MATTER = {"annotation", "returns", "type_params", "type_comment", "kind", "ctx"}
"""Fields that do not change what is computed, or follow from the others."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Place = tuple[int, int]
"""Line and column."""


class _Module(NamedTuple):
    """A source file: its functions, and what they compile to."""

    nodes: list[Function]
    codes: list[types.CodeType]


def source_tree(code: types.CodeType) -> Iterator[bytes] | None:
    """The tree of the function that has this code, as bytes; None where its source is not to be had."""
    try:
        lines, _ = inspect.findsource(code)
        module = _read("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError, IndexError, RecursionError):
        return None
    if not any(_same(one, code) for one in module.codes):
        return None  # another version of it runs
    node = _node(module.nodes, code)
    return None if node is None else _walk(node, root=True)


@lru_cache(maxsize=32)
def _read(text: str) -> _Module:
    tree = ast.parse(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return _Module(nodes, list(_nested(compile(tree, "<source>", "exec", dont_inherit=True))))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two pieces of code do the same, wherever they stand."""
    alike = all(
        getattr(one, field) == getattr(other, field)
        for field in ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_argcount", "co_kwonlyargcount")
    )
    if not alike or len(one.co_consts) != len(other.co_consts):
        return False
    for a, b in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
            if not _same(a, b):
                return False
        elif type(a) is not type(b) or repr(a) != repr(b):
            return False
    return one.co_firstlineno == other.co_firstlineno


def _node(nodes: list[Function], code: types.CodeType) -> Function | None:
    """The function's node: the only one with its name and first line, or the lambda that its instructions lie in."""
    found = [node for node in nodes if _name(node) == code.co_name and _first_line(node) == code.co_firstlineno]
    if len(found) < 2:
        return found[0] if found else None
    spans = [((a, c), (b, d)) for a, b, c, d in code.co_positions() if a and b and c is not None and d and (a, c) < (b, d)]
    if code.co_name != LAMBDA or not spans:
        return None
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    around = [node for node in found if isinstance(node, ast.Lambda) and _holds(node.body, first, last)]
    return min(around, key=lambda node: _length(node.body), default=None)


def _name(node: Function) -> str:
    return LAMBDA if isinstance(node, ast.Lambda) else node.name


def _first_line(node: Function) -> int:
    """The number of the first line, decorators included, as code has it."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(one.lineno for one in decorators)])


def _ends(node: ast.expr) -> tuple[Place, Place]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _holds(node: ast.expr, first: Place, last: Place) -> bool:
    start, end = _ends(node)
    return start <= first and last <= end


def _length(node: ast.expr) -> Place:
    start, end = _ends(node)
    return end[0] - start[0], end[1] - start[1]


def _walk(node: ast.AST, root: bool = False) -> Iterator[bytes]:
    """A node and all below; fields that are empty are left out, as other versions of Python may not have them."""
    yield type(node).__name__.encode()
    for field in sorted(node._fields):
        value = getattr(node, field, None)
        if field in NO_MATTER or value is None or value == [] or (root and field == "decorator_list"):
            continue
        yield field.encode()
        if field == "body" and isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            value = value[1:]
        if isinstance(node, ast.Constant):
            yield f"{type(value).__name__} {value!r}".encode()
            continue
        for one in value if isinstance(value, list) else [value]:
            yield from _walk(one) if isinstance(one, ast.AST) else [f"{type(one).__name__} {one!r}".encode()]
