"""What runs for every sample: `__getitem__` or `__iter__` of a class, and all of the user's that they call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.program import CallSite, Program, bindings
from antifreeze.probes.syntax import assigned, is_self, own_nodes

ENTRIES = ("__getitem__", "__getitems__", "__iter__", "__next__")
# A class whose samples need more functions than this is looked at in part.
MOST_FUNCTIONS = 60
# Methods that change a list, dict or set where it stands.
CHANGING = frozenset(
    ("append", "add", "extend", "insert", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear")
)


@dataclass(frozen=True, eq=False)
class Anatomy:
    """A dataset class, its methods by their part in its life."""

    owner: FoundDefinition
    methods: dict[str, FoundDefinition]
    per_sample: tuple[FoundDefinition, ...]
    """Methods that run per sample, `__getitem__` or `__iter__` first."""
    functions: tuple[FoundDefinition, ...]
    """Functions that these call."""
    in_init: tuple[FoundDefinition, ...]
    """`__init__`, those of its bases, and the methods that only they call."""

    @property
    def others(self) -> dict[str, FoundDefinition]:
        """Methods that belong to neither."""
        taken = {found.node for found in (*self.per_sample, *self.in_init)}
        return {name: found for name, found in self.methods.items() if found.node not in taken}

    def reads(self) -> set[str]:
        """Attributes of self that are read per sample."""
        return {
            node.attr
            for found in self.per_sample
            for node in ast.walk(found.node)
            if isinstance(node, ast.Attribute) and is_self(node) and isinstance(node.ctx, ast.Load)
        } - set(self.methods)


def anatomy(program: Program, owner: FoundDefinition) -> Anatomy:
    methods = program.definitions.methods(owner)
    entries = [methods[name] for name in ENTRIES if name in methods]
    reached = _reached(program, owner, entries)
    own = {found.node for found in methods.values()}
    inits = [
        FoundDefinition(file, each)
        for file, node in program.definitions.lineage(owner)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    return Anatomy(
        owner=owner,
        methods=methods,
        per_sample=tuple(found for found in reached if found.node in own),
        functions=tuple(found for found in reached if found.node not in own),
        in_init=(*inits, *_only_called_by(inits, methods)),
    )


def _reached(program: Program, owner: FoundDefinition, entries: list[FoundDefinition]) -> list[FoundDefinition]:
    reached, waiting = list[FoundDefinition](), list(entries)
    while waiting and len(reached) < MOST_FUNCTIONS:
        found = waiting.pop(0)
        if found not in reached:
            reached.append(found)
            waiting.extend(_called(program, owner, found))
    return reached


def _called(program: Program, owner: FoundDefinition, caller: FoundDefinition) -> Iterator[FoundDefinition]:
    """Functions and methods of the user's; a property is called where it is read."""
    for node in ast.walk(caller.node):
        if isinstance(node, ast.Attribute) and is_self(node):
            method = program.definitions.method(owner, node.attr)
            if method is not None and method.node.name != "__init__":
                yield method
        elif isinstance(node, ast.Call) and not is_self(node.func):
            found = program.callee(CallSite(caller.file, node))
            if found is not None and found.node.name != "__init__":
                yield found


def _only_called_by(inits: list[FoundDefinition], methods: dict[str, FoundDefinition]) -> Iterator[FoundDefinition]:
    called = {name for found in inits for name in self_names(found.node)} & set(methods)
    for name in sorted(called):
        users = [each for each in methods.values() if name in self_names(each.node)]
        if all(user in inits for user in users) and name not in ENTRIES:
            yield methods[name]


def self_names(node: ast.AST) -> set[str]:
    """Attributes of self that occur in it."""
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_self(each)}


def changed_attributes(function: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr, bool]]:
    """Attributes of self that it changes: name, where, and whether it is bound anew (or changed where it stands)."""
    for node in ast.walk(function):
        targets = [target for target, _ in assigned(node)]
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        if isinstance(node, ast.Delete):
            targets = node.targets
        for target in (part for each in targets for part in _parts(each)):
            if isinstance(node, ast.stmt) and isinstance(target, ast.Attribute) and is_self(target):
                yield target.attr, node, True
            elif isinstance(node, ast.stmt) and isinstance(target, ast.Subscript) and is_self(target.value):
                assert isinstance(target.value, ast.Attribute)
                yield target.value.attr, node, False
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CHANGING
            and isinstance(node.func.value, ast.Attribute)
            and is_self(node.func.value)
        ):
            yield node.func.value.attr, node, False


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def local_value(function: ast.AST, node: ast.expr) -> ast.expr:
    """What a local name stands for, if it is bound once."""
    if isinstance(node, ast.Name):
        bound = list(bindings(function, node.id))
        if len(bound) == 1 and bound[0].part is None:
            return bound[0].value
    return node


def has_yield(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))
