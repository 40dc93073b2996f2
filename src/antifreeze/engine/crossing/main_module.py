"""The main module of a program: whether and how another process may import it.

A script with a main guard is imported in a clean stem, as multiprocessing's spawn would do it. A script without one is
never run again: its functions and classes travel by value.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class MainModule:
    """What the other side is told about the main module."""

    preparation: dict[str, Any]
    """For `multiprocessing.spawn.prepare`; without a way to the main module if it must not be imported."""
    names: frozenset[str]
    """Functions and classes that the other side has after importing it."""


def describe_main() -> MainModule:
    """The main module of this process."""
    preparation = spawn.get_preparation_data("antifreeze stem")
    preparation["authkey"] = bytes(preparation["authkey"])  # else it refuses to be pickled
    names = _importable_names(_source())
    if names is None:
        preparation.pop("init_main_from_name", None)
        preparation.pop("init_main_from_path", None)
    return MainModule(preparation, names or frozenset())


def _source() -> str | None:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _importable_names(source: str | None) -> frozenset[str] | None:
    """Names of the functions and classes outside the main guard; None if there is no guard (or no source)."""
    try:
        body = ast.parse(source).body if source is not None else []
    except SyntaxError:
        return None
    if not any(_is_guard(statement) for statement in body):
        return None
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(statement.name for statement in body if isinstance(statement, definitions))


def _is_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    texts = {node.value for node in ast.walk(statement.test) if isinstance(node, ast.Constant)}
    return "__name__" in names and "__main__" in texts
