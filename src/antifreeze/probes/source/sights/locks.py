"""Locks that a sample holds while it reads: as long as one worker has it, the others wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.names import ends_with
from antifreeze.probes.source.persample import Anatomy
from antifreeze.probes.source.program import Origin, Program
from antifreeze.probes.source.sights.fixed import is_fixed
from antifreeze.probes.syntax import is_self

_LOCKS = frozenset(
    (
        "threading.Lock",
        "threading.RLock",
        "multiprocessing.Lock",
        "multiprocessing.RLock",
        "multiprocessing.Manager().Lock",
        "multiprocessing.Manager().RLock",
        "filelock.FileLock",
        "fasteners.InterProcessLock",
    )
)
_READS = frozenset(("open", "read", "imread", "load", "recv", "get", "loads", "readline", "read_bytes", "read_text"))


def look(program: Program, body: Anatomy) -> Iterator[Sight]:
    for found in body.per_sample:
        for node in ast.walk(found.node):
            if isinstance(node, ast.With | ast.AsyncWith) and _covers_a_read(found, node):
                for held in node.items:
                    maker = _maker(program, body, found, held.context_expr)
                    if maker is not None:
                        what = found.file.written(held.context_expr)
                        place = found.file.place(node)
                        yield Sight(kind="lock-around-read", what=what, place=place, made_by=maker)


def _covers_a_read(found: FoundDefinition, node: ast.With | ast.AsyncWith) -> bool:
    """Whether all that `__getitem__` does is in it, or something is read in it."""
    is_whole = found.node.name in ("__getitem__", "__getitems__") and node is found.node.body[-1]
    return is_whole or any(
        isinstance(each, ast.Call) and ends_with(found.file.names.called(each), _READS)
        for statement in node.body
        for each in ast.walk(statement)
    )


def _maker(program: Program, body: Anatomy, found: FoundDefinition, held: ast.expr) -> str | None:
    """What made the lock that is held; None: it is none, or it is another one for every sample."""
    if isinstance(held, ast.Call):
        name = found.file.names.called(held)
        is_one = bool(held.args) and is_fixed(program, body, found, held.args[0])
        return name if name in _LOCKS and is_one else None
    is_own = isinstance(held, ast.Attribute) and is_self(held)
    origins: list[Origin] = (
        list(program.of_self(body.owner, held.attr))
        if is_own and isinstance(held, ast.Attribute)
        else program.origins(found.file, held)
    )
    names = {each.file.names.called(each.node) for each in origins}
    return names.pop() if len(names) == 1 and names <= _LOCKS else None
