"""The main module of a program: whether and how another process may import it.

A script with a main guard is imported in a clean stem, as multiprocessing's spawn would do it. A script without one is
never run again: its functions and classes travel by value.
"""

from __future__ import annotations

import ast
import io
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MainModule:
    """What the other side is told about the main module."""

    path: str | None
    """The file to import it from; None: it must not be imported."""
    package: str | None
    names: frozenset[str]
    """What the other side has after importing it: functions, classes, and what is given a name."""
    imports: frozenset[str] = frozenset()
    """Modules that importing it imports, and names that may be modules."""


def describe_main() -> MainModule:
    """The main module of this process."""
    main = sys.modules["__main__"]
    body = _importable_body(_source())
    if body is None or _is_package_main(main):
        return MainModule(None, None, frozenset())
    names = frozenset(chain.from_iterable(map(_names, body)))
    path = os.path.normpath(Path(str(main.__file__)).absolute())  # as multiprocessing does
    return MainModule(path, main.__package__, names, frozenset(_imports(body)))


def _is_package_main(main: types.ModuleType) -> bool:
    """Whether this is the `__main__` of a package or directory: multiprocessing does not import that either."""
    name = getattr(main.__spec__, "name", "")
    return name == "__main__" or name.endswith(".__main__")


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


def _importable_body(source: str | None) -> list[ast.stmt] | None:
    """The statements outside the main guard; None if there is no guard (or no source)."""
    try:
        body = ast.parse(source).body if source is not None else []
    except SyntaxError:
        return None
    if not any(is_guard(statement) for statement in body):
        return None
    return [statement for statement in body if not is_guard(statement)]


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Try(body, _, otherwise, finally_):
                yield from _imports([*body, *otherwise, *finally_])
            case ast.If(_, body, otherwise):
                yield from _imports([*body, *otherwise])
            case ast.With(_, body):
                yield from _imports(body)


def _names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name
        case ast.Assign(targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(ast.Name(name)):
            yield name


def is_guard(statement: ast.stmt) -> bool:
    """Whether this is `if __name__ == "__main__":`, in whatever words."""
    if not isinstance(statement, ast.If) or any(isinstance(node, ast.NotEq) for node in ast.walk(statement.test)):
        return False
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    texts = {node.value for node in ast.walk(statement.test) if isinstance(node, ast.Constant)}
    return "__name__" in names and "__main__" in texts
