"""Who reads an attribute of a dataset outside of its class, once its loader is being iterated."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from antifreeze.doctor.facts import Place
from antifreeze.probes.source.files import File
from antifreeze.probes.source.loops import LoopCode, objects
from antifreeze.probes.source.persample import Anatomy, self_names
from antifreeze.probes.source.program import Program
from antifreeze.probes.syntax import function_around, is_self, loops_around


def read_outside(program: Program, body: Anatomy, name: str, loops: Sequence[LoopCode]) -> Place | None:
    """The first line that reads it from the very object that a loop goes over, in the same function, after the loop began.

    None also if the program takes samples from that object itself: then there is something to be read.
    """
    readers = {method for method, found in body.others.items() if name in self_names(found.node)}
    for loop, made in objects(list(loops)):
        if program.definitions.find(made.file, made.node.func) != body.owner:  # type: ignore[attr-defined]
            continue
        if _is_used_here(program, made.node):
            continue
        for file, node in _readings(program, {name}, readers, made.node):
            if file is loop.file and _comes_after(file, node, loop):
                return file.place(node)
    return None


def _readings(program: Program, names: set[str], methods: set[str], made: ast.expr) -> Iterator[tuple[File, ast.expr]]:
    """`ds.bad`, and `ds.report()` of a method that reads it."""
    for file in program.files:
        for node in file.nodes:
            if not isinstance(node, ast.Attribute) or is_self(node) or not isinstance(node.ctx, ast.Load):
                continue
            is_reset = isinstance(file.parents[node], ast.Attribute) and file.parents[node].attr == "clear"  # type: ignore[attr-defined]
            if node.attr in names | methods and not is_reset and _is_object(program, file, node.value, made):
                yield file, node


def _is_used_here(program: Program, made: ast.expr) -> bool:
    """Whether the program itself takes samples from the object: `ds[0]`, `for sample in ds`."""
    for file in program.files:
        for node in file.nodes:
            source = node.value if isinstance(node, ast.Subscript) else getattr(node, "iter", None)
            if isinstance(source, ast.Name | ast.Attribute) and _is_object(program, file, source, made):
                return True
    return False


def _is_object(program: Program, file: File, node: ast.expr, made: ast.expr) -> bool:
    return any(origin.node is made for origin in program.origins(file, node))


def _comes_after(file: File, node: ast.expr, loop: LoopCode) -> bool:
    head = loop.node.iter if isinstance(loop.node, ast.comprehension) else loop.node
    if function_around(file.parents, node) is not function_around(file.parents, head):
        return False
    around = set(loops_around(file.parents, head))
    return node.lineno > head.lineno or any(each in around for each in loops_around(file.parents, node))
