"""The main module of a program: whether and how another process may import it.

A script with a main guard is imported in a clean stem, as multiprocessing's spawn would do it. A script without one is
never run again: its functions and classes travel by value.
"""

from __future__ import annotations

import ast
import io
import sys
import types
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MainModule:
    """What the other side is told about the main module."""

    path: str | None
    """The file to import it from; None: it must not be imported."""
    package: str | None
    names: frozenset[str]
    """Functions and classes that the other side has after importing it."""


def describe_main() -> MainModule:
    """The main module of this process."""
    main = sys.modules["__main__"]
    names = _importable_names(_source())
    if names is None:
        return MainModule(None, None, frozenset())
    return MainModule(str(Path(str(main.__file__)).absolute()), main.__package__, names)


def import_main(description: MainModule) -> None:
    """Make the program's main module this process's, under the name that a main guard does not let through.

    (multiprocessing's own way would leave functions with globals that are not the module's, and which cannot be set.)
    """
    if description.path is None:
        return
    module = types.ModuleType("__mp_main__")
    module.__file__ = description.path
    module.__package__ = description.package
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    with io.open_code(description.path) as file:
        code = compile(file.read(), description.path, "exec")
    exec(code, vars(module))


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
    if not isinstance(statement, ast.If) or any(isinstance(node, ast.NotEq) for node in ast.walk(statement.test)):
        return False
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    texts = {node.value for node in ast.walk(statement.test) if isinstance(node, ast.Constant)}
    return "__name__" in names and "__main__" in texts
