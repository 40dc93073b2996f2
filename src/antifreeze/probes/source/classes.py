"""Dataset classes of the user's: what they hold, what runs per sample, and what of that others read."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from antifreeze.doctor.facts import DatasetClass, Sight
from antifreeze.probes.source.attributes import assignments, changed_by, plain_values
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.loaders import LoaderCode, is_dataset_by_name
from antifreeze.probes.source.loops import Changes, LoopCode
from antifreeze.probes.source.outside import read_outside
from antifreeze.probes.source.persample import Anatomy, anatomy
from antifreeze.probes.source.program import CallSite, Program
from antifreeze.probes.source.sights import sights
from antifreeze.probes.source.sights.state import KIND as CHANGES_SELF
from antifreeze.probes.syntax import Function, function_around, is_self, is_under_main_guard, parameters

_SHARDING = re.compile(r"(^|_)(rank|world_size|shards?|split_by|worker|workers|num_replicas)(_|$)|worker_info")


@dataclass(frozen=True, eq=False)
class ClassCode:
    """A dataset class."""

    found: FoundDefinition
    body: Anatomy
    changes: Changes
    changed_by: dict[str, tuple[str, ...]]


def find_classes(program: Program, loaders: Sequence[LoaderCode]) -> list[ClassCode]:
    """Classes that are datasets by their bases, or that are given to a loader."""
    given = {found.node for loader in loaders for found in loader.classes}
    return [
        _class(program, found)
        for found in program.definitions.classes
        if found.node in given or is_dataset_by_name(program, found)
    ]


def _class(program: Program, found: FoundDefinition) -> ClassCode:
    body = anatomy(program, found)
    changed = changed_by(program, body)
    return ClassCode(found, body, Changes(frozenset(changed), frozenset(body.reads())), changed)


def dataset_class(program: Program, code: ClassCode, loops: Sequence[LoopCode]) -> DatasetClass:
    file, node = code.found
    return DatasetClass(
        name=node.name,
        place=file.place(node),
        is_iterable=_is_iterable(program, code),
        is_local=function_around(file.parents, node) is not None,
        is_under_main_guard=is_under_main_guard(file.parents, node),
        assignments=tuple(assignments(program, code.body)),
        sights=tuple(_with_reader(program, code, loops, sight) for sight in sights(program, code.body)),
        asks_for_worker_info=_asks_for_worker_info(program, code.body),
        pickles_itself=not code.body.methods.keys().isdisjoint(("__getstate__", "__reduce__", "__reduce_ex__")),
        changed_by=code.changed_by,
    )


def _is_iterable(program: Program, code: ClassCode) -> bool:
    bases = program.definitions.foreign_bases(code.found)
    if any(base.rpartition(".")[2].endswith("IterableDataset") for base in bases):
        return True
    return "__getitem__" not in code.body.methods and "__iter__" in code.body.methods


def _with_reader(program: Program, code: ClassCode, loops: Sequence[LoopCode], sight: Sight) -> Sight:
    name = sight.what.removeprefix("self.")
    if sight.kind != CHANGES_SELF or name not in plain_values(program, code.body):
        return sight
    return replace(sight, also=read_outside(program, code.body, name, loops))


# --- sharding


def _asks_for_worker_info(program: Program, body: Anatomy) -> bool | None:
    nodes = [node for _, owner in program.definitions.lineage(body.owner) for node in ast.walk(owner)]
    nodes += [node for found in body.functions for node in ast.walk(found.node)]
    if any(_SHARDING.search(name) for node in nodes for name in _words(node)):
        return True
    return None if _hands_over(program, body) else False


def _words(node: ast.AST) -> list[str]:
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.arg():
            return [node.arg]
        case ast.keyword(arg=str(name)):
            return [name]
        case ast.Constant(value=str(text)):
            return [text]
        case _:
            return []


def _hands_over(program: Program, body: Anatomy) -> bool:
    """Whether its items come from an object that was given to it, or from code that is not the user's."""
    if "__iter__" not in body.methods:
        return True
    given = {
        target.attr
        for found in body.in_init
        for node in ast.walk(found.node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        if isinstance(found.node, Function) and node.value.id in parameters(found.node)
        for target in node.targets
        if isinstance(target, ast.Attribute) and is_self(target)
    }
    for found in body.per_sample:
        for node in ast.walk(found.node):
            source = _iterated(node)
            if isinstance(source, ast.Attribute) and is_self(source) and source.attr in given:
                return True
            if isinstance(source, ast.Call) and _is_foreign(program, found, source):
                return True
    return False


def _iterated(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.For() | ast.comprehension():
            return node.iter
        case ast.YieldFrom():
            return node.value
        case ast.Call(func=ast.Name(id="iter"), args=[source]):
            return source
        case _:
            return None


_KNOWN = frozenset(
    ("range", "enumerate", "open", "zip", "map", "filter", "reversed", "sorted", "list", "iter", "itertools.count")
)


def _is_foreign(program: Program, found: FoundDefinition, call: ast.Call) -> bool:
    is_known = found.file.names.called(call) in _KNOWN
    return not is_known and program.callee(CallSite(found.file, call)) is None
