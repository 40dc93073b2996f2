"""Where something live comes from: the line of a function or class, or the one where an attribute is assigned.

Objects are read without asking them. What is not in a file of the user's has no place.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from antifreeze.doctor.facts import Place
from antifreeze.engine.crossing.reading import ancestors, is_a, module_of, namespace_of
from antifreeze.probes.objects import source
from antifreeze.probes.objects.source import Assignment, Function

_QUALIFIED_NAME: Any = type.__dict__["__qualname__"]
_CODE_OF_RUNNING: dict[type, str] = {
    types.GeneratorType: "gi_code",
    types.CoroutineType: "cr_code",
    types.AsyncGeneratorType: "ag_code",
}
_FIRST = ("__init__", "__new__", "__post_init__")
Way = Iterable[tuple[Any, str]]
"""Objects, each with the name (`attribute`, `<variable>`) that leads on from it; the last comes first."""


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
    return None if found is None else source.place(found[0], found[1].lineno, found[1].name)


def assigned_at(owner: Any, attribute: str) -> Place | None:
    """Where this attribute of an object is assigned: in its class, or in the script, if that is the only such line."""
    kind = owner if is_a(owner, type) else type(owner)
    for each in ancestors(kind):
        found = class_node(each)
        if found is not None and (line := _assigned_in_class(found[1], attribute)) is not None:
            return source.place(found[0], *line)
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
    file = source.file_of_module(module)
    found = source.tree(file) if source.is_users(file) else None
    if found is None:
        return None
    return _first(file, _of_name(source.statements(found.body), name))


def variable_assigned_at(function: types.FunctionType, name: str) -> Place | None:
    """Where a variable is assigned that a function has from those around it."""
    file = function.__code__.co_filename
    if not source.is_users(file):
        return None
    outer, _, _ = function.__qualname__.rpartition(".<locals>.")
    around = (node for known, node in source.definitions(file) if known == outer and isinstance(node, Function))
    return _first(file, (each for node in around for each in _of_name(source.statements(node.body), name)))


def _of_name(statements: Iterable[ast.AST], name: str) -> Iterator[Assignment]:
    for each in source.assignments(statements):
        if isinstance(each.target, ast.Name) and each.target.id == name:
            yield each


def _first(file: str, found: Iterable[Assignment]) -> Place | None:
    lines = sorted((each.is_constant, each.line) for each in found)
    return source.place(file, lines[0][1]) if lines else None


def _place_of_code(code: types.CodeType) -> Place | None:
    if not source.is_users(code.co_filename):
        return None
    return source.place(code.co_filename, code.co_firstlineno, code.co_name)


# --- classes


def class_node(kind: type) -> tuple[str, ast.ClassDef] | None:
    """The file and the definition of a class of the user's."""
    codes = [
        value.__code__
        for value in namespace_of(kind).values()
        if is_a(value, types.FunctionType) and value.__qualname__.startswith(_QUALIFIED_NAME.__get__(kind) + ".")
    ]
    # Some of the methods may have been made for it, by dataclasses and the like.
    files = (code.co_filename for code in codes if source.is_users(code.co_filename) and source.tree(code.co_filename))
    file = next(files, "") or source.file_of_module(module_of(kind))
    if not source.is_users(file):
        return None
    name = _QUALIFIED_NAME.__get__(kind)
    nodes = [node for known, node in source.definitions(file) if known == name and isinstance(node, ast.ClassDef)]
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
        for each in source.assignments(ast.walk(method))
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
    file = source.main_file()
    found = source.tree(file) if file else None
    if found is None:
        return None
    lines = [
        each.line
        for each in source.assignments(ast.walk(found))
        if isinstance(each.target, ast.Attribute)
        and each.target.attr == attribute
        and not (isinstance(each.target.value, ast.Name) and each.target.value.id in ("self", "cls"))
    ]
    return source.place(file, lines[0]) if len(lines) == 1 else None


# --- ways


class Trodden:
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
