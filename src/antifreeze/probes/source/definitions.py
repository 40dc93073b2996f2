"""Where the classes and functions of the user's are defined, over all files that were read."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from antifreeze.probes.source.files import File
from antifreeze.probes.syntax import Definition, ancestors, class_around, function_around

# Names that are handed on over more files, and longer lines of ancestors, are not followed.
DEPTH = 8


class FoundDefinition(NamedTuple):
    """A definition, and the file that it is in."""

    file: File
    node: Definition


class Definitions:
    """The classes and functions of some files."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self._named: dict[File, dict[str, list[Definition]]] = {file: {} for file in files}
        self._lineages: dict[Definition, list[FoundDefinition]] = {}
        self._methods: dict[Definition, dict[str, FoundDefinition]] = {}
        self.classes: list[FoundDefinition] = []
        for file in files:
            for node in file.nodes:
                if isinstance(node, Definition) and not isinstance(file.parents[node], ast.ClassDef):
                    self._named[file].setdefault(node.name, []).append(node)
                if isinstance(node, ast.ClassDef):
                    self.classes.append(FoundDefinition(file, node))

    def find(self, file: File, node: ast.expr) -> FoundDefinition | None:
        """The class or function of the user's that a name stands for; methods of `self` included."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            around = class_around(file.parents, node)
            return None if around is None else self.method(FoundDefinition(file, around), node.attr)
        if isinstance(node, ast.Name):
            scopes = set(ancestors(file.parents, node))
            visible = [each for each in self._named[file].get(node.id, []) if _scope(file, each) in scopes]
            if visible:
                return FoundDefinition(file, visible[-1])
        dotted = file.names.dotted(node)
        return None if dotted is None else self._imported(dotted, depth=DEPTH)

    def _imported(self, dotted: str, *, depth: int) -> FoundDefinition | None:
        module, _, name = dotted.rpartition(".")
        file = self.module(module)
        if file is None or not depth:
            return None
        top = [each for each in self._named[file].get(name, []) if _scope(file, each) is file.tree]
        if top:
            return FoundDefinition(file, top[-1])
        again = file.names.imports.get(name)
        return None if again is None else self._imported(again, depth=depth - 1)

    def module(self, dotted: str) -> File | None:
        """The file that is imported by a name; a script in a package may leave the package out of the name."""
        exact = (each for each in self._files if dotted and each.module == dotted)
        near = (each for each in self._files if dotted and each.module.endswith(f".{dotted}"))
        return next(exact, None) or next(near, None)

    def lineage(self, found: FoundDefinition) -> list[FoundDefinition]:
        """A class and its bases that are the user's, the nearest first."""
        if found.node not in self._lineages:
            line, waiting = list[FoundDefinition](), [found]
            while waiting and len(line) < DEPTH:
                each = waiting.pop(0)
                if each not in line and isinstance(each.node, ast.ClassDef):
                    line.append(each)
                    bases = (self.find(each.file, _plain(base)) for base in each.node.bases)
                    waiting.extend(base for base in bases if base is not None)
            self._lineages[found.node] = line
        return self._lineages[found.node]

    def foreign_bases(self, found: FoundDefinition) -> set[str]:
        """Dotted names of the bases, of it and of its ancestors, that are not the user's."""
        return {
            file.names.dotted(_plain(base)) or ""
            for file, node in self.lineage(found)
            if isinstance(node, ast.ClassDef)
            for base in node.bases
            if self.find(file, _plain(base)) is None
        }

    def methods(self, found: FoundDefinition) -> dict[str, FoundDefinition]:
        """Its methods, inherited ones included."""
        if found.node not in self._methods:
            named = self._methods[found.node] = {}
            for file, node in self.lineage(found):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        named.setdefault(each.name, FoundDefinition(file, each))
        return self._methods[found.node]

    def method(self, found: FoundDefinition, name: str) -> FoundDefinition | None:
        return self.methods(found).get(name)


def _scope(file: File, node: ast.AST) -> ast.AST:
    """The function or module that a definition belongs to."""
    return function_around(file.parents, node) or file.tree


def _plain(base: ast.expr) -> ast.expr:
    """`Dataset[int]` → `Dataset`."""
    return base.value if isinstance(base, ast.Subscript) else base
