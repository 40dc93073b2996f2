"""Where something live comes from: the line of a function or class, or the one where an attribute is assigned.

Objects are read without asking them, files without importing them. What is not in a file of the user's has no place.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from antifreeze.doctor.facts import Place
from antifreeze.engine.crossing.reading import ancestors, is_a, module_of, namespace_of
from antifreeze.probes.places import PlaceMaker, is_ours, is_users
from antifreeze.probes.syntax import Definition, assigned, definitions, statements, targets

_QUALIFIED_NAME: Any = type.__dict__["__qualname__"]
_CODE_OF_RUNNING: dict[type, str] = {
    types.GeneratorType: "gi_code",
    types.CoroutineType: "cr_code",
    types.AsyncGeneratorType: "ag_code",
}
_FIRST = ("__init__", "__new__", "__post_init__")
# To parse a line takes some 20 µs; who has longer files has made them with a program.
MOST_LINES = 30_000
Function = ast.FunctionDef | ast.AsyncFunctionDef
Way = Iterable[tuple[Any, str]]
"""Objects, each with the name (`attribute`, `<variable>`) that leads on from it; the last comes first."""


class AssignedLine(NamedTuple):
    """A statement that gives something a value."""

    line: int
    target: ast.expr
    is_constant: bool
    """Whether the value is a literal: `self.file = None`."""


def place_of(thing: Any) -> Place | None:
    """Where the code of a function or class is, or of what an object does when it is called."""
    while is_a(thing, functools.partial):
        thing = functools.partial.func.__get__(thing)
    if is_a(thing, types.MethodType):
        thing = thing.__func__
    if is_a(thing, types.FunctionType):
        return _place_of_code(thing.__code__)
    if type(thing) in _CODE_OF_RUNNING:
        return _place_of_code(getattr(thing, _CODE_OF_RUNNING[type(thing)]))
    return class_at(thing if is_a(thing, type) else type(thing))


def class_at(kind: type) -> Place | None:
    """Where a class of the user's is defined."""
    found = class_node(kind)
    return None if found is None else _place(found[0], found[1].lineno, found[1].name)


def assigned_at(owner: Any, attribute: str) -> Place | None:
    """Where this attribute of an object is assigned: in its class, or in the script, if that is the only such line."""
    kind = owner if is_a(owner, type) else type(owner)
    for each in ancestors(kind):
        found = class_node(each)
        if found is not None and (line := _assigned_in_class(found[1], attribute)) is not None:
            return _place(found[0], *line)
    return _assigned_from_outside(attribute) if class_node(kind) is not None else None


def assigned_on(way: Way) -> Place | None:
    """The line of the user's that is nearest to the end of this way."""
    for owner, name in way:
        if is_a(owner, types.FunctionType) and name.startswith("<"):
            found = variable_assigned_at(owner, name.strip("<>"))
        else:
            found = assigned_at(owner, name)
        if found is not None:
            return found
    return None


def global_assigned_at(module: str, name: str) -> Place | None:
    """Where a global of a module is assigned."""
    file = file_of_module(module)
    found = tree_of(file) if is_of_the_user(file) else None
    if found is None:
        return None
    return _first(file, _of_name(statements(found.body), name))


def variable_assigned_at(function: types.FunctionType, name: str) -> Place | None:
    """Where a variable is assigned that a function has from those around it."""
    file = function.__code__.co_filename
    if not is_of_the_user(file):
        return None
    outer, _, _ = function.__qualname__.rpartition(".<locals>.")
    around = (node for known, node in definitions_in(file) if known == outer and isinstance(node, Function))
    return _first(file, (each for node in around for each in _of_name(statements(node.body), name)))


def _of_name(nodes: Iterable[ast.AST], name: str) -> Iterator[AssignedLine]:
    for each in assignments(nodes):
        if isinstance(each.target, ast.Name) and each.target.id == name:
            yield each


def _first(file: str, found: Iterable[AssignedLine]) -> Place | None:
    lines = sorted((each.is_constant, each.line) for each in found)
    return _place(file, lines[0][1]) if lines else None


def _place_of_code(code: types.CodeType) -> Place | None:
    if not is_of_the_user(code.co_filename):
        return None
    return _place(code.co_filename, code.co_firstlineno, code.co_name)


# --- classes


def class_node(kind: type) -> tuple[str, ast.ClassDef] | None:
    """The file and the definition of a class of the user's."""
    codes = [
        value.__code__
        for value in namespace_of(kind).values()
        if is_a(value, types.FunctionType) and value.__qualname__.startswith(_QUALIFIED_NAME.__get__(kind) + ".")
    ]
    # Some of the methods may have been made for it, by dataclasses and the like.
    files = (code.co_filename for code in codes if is_of_the_user(code.co_filename) and tree_of(code.co_filename))
    file = next(files, "") or file_of_module(module_of(kind))
    if not is_of_the_user(file):
        return None
    name = _QUALIFIED_NAME.__get__(kind)
    nodes = [node for known, node in definitions_in(file) if known == name and isinstance(node, ast.ClassDef)]
    lines = {code.co_firstlineno for code in codes if code.co_filename == file}
    exact = [node for node in nodes if lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))]
    chosen = next(iter(exact or nodes), None)
    return None if chosen is None else (file, chosen)


