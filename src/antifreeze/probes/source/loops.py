"""`for … in loader`, in all its forms: what it keeps of its batches, what is around it, what is done to its dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from antifreeze.doctor.facts import LoaderLoop, Place
from antifreeze.probes.source.files import File
from antifreeze.probes.source.kept import keeps_all, kept_by_comprehension, kept_by_loop
from antifreeze.probes.source.loaders import LoaderCode
from antifreeze.probes.source.names import ends_with
from antifreeze.probes.source.program import Origin, Program
from antifreeze.probes.syntax import (
    Definition,
    Function,
    Loop,
    assigned,
    function_around,
    is_module_level,
    loops_around,
)

# Of a call in `for … in call(loader)`: not every function hands its argument's items on.
_NO_WRAPPERS = frozenset(("len", "range", "str", "repr", "id", "type", "sum", "next", "print"))
_COLLECTORS = frozenset(("list", "tuple", "sorted"))
_DEPTH = 4
Iteration = ast.For | ast.AsyncFor | ast.comprehension | ast.Call


@dataclass(frozen=True)
class Changes:
    """What changes a dataset class, as far as samples can see."""

    methods: frozenset[str]
    attributes: frozenset[str]


@dataclass(frozen=True, eq=False)
class LoopCode:
    """A loop over a loader."""

    file: File
    node: Iteration
    fact: LoaderLoop
    loaders: tuple[LoaderCode, ...]


def find_loops(program: Program, loaders: list[LoaderCode], changes: Mapping[Definition, Changes]) -> list[LoopCode]:
    """The loops over these loaders; `changes` tells of the dataset classes what changes them."""
    by_node = {loader.node: loader for loader in loaders}
    loops = []
    for file in program.files:
        for node, iterated in _iterations(file):
            found = [by_node[each] for each in _loader_calls(program, file, iterated) if each in by_node]
            if found:
                loops.append(_loop(program, file, node, tuple(dict.fromkeys(found)), changes))
    return loops


def _iterations(file: File) -> Iterator[tuple[Iteration, ast.expr]]:
    for node in file.nodes:
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node, node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            is_iter = node.func.id == "iter" and not _is_iterated(file, node)
            if is_iter or node.func.id in _COLLECTORS:
                yield node, node.args[0]


def _is_iterated(file: File, node: ast.Call) -> bool:
    """Whether `iter(…)` stands in the head of a loop, which is found anyway."""
    inner: ast.AST = node
    while isinstance(inner, ast.expr):
        parent = file.parents[inner]
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension):
            return parent.iter is inner
        inner = parent
    return False


def _loader_calls(program: Program, file: File, iterated: ast.expr) -> Iterator[ast.Call]:
    """The calls that make what is iterated; `enumerate`, `tqdm` and the like seen through."""
    for origin in program.origins(file, iterated):
        if isinstance(origin.node, ast.Call):
            yield origin.node
    if isinstance(iterated, ast.Call) and not ends_with(file.names.called(iterated), _NO_WRAPPERS):
        for each in iterated.args:
            if not isinstance(each, ast.Starred):
                yield from _loader_calls(program, file, each)


def _loop(
    program: Program,
    file: File,
    node: Iteration,
    loaders: tuple[LoaderCode, ...],
    changes: Mapping[Definition, Changes],
) -> LoopCode:
    head = node.iter if isinstance(node, ast.comprehension) else node
    around = _around(program, file, head, depth=_DEPTH)
    calls = [] if around is None else _dataset_calls(program, *around, loaders=loaders, changes=changes)
    kept = tuple(_kept(file, node))
    fact = LoaderLoop(
        place=file.place(head),
        loader=loaders[0].fact.place if len(loaders) == 1 else None,
        is_module_level=is_module_level(file.parents, head),
        called_from=_called_from(program, file, head, depth=_DEPTH),
        kept=kept,
        keeps_all=bool(kept) and _keeps_all(file, node),
        breaks=tuple(file.place(each) for each in _breaks(node)),
        epochs=None if around is None else around[0].place(around[1]),
        dataset_calls=tuple(calls),
    )
    return LoopCode(file, node, fact, loaders)


def _kept(file: File, node: Iteration) -> Iterator[Place]:
    match node:
        case ast.For() | ast.AsyncFor():
            yield from kept_by_loop(file, node)
        case ast.comprehension():
            yield from kept_by_comprehension(file, node)
        case ast.Call(func=ast.Name(id=name)) if name in _COLLECTORS:
            yield file.place(node)


def _keeps_all(file: File, node: Iteration) -> bool:
    match node:
        case ast.For() | ast.AsyncFor():
            return keeps_all(file, node)
        case ast.comprehension():
            around = file.parents[node]
            return isinstance(around, ast.ListComp) and ast.unparse(around.elt) == ast.unparse(node.target)
        case _:
            return True


def _breaks(node: Iteration) -> Iterator[ast.Break]:
    """Those that leave this loop, and no inner one."""
    waiting: list[ast.AST] = list(node.body) if isinstance(node, ast.For | ast.AsyncFor) else []
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, ast.Break):
            yield each
        if not isinstance(each, Loop | Function | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(each))


# --- around it


def _around(program: Program, file: File, node: ast.AST, *, depth: int) -> tuple[File, Loop] | None:
    """The nearest loop around it, also one around a call of the function that it is in."""
    loop = next(loops_around(file.parents, node), None)
    if loop is not None:
        return file, loop
    function = function_around(file.parents, node)
    if function is None or not depth:
        return None
    found = (_around(program, where, call, depth=depth - 1) for where, call in program.callers(function))
    return next((each for each in found if each is not None), None)


def _called_from(program: Program, file: File, node: ast.AST, *, depth: int) -> Place | None:
    function = function_around(file.parents, node)
    if function is None or not depth:
        return None
    for where, call in program.callers(function):
        if is_module_level(where.parents, call):
            return where.place(call)
        found = _called_from(program, where, call, depth=depth - 1)
        if found is not None:
            return found
    return None


def _dataset_calls(
    program: Program,
    file: File,
    around: Loop,
    *,
    loaders: tuple[LoaderCode, ...],
    changes: Mapping[Definition, Changes],
) -> Iterator[Place]:
    made = {origin.node for loader in loaders for origin in loader.datasets}
    for node in ast.walk(around):
        for owner, text in _changes(program, file, node, changes):
            if any(origin.node in made for origin in program.origins(file, owner)):
                assert isinstance(node, ast.expr | ast.stmt)
                yield file.place(node, text=text)


def _changes(
    program: Program, file: File, node: ast.AST, changes: Mapping[Definition, Changes]
) -> Iterator[tuple[ast.expr, str]]:
    """Objects of which this node changes what samples read, and how that is written."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and any(node.func.attr in each.methods for each in _of(program, file, node.func.value, changes))
    ):
        yield node.func.value, file.written(node)
    for target, value in assigned(node):
        if isinstance(target, ast.Attribute) and any(
            target.attr in each.attributes for each in _of(program, file, target.value, changes)
        ):
            yield target.value, f"{ast.unparse(target)} = {file.written(value)}"


def _of(program: Program, file: File, owner: ast.expr, changes: Mapping[Definition, Changes]) -> Iterator[Changes]:
    for origin in program.origins(file, owner):
        found = program.definitions.find(origin.file, origin.node.func) if isinstance(origin.node, ast.Call) else None
        if found is not None and found.node in changes:
            yield changes[found.node]


def objects(loops: list[LoopCode]) -> Iterator[tuple[LoopCode, Origin]]:
    """The loops, and the calls that make their datasets."""
    for loop in loops:
        for loader in loop.loaders:
            yield from ((loop, origin) for origin in loader.datasets)
