"""The main module of a program: whether and how another process may import it.

A script with a main guard is imported in a clean stem, as multiprocessing's spawn would do it. A script without one is
never run again: its functions and classes travel by value.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

_COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.With, ast.For, ast.While)


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
    name: str | None = None
    """What it was run as by `python -m`; None: as a file."""


NOT_IMPORTED = MainModule(None, None, frozenset())
"""Its functions and classes travel by value."""


def describe_main() -> MainModule:
    """The main module of this process."""
    main = sys.modules["__main__"]
    body = _importable_body(_source())
    if body is None or _is_package_main(main):
        return NOT_IMPORTED
    names = frozenset(chain.from_iterable(map(names_given, body)))
    path = os.path.normpath(Path(str(main.__file__)).absolute())  # as multiprocessing does
    return MainModule(path, main.__package__, names, frozenset(_imports(body)), getattr(main.__spec__, "name", None))


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
    if description.name is not None and (spec := importlib.util.find_spec(description.name)) is not None:
        module.__spec__, module.__loader__, module.__cached__ = spec, spec.loader, spec.cached  # type: ignore[attr-defined]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    with io.open_code(description.path) as file:
        # Not as if it had the `from __future__ import annotations` of this file.
        code = compile(file.read(), description.path, "exec", dont_inherit=True)
    exec(code, vars(module))


def _source() -> bytes | None:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        return None
    try:
        return Path(path).read_bytes()  # the compiler knows of marks and comments that say how it is encoded
    except OSError:
        return None


def _importable_body(source: bytes | str | None) -> list[ast.stmt] | None:
    """The statements outside the main guard, also those inside others; None if there is no guard (or no source)."""
    try:
        body = ast.parse(source).body if source is not None else []
    except (SyntaxError, ValueError):  # not Python, or not even text
        return None
    statements = list(run_on_import(body))
    is_guarded = any(map(guarded_part, statements)) or _asks_elsewhere(statements)
    return [each for each in statements if not is_guard(each)] if is_guarded else None


def run_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """These statements and all inside them that an import may run."""
    for statement in body:
        yield statement
        if isinstance(statement, _COMPOUND):
            guarded = guarded_part(statement)
            for part in ("body", "handlers", "orelse", "finalbody"):
                for each in getattr(statement, part, []) if part != guarded else ():
                    yield from run_on_import(each.body if isinstance(each, ast.ExceptHandler) else [each])


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)


def names_given(statement: ast.stmt) -> Iterator[str]:
    """Of functions, classes, and what is assigned to; imports are left out."""
    match statement:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name
        case ast.Assign(targets):
            places = chain.from_iterable(map(ast.walk, targets))
            yield from (each.id for each in places if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        case ast.AnnAssign(ast.Name(name)):
            yield name


def is_guard(statement: ast.stmt) -> bool:
    """Whether this is `if __name__ == "__main__":`, in whatever words."""
    return guarded_part(statement) == "body"


def guarded_part(statement: ast.stmt) -> Literal["body", "orelse"] | None:
    """The part of this statement that an import does not run because of a main guard; None if it is no guard."""
    match statement:
        case ast.If(test, _, orelse) | ast.Expr(ast.IfExp(test, _, orelse)) if _asks_whether_main(test):
            if not _asks_whether_not(test):
                return "body"
            return "orelse" if orelse else None
        case ast.Expr(ast.BoolOp(ast.And()) as test) if _asks_whether_main(test) and not _asks_whether_not(test):
            return "body"
        case ast.Match(ast.Name("__name__"), cases) if any("__main__" in _texts(case.pattern) for case in cases):
            return "body"
    return None


def _asks_elsewhere(statements: list[ast.stmt]) -> bool:
    """Whether an import tests a variable that tells whether this is the main module, or calls a function that asks."""
    asking: set[str] = set()
    for statement in statements:
        match statement:
            case ast.Assign([ast.Name(name)], value) if _asks_whether_main(value):
                asking.add(name)
            case ast.FunctionDef(name) if any(map(_compares_with_main, ast.walk(statement))):
                asking.add(name)
            case ast.If(part) | ast.Expr(part) if asking & _names_in([part]):
                return True
            case ast.FunctionDef(decorator_list=parts) if asking & _names_in(parts):
                return True
    return False


def _names_in(parts: list[ast.expr]) -> set[str]:
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def _compares_with_main(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and not {"__main__", "__mp_main__"}.isdisjoint(_texts(node))


def _asks_whether_not(test: ast.expr) -> bool:
    for node in ast.walk(test):
        match node:
            case ast.UnaryOp(ast.Not(), operand) if _asks_whether_main(operand):
                return not _asks_whether_not(operand)
            case ast.Compare(ops=ops) if _asks_whether_main(node):
                return isinstance(ops[0], ast.NotEq) != ("__mp_main__" in _texts(node))
    return False


def _asks_whether_main(test: ast.expr) -> bool:
    """By the name of the module, or of the process."""
    names = {getattr(node, "id", None) or getattr(node, "attr", None) for node in ast.walk(test)}
    texts = _texts(test)
    says_main = any("main" in each for each in texts if isinstance(each, str))  # __name__.startswith("__main"), say
    return ("__name__" in names and says_main) or ("current_process" in names and "MainProcess" in texts)


def _texts(node: ast.AST) -> set[Any]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