def _assigned_in_class(node: ast.ClassDef, attribute: str) -> tuple[int, str] | None:
    """Line and method; the first that gives it more than a literal, `__init__` before all others."""
    found = [
        (each.is_constant, method.name not in _FIRST, each.line, method.name)
        for method in node.body
        if isinstance(method, Function) and (own := _own_name(method))
        for each in assignments(ast.walk(method))
        if isinstance(each.target, ast.Attribute)
        and each.target.attr == attribute
        and isinstance(each.target.value, ast.Name)
        and each.target.value.id == own
    ]
    found += [(each.is_constant, True, each.line, node.name) for each in _of_name(node.body, attribute)]
    return min(found)[2:] if found else None


def _own_name(method: Function) -> str:
    arguments = [*method.args.posonlyargs, *method.args.args]
    return arguments[0].arg if arguments else ""


def _assigned_from_outside(attribute: str) -> Place | None:
    """`dataset.lock = …` in the script."""
    file = main_file()
    found = tree_of(file) if file else None
    if found is None:
        return None
    lines = [
        each.line
        for each in assignments(ast.walk(found))
        if isinstance(each.target, ast.Attribute)
        and each.target.attr == attribute
        and not (isinstance(each.target.value, ast.Name) and each.target.value.id in ("self", "cls"))
    ]
    return _place(file, lines[0]) if len(lines) == 1 else None


# --- files


def _place(file: str, line: int, function: str = "") -> Place:
    """A line, as it is told to the user."""
    return PlaceMaker(base=_root(), cwd=_root()).place(absolute(file), line, function)


def absolute(file: str) -> str:
    """Where a file of the program is; what a notebook or the interpreter calls a file stays as it is."""
    if file.startswith("<") or os.path.isabs(file):
        return file
    here = os.path.abspath(file)
    return here if os.path.exists(here) else os.path.join(_root(), file)


def is_of_the_user(file: str) -> bool:
    """Whether this is code of the user's; methods that libraries make for a class are not."""
    return bool(file) and not file.startswith("<string") and is_users(absolute(file))


def file_of_module(name: str) -> str:
    """The source file of a loaded module; empty if it has none."""
    found = getattr(sys.modules.get(name), "__file__", None)
    return found if isinstance(found, str) and found.endswith((".py", ".pyw")) else ""


def main_file() -> str:
    """The script; empty if there is none, or if it is one of ours."""
    file = file_of_module("__main__")
    return "" if is_ours(os.path.abspath(file)) else file


def is_interactive() -> bool:
    """Whether the program is typed in, or a notebook: there is no file that another process could import."""
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None


def _root() -> str:
    file = main_file()
    return os.path.dirname(os.path.abspath(file)) if file else os.getcwd()


@functools.lru_cache(32)
def tree_of(file: str) -> ast.Module | None:
    """The syntax tree of a file."""
    lines = linecache.getlines(absolute(file))
    if not lines or len(lines) > MOST_LINES:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(32)
def definitions_in(file: str) -> tuple[tuple[str, Definition], ...]:
    """As `syntax.definitions`, of a file."""
    found = tree_of(file)
    return () if found is None else tuple(definitions(found))


def assignments(nodes: Iterable[ast.AST]) -> Iterator[AssignedLine]:
    """What these give a value, each target for itself."""
    for node in nodes:
        given = [(node.target, node.iter)] if isinstance(node, ast.For | ast.AsyncFor) else assigned(node)
        for target, value in given:
            for each in targets(target):
                yield AssignedLine(each.lineno, each, isinstance(value, ast.Constant))


# --- ways


class WalkedPaths:
    """The paths of a walk, so that the way to each object can be told."""

    def __init__(self) -> None:
        self._things: dict[str, Any] = {}

    def add(self, path: str, thing: Any) -> None:
        self._things[path] = thing

    def owner(self, path: str) -> Any:
        """The nearest object on the way that holds this one under a name; None if there is none."""
        return next((owner for owner, _ in self._way(path)), None)

    def place(self, path: str) -> Place | None:
        """Where something of the user's on the way to this object is assigned, the nearest line to it."""
        found = assigned_on(self._way(path))
        if found is not None:
            return found
        for module, name in _splits(path):
            if module in sys.modules and module not in self._things:
                return global_assigned_at(module, name)
        return None

    def _way(self, path: str) -> Iterator[tuple[Any, str]]:
        return ((self._things[before], name) for before, name in _splits(path) if before in self._things)


def _splits(path: str) -> Iterator[tuple[str, str]]:
    """`a.b[0].c` → (`a.b[0]`, `c`), (`a`, `b`)."""
    end = len(path)
    while (end := path.rfind(".", 0, end)) > 0:
        name = path[end + 1 :].partition(".")[0].partition("[")[0].partition("{")[0]
        yield path[:end], name
