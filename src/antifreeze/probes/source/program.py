"""All files that were read, as one program: who calls a function, and where a value comes from.

Answers are only as good as reading can be: what cannot be told is an empty answer, never a guess. Every search is bounded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from antifreeze.probes.source.definitions import Definitions, FoundDefinition
from antifreeze.probes.source.files import File
from antifreeze.probes.syntax import (
    Definition,
    Function,
    assigned,
    class_around,
    function_around,
    is_self,
    own_nodes,
    parameters,
)

# A value that went through more hands than this is not followed.
DEPTH = 8


class Origin(NamedTuple):
    """An expression that a value may come from, and the file that it is in."""

    file: File
    node: ast.expr


class CallSite(NamedTuple):
    """A call, and the file that it is in."""

    file: File
    node: ast.Call


class Program:
    """The files; the script is the first."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self.definitions = Definitions(files)
        self._origins: dict[tuple[ast.expr, int], list[Origin]] = {}
        self._bindings: dict[ast.AST, dict[str, list[Binding]]] = {}
        self._of_classes: dict[ast.AST, dict[str, list[ast.expr]]] = {}
        self._direct = self._direct_callers()
        self._through_objects: dict[Definition, list[CallSite]] = {}
        for site in self._method_calls():
            if (found := self._method_of_object(site)) is not None:
                self._through_objects.setdefault(found.node, []).append(site)
        self._origins.clear()  # they were found without knowing all callers

    # --- calls

    def callers(self, function: Function) -> list[CallSite]:
        if isinstance(function, ast.Lambda):
            return []
        return [*self._direct.get(function, []), *self._through_objects.get(function, [])]

    def callee(self, site: CallSite) -> FoundDefinition | None:
        """The function of the user's that is called: of a class, its `__init__`; of an object of the user's, its method."""
        found = self.definitions.find(site.file, site.node.func)
        if found is None:
            return self._method_of_object(site)
        return self.definitions.method(found, "__init__") if isinstance(found.node, ast.ClassDef) else found

    def _direct_callers(self) -> dict[Definition, list[CallSite]]:
        callers: dict[Definition, list[CallSite]] = {}
        for site in self._calls():
            found = self.definitions.find(site.file, site.node.func)
            if found is not None and isinstance(found.node, ast.ClassDef):
                found = self.definitions.method(found, "__init__")
            if found is not None:
                callers.setdefault(found.node, []).append(site)
        return callers

    def _calls(self) -> Iterator[CallSite]:
        for file in self.files:
            yield from (CallSite(file, node) for node in file.nodes if isinstance(node, ast.Call))

    def _method_calls(self) -> list[CallSite]:
        """Calls that may be of a method of a class of the user's."""
        methods = {name for found in self.definitions.classes for name in self.definitions.methods(found)}
        return [
            site
            for site in self._calls()
            if isinstance(site.node.func, ast.Attribute) and site.node.func.attr in methods
        ]

    def _method_of_object(self, site: CallSite) -> FoundDefinition | None:
        called = site.node.func
        if not isinstance(called, ast.Attribute) or is_self(called):
            return None
        owner = self.only_class(site.file, called.value)
        return None if owner is None else self.definitions.method(owner, called.attr)

    def argument(self, function: Function, call: ast.Call, name: str) -> ast.expr | None:
        """What a call gives for a parameter."""
        given = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if given is not None or any(isinstance(each, ast.Starred) for each in call.args):
            return given
        names = parameters(function)
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        place = names.index(name) if name in names else len(call.args)
        return call.args[place] if place < len(call.args) else None

    # --- values

    def only_class(self, file: File, node: ast.expr) -> FoundDefinition | None:
        """The class of the user's that a value is an object of, if that can be told."""
        origins = self.origins(file, node)
        if len(origins) != 1 or not isinstance(origins[0].node, ast.Call):
            return None
        found = self.definitions.find(origins[0].file, origins[0].node.func)
        return found if found is not None and isinstance(found.node, ast.ClassDef) else None

    def origins(self, file: File, node: ast.expr, *, depth: int = DEPTH) -> list[Origin]:
        """The expressions that a value may come from: names, attributes of self, parameters and functions followed."""
        if depth <= 0:
            return []
        if (node, depth) not in self._origins:
            self._origins[node, depth] = []  # what refers to itself has no other origin
            self._origins[node, depth] = list(dict.fromkeys(self._find_origins(file, node, depth=depth - 1)))
        return self._origins[node, depth]

    def _find_origins(self, file: File, node: ast.expr, *, depth: int) -> Iterator[Origin]:
        match node:
            case ast.IfExp():
                yield from self.origins(file, node.body, depth=depth)
                yield from self.origins(file, node.orelse, depth=depth)
            case ast.Name():
                yield from self._of_name(file, node, depth=depth)
            case ast.Attribute():
                yield from self._of_attribute(file, node, depth=depth)
            case ast.Call():
                yield from self._of_call(file, node, depth=depth)
            case _:
                yield Origin(file, node)

    def _of_name(self, file: File, node: ast.Name, *, depth: int) -> Iterator[Origin]:
        scope: ast.AST | None = node
        while scope is not None:
            function = function_around(file.parents, scope)
            bound = self._bound(function or file.tree, node.id)
            for each in bound:
                yield from self._of_binding(file, each, depth=depth)
            if bound:
                return
            if function is not None and node.id in parameters(function):
                yield from self._of_parameter(function, node.id, depth=depth)
                return
            scope = function
        yield from self._of_import(file, node.id, depth=depth)

    def _bound(self, scope: ast.AST, name: str) -> list[Binding]:
        if scope not in self._bindings:
            found = self._bindings[scope] = {}
            for each, binding in all_bindings(scope):
                found.setdefault(each, []).append(binding)
        return self._bindings[scope].get(name, [])

    def _of_import(self, file: File, name: str, *, depth: int) -> Iterator[Origin]:
        module, _, name = file.names.imports.get(name, "").rpartition(".")
        there = self.definitions.module(module)
        if there is not None:
            for each in self._bound(there.tree, name):
                yield from self._of_binding(there, each, depth=depth)

    def _of_binding(self, file: File, binding: Binding, *, depth: int) -> Iterator[Origin]:
        found = self.origins(file, binding.value, depth=depth)
        if binding.part is None:
            yield from found
            return
        for each in found:
            if isinstance(each.node, ast.Tuple | ast.List) and binding.part < len(each.node.elts):
                yield from self.origins(each.file, each.node.elts[binding.part], depth=depth)
            else:
                yield Origin(file, ast.Subscript(each.node, ast.Constant(binding.part), ast.Load()))

    def _of_parameter(self, function: Function, name: str, *, depth: int) -> Iterator[Origin]:
        for file, call in self.callers(function):
            given = self.argument(function, call, name)
            if given is not None:
                yield from self.origins(file, given, depth=depth)

    def _of_attribute(self, file: File, node: ast.Attribute, *, depth: int) -> Iterator[Origin]:
        if is_self(node):
            around = class_around(file.parents, node)
            if around is not None:
                yield from self.of_self(FoundDefinition(file, around), node.attr, depth=depth)
            return
        for owner in self.origins(file, node.value, depth=depth):
            if isinstance(owner.node, ast.Call):
                given = next((each.value for each in owner.node.keywords if each.arg == node.attr), None)
                if given is None and node.attr == "dataset" and owner.node.args:
                    given = owner.node.args[0]
                if given is not None:
                    yield from self.origins(owner.file, given, depth=depth)

    def of_self(self, owner: FoundDefinition, name: str, *, depth: int = DEPTH) -> Iterator[Origin]:
        """Where the values come from that methods of a class assign to `self.name`."""
        for file, node in self.definitions.lineage(owner):
            if node not in self._of_classes:
                values = self._of_classes[node] = {}
                for target, value in (pair for each in ast.walk(node) for pair in assigned(each)):
                    if isinstance(target, ast.Attribute) and is_self(target):
                        values.setdefault(target.attr, []).append(value)
            for value in self._of_classes[node].get(name, []):
                yield from self.origins(file, value, depth=depth)

    def _of_call(self, file: File, node: ast.Call, *, depth: int) -> Iterator[Origin]:
        found = self.definitions.find(file, node.func)
        if found is None or isinstance(found.node, ast.ClassDef):
            yield Origin(file, node)
            return
        for each in own_nodes(found.node):
            if isinstance(each, ast.Return) and each.value is not None:
                yield from self.origins(found.file, each.value, depth=depth)


class Binding(NamedTuple):
    """What a name is bound to."""

    value: ast.expr
    part: int | None = None
    """Which part of it, where it is unpacked."""


def bindings(scope: ast.AST, name: str) -> Iterator[Binding]:
    """All that a name is bound to in a function or module."""
    return (binding for each, binding in all_bindings(scope) if each == name)


def all_bindings(scope: ast.AST) -> Iterator[tuple[str, Binding]]:
    """Names and what they are bound to; of loops and `+=`, an expression that tells nothing."""
    for node in own_nodes(scope):
        for target, value in assigned(node):
            if isinstance(target, ast.Name):
                yield target.id, Binding(value)
            elif isinstance(target, ast.Tuple | ast.List):
                for part, each in enumerate(target.elts):
                    if isinstance(each, ast.Name):
                        yield each.id, Binding(value, part)
        if isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name):
                    yield name.id, Binding(ast.Starred(ast.Constant(None), ast.Load()))
