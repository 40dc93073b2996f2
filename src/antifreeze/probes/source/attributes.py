"""The attributes of a dataset: what `__init__` puts there, how samples use it, which methods change it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Assignment, Place
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.files import File
from antifreeze.probes.source.persample import Anatomy, changed_attributes, has_yield, local_value
from antifreeze.probes.source.program import CallSite, Program
from antifreeze.probes.syntax import assigned, is_self

_KINDS: dict[type[ast.expr], str] = {
    ast.Lambda: "lambda",
    ast.GeneratorExp: "generator",
    ast.ListComp: "listcomp",
    ast.List: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
}
OTHER = "other"
_OPENERS = ("open", "File", "ZipFile", "TarFile", "memmap", "fdopen", "GzipFile", "LZMAFile", "BZ2File", "Group")
_PLAIN_CALLS = ("list", "dict", "set", "tuple", "collections.defaultdict", "collections.Counter", "collections.deque")
_PLAIN_KINDS = ("list", "listcomp", "dict", "set")


def assignments(program: Program, body: Anatomy) -> Iterator[Assignment]:
    for found, name, node, value in _assigned(program, body):
        used = list(_uses(body, name))
        yield Assignment(
            name=name,
            value=kind_of(program, found, value),
            mode=_mode(found.file, value),
            place=found.file.place(node),
            used_at=used[0][0] if used else None,
            used_as=tuple(dict.fromkeys(how for _, how in used if how)),
        )


def _assigned(program: Program, body: Anatomy) -> Iterator[tuple[FoundDefinition, str, ast.stmt, ast.expr]]:
    """Where, name, statement and value; the value of a local name seen through."""
    for found in body.in_init:
        for node in ast.walk(found.node):
            for target, value in _pairs(node):
                if isinstance(node, ast.stmt) and isinstance(target, ast.Attribute) and is_self(target):
                    yield found, target.attr, node, _seen_through(found.node, value)
    for file, owner in program.definitions.lineage(body.owner):
        for node in owner.body:
            for target, value in _pairs(node):
                if isinstance(target, ast.Name) and isinstance(value, ast.Call | ast.Lambda):
                    yield FoundDefinition(file, owner), target.id, node, value


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values, `a, b = 1, 2` taken apart."""
    for target, value in assigned(node):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _seen_through(function: ast.AST, value: ast.expr) -> ast.expr:
    value = local_value(function, value)
    if isinstance(value, ast.BoolOp):
        value = value.values[-1]
    if isinstance(value, ast.IfExp):
        value = value.body if isinstance(value.body, ast.Call | ast.Lambda) else value.orelse
    return value


def kind_of(program: Program, found: FoundDefinition, value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return _KINDS.get(type(value), OTHER)
    if isinstance(value.func, ast.Attribute) and value.func.attr == "fileno":
        return "fileno"
    callee = program.callee(CallSite(found.file, value))
    if callee is not None and has_yield(callee.node):
        return "generator"
    return found.file.names.called(value) or OTHER


def _mode(file: File, value: ast.expr) -> str | None:
    name = file.names.called(value)
    if not isinstance(value, ast.Call) or name is None or name.rpartition(".")[2] not in _OPENERS:
        return None
    given = next((each.value for each in value.keywords if each.arg == "mode"), None)
    if given is None and len(value.args) > 1:
        given = value.args[1]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


# --- uses


def _uses(body: Anatomy, name: str) -> Iterator[tuple[Place, str]]:
    """Where samples use an attribute, and how; local names for it are seen through."""
    for found in body.per_sample:
        aliases = {
            target.id
            for node in ast.walk(found.node)
            for target, value in assigned(node)
            if isinstance(target, ast.Name) and is_self(value, name)
        }
        for node in ast.walk(found.node):
            is_alias = isinstance(node, ast.Name) and node.id in aliases and isinstance(node.ctx, ast.Load)
            if isinstance(node, ast.expr) and (is_alias or _is_read(node, name)):
                yield found.file.place(node), _how(found.file, node)


def _is_read(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and is_self(node, name) and isinstance(node.ctx, ast.Load)


def _how(file: File, node: ast.expr) -> str:
    parent = file.parents[node]
    match parent:
        case ast.Attribute():
            called = file.parents[parent]
            return parent.attr if isinstance(called, ast.Call) and called.func is parent else ""
        case ast.Subscript(value=value) if value is node:
            return "[]"
        case ast.Call(func=func) if func is node:
            return "()"
        case ast.Call(func=ast.Name(id="next" | "iter" as called_on_it)):
            return called_on_it
        case ast.Call(args=[first, *_]) if first is node and (file.names.called(parent) or "").startswith("os."):
            return file.names.called(parent) or ""
        case ast.withitem():
            return "with"
        case ast.For() | ast.comprehension() | ast.YieldFrom():
            return "iter"
        case _:
            return ""


# --- changes


def changed_by(program: Program, body: Anatomy) -> dict[str, tuple[str, ...]]:
    """Methods → attributes read per sample that they bind anew, or, of plain containers, change where they stand."""
    read, plain = body.reads(), plain_containers(program, body)
    changes = {
        name: tuple(
            sorted(
                {
                    attribute
                    for attribute, _, is_anew in changed_attributes(found.node)
                    if attribute in read and (is_anew or attribute in plain)
                }
            )
        )
        for name, found in body.others.items()
    }
    return {name: attributes for name, attributes in changes.items() if attributes}


def plain_containers(program: Program, body: Anatomy) -> set[str]:
    """Attributes that `__init__` makes as a list, dict or set of Python's own: no other process can see into it."""
    kinds: dict[str, set[str]] = {}
    for found, name, _, value in _assigned(program, body):
        kinds.setdefault(name, set()).add(kind_of(program, found, value))
    return {name for name, those in kinds.items() if those <= {*_PLAIN_CALLS, *_PLAIN_KINDS}}


def plain_values(program: Program, body: Anatomy) -> set[str]:
    """Attributes that `__init__` makes as a plain container or a constant."""
    constants: dict[str, bool] = {}
    for _, name, _, value in _assigned(program, body):
        constants[name] = constants.get(name, True) and isinstance(value, ast.Constant)
    return plain_containers(program, body) | {name for name, is_constant in constants.items() if is_constant}
