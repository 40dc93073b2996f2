"""Where a sample ends otherwise than with a result: None, an exit, an endless loop, an iterator that runs dry; or starts
processes, which a worker may not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.persample import Anatomy, has_yield
from antifreeze.probes.source.program import CallSite, Program
from antifreeze.probes.syntax import Function, own_nodes

_EXITS = frozenset(("sys.exit", "os._exit", "os.abort", "exit", "quit"))
_PROCESSES = frozenset(
    (
        "multiprocessing.Pool",
        "multiprocessing.Process",
        "multiprocessing.Manager",
        "multiprocessing.spawn",
        "concurrent.futures.ProcessPoolExecutor",
    )
)


def look(program: Program, body: Anatomy) -> Iterator[Sight]:
    yield from _none_in_except(program, body)
    for found in (*body.per_sample, *body.functions):
        for node in ast.walk(found.node):
            yield from _exit(found, node)
            yield from _process(found, node)
            yield from _endless(found, node)
            yield from _next(found, node)


def _exit(found: FoundDefinition, node: ast.AST) -> Iterator[Sight]:
    name = found.file.names.called(node)
    if isinstance(node, ast.Call) and name in _EXITS:
        yield Sight(kind="exit", what=name, place=found.file.place(node))
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if found.file.names.dotted(raised) == "SystemExit":
            yield Sight(kind="exit", what="raise SystemExit", place=found.file.place(node))


def _process(found: FoundDefinition, node: ast.AST) -> Iterator[Sight]:
    name = found.file.names.called(node)
    if isinstance(node, ast.Call) and name in _PROCESSES:
        yield Sight(kind="process-pool", what=name, place=found.file.place(node))


def _endless(found: FoundDefinition, node: ast.AST) -> Iterator[Sight]:
    """A loop without a bound: only what happens in it can end it."""
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value and not _yields(node):
        yield Sight(kind="endless-loop", what=f"while {ast.unparse(node.test)}", place=found.file.place(node))


def _yields(loop: ast.While) -> bool:
    return has_yield(loop)


def _next(found: FoundDefinition, node: ast.AST) -> Iterator[Sight]:
    """`next(it)` without a default, outside of a `try`: in `__getitem__`, its StopIteration ends the epoch."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "next"
        and len(node.args) == 1
        and not isinstance(node.args[0], ast.GeneratorExp)
        and not any(_catches(each) for each in _tries_around(found, node))
    ):
        yield Sight(kind="next", what=found.file.written(node), place=found.file.place(node))


def _tries_around(found: FoundDefinition, node: ast.AST) -> Iterator[ast.Try]:
    inner: ast.AST = node
    while inner is not found.node:
        parent = found.file.parents[inner]
        if isinstance(parent, ast.Try) and inner in parent.body:
            yield parent
        inner = parent


def _catches(node: ast.Try) -> bool:
    """Whether it catches a StopIteration."""
    caught = [ast.unparse(each.type) if each.type else "Exception" for each in node.handlers]
    return any("StopIteration" in each or "Exception" in each.split(".") for each in caught)


# --- None


def _none_in_except(program: Program, body: Anatomy) -> Iterator[Sight]:
    """In `__getitem__`, and in functions whose result it returns as it is."""
    entry = next((found for found in body.per_sample if found.node.name == "__getitem__"), None)
    for found in [] if entry is None else [entry, *_returned(program, entry)]:
        if not has_yield(found.node):
            for node in own_nodes(found.node):
                if isinstance(node, ast.Try):
                    yield from _none_of(found, node)


def _returned(program: Program, entry: FoundDefinition) -> Iterator[FoundDefinition]:
    for node in own_nodes(entry.node):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            found = program.callee(CallSite(entry.file, node.value))
            if found is not None and found.node is not entry.node:
                yield found


def _none_of(found: FoundDefinition, node: ast.Try) -> Iterator[Sight]:
    is_last = isinstance(found.node, Function) and found.node.body[-1] is node and not node.finalbody
    for each in node.handlers:
        last = each.body[-1]
        returns = isinstance(last, ast.Return) and (last.value is None or ast.unparse(last.value) == "None")
        falls_out = is_last and not isinstance(
            last, ast.Return | ast.Raise | ast.Continue | ast.If | ast.With | ast.Try
        )
        falls_out = falls_out and any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        if returns or (falls_out and not _exits(found, last)):
            what = ast.unparse(each.type) if each.type else "all exceptions"
            place, also = found.file.place(last), found.file.place(each)
            yield Sight(kind="returns-none-in-except", what=what, place=place, also=also)


def _exits(found: FoundDefinition, node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and found.file.names.called(node.value) in _EXITS
