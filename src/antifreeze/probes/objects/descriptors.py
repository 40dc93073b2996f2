"""Descriptors of open files that an object keeps as plain numbers: `self.fd = os.open(path, os.O_RDONLY)`.

A number is one only if this process has a file open under it, and the source of the object's class reads or moves it.
"""

from __future__ import annotations

import ast
import functools
import os
import stat
from collections.abc import Iterator
from typing import Any, TypeGuard

from antifreeze.doctor.facts import Held
from antifreeze.engine.crossing.reading import ancestors, attributes_of
from antifreeze.machine import path_of
from antifreeze.probes.objects.origins import Function, assigned_at, class_node

# Of the module os: they read at the position that all who have the file share, or move it.
MOVING = frozenset(("read", "readv", "lseek", "sendfile"))


def kept_descriptors(path: str, thing: Any) -> Iterator[Held]:
    """Those that this object keeps itself."""
    kind: type = type(thing)
    for name in _moved_by(kind):
        number = attributes_of(thing).get(name)
        if type(number) is int and number > 2 and (file := _file_of(number)) is not None:
            what = f"descriptor {number} of the open file {file!r}"
            where = assigned_at(thing, name)
            yield Held(path=f"{path}.{name}", kind="file", what=what, shares_position=True, place=where)


def _file_of(number: int) -> str | None:
    """The name of a regular file."""
    try:
        return path_of(number) if stat.S_ISREG(os.fstat(number).st_mode) else None
    except OSError:  # nothing is open there
        return None


@functools.lru_cache(256)
def _moved_by(kind: type) -> frozenset[str]:
    """The attributes that methods of a class of the user's give to `os.read` and the like."""
    nodes = (found[1] for each in ancestors(kind) if (found := class_node(each)) is not None)
    methods = (method for node in nodes for method in node.body if isinstance(method, Function))
    return frozenset(name for method in methods for name in _moved_in(method))


def _moved_in(method: Function) -> Iterator[str]:
    names = {
        target.id: value.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Assign) and _is_own(value := node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=called), args=[given, *_]) if (
                called in MOVING
            ):
                if _is_own(given):
                    yield given.attr
                elif isinstance(given, ast.Name) and given.id in names:
                    yield names[given.id]


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
