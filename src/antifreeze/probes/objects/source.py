"""Source files of the patient: their lines, their syntax trees, and what is assigned where in them.

Nothing is run and nothing is imported. A file that cannot be read, or parsed, has no lines and no tree.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from antifreeze.doctor.facts import Place
from antifreeze.probes import places

# To parse a line takes some 20 µs; who has longer files has made them with a program.
MOST_LINES = 30_000
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Assignment(NamedTuple):
    """A statement that gives something a value."""

    line: int
    target: ast.expr
    is_constant: bool
    """Whether the value is a literal: `self.file = None`."""


def place(file: str, line: int, function: str = "") -> Place:
    """A line, as it is told to the user."""
    return places.Places(base=_root(), cwd=_root()).place(absolute(file), line, function)


def absolute(file: str) -> str:
    """Where a file of the program is; what a notebook or the interpreter calls a file stays as it is."""
    if file.startswith("<") or os.path.isabs(file):
        return file
    here = os.path.abspath(file)
    return here if os.path.exists(here) else os.path.join(_root(), file)


def is_users(file: str) -> bool:
    """Whether this is code of the user's; methods that libraries make for a class are not."""
    return bool(file) and not file.startswith("<string") and places.is_users(absolute(file))


def file_of_module(name: str) -> str:
    """The source file of a loaded module; empty if it has none."""
    found = getattr(sys.modules.get(name), "__file__", None)
    return found if isinstance(found, str) and found.endswith((".py", ".pyw")) else ""


def main_file() -> str:
    """The script; empty if there is none, or if it is one of ours."""
    file = file_of_module("__main__")
    return "" if places.is_ours(os.path.abspath(file)) else file


def is_interactive() -> bool:
    """Whether the program is typed in, or a notebook: there is no file that another process could import."""
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None


def _root() -> str:
    file = main_file()
    return os.path.dirname(os.path.abspath(file)) if file else os.getcwd()


@functools.lru_cache(32)
def tree(file: str) -> ast.Module | None:
    """The syntax tree of a file."""
    lines = linecache.getlines(absolute(file))
    if not lines or len(lines) > MOST_LINES:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(32)
def definitions(file: str) -> tuple[tuple[str, ast.ClassDef | Function], ...]:
    """Classes and functions of a file, by their qualified names; a name may occur more than once."""
    found = tree(file)
    return () if found is None else tuple(_definitions(found, ""))


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield f"{prefix}{child.name}", child
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, Function):
            yield f"{prefix}{child.name}", child
            yield from _definitions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child, prefix)


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These and all statements in them, but not those of functions and classes that they define."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case) and not isinstance(
            node, ast.ClassDef | Function
        ):
            yield from statements(ast.iter_child_nodes(node))


def assignments(nodes: Iterable[ast.AST]) -> Iterator[Assignment]:
    """What these statements give a value, each target for itself."""
    for node in nodes:
        match node:
            case ast.Assign(targets, value):
                found = [(target, value) for target in targets]
            case ast.AnnAssign(target, _, ast.expr() as value):
                found = [(target, value)]
            case ast.With(items) | ast.AsyncWith(items):
                found = [(each.optional_vars, each.context_expr) for each in items if each.optional_vars is not None]
            case ast.For(target, value) | ast.AsyncFor(target, value):
                found = [(target, value)]
            case _:
                continue
        for target, value in found:
            for each in _flat(target):
                yield Assignment(each.lineno, each, isinstance(value, ast.Constant))


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target
