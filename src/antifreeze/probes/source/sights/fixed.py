"""Whether an expression is the same in every worker and for every sample."""

from __future__ import annotations

import ast

from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.persample import Anatomy, changed_attributes, local_value
from antifreeze.probes.source.program import Program
from antifreeze.probes.syntax import is_self

# Calls that give the same for the same arguments.
_PURE = frozenset(("str", "os.path.join", "os.path.abspath", "os.path.expanduser", "pathlib.Path", "os.fspath"))
_PURE_METHODS = frozenset(("format", "joinpath", "with_suffix", "with_name", "as_posix", "absolute", "resolve"))


def is_fixed(program: Program, body: Anatomy, found: FoundDefinition, node: ast.expr, *, depth: int = 6) -> bool:
    """Whether it is made of constants, of names of the module and of attributes of self that no sample changes."""
    if depth == 0:
        return False

    def is_so(each: ast.expr) -> bool:
        return is_fixed(program, body, found, each, depth=depth - 1)

    match node:
        case ast.Constant():
            return True
        case ast.JoinedStr():
            return all(is_so(each) for each in node.values)
        case ast.FormattedValue():
            return is_so(node.value)
        case ast.BinOp():
            return is_so(node.left) and is_so(node.right)
        case ast.Tuple() | ast.List():
            return all(is_so(each) for each in node.elts)
        case ast.Attribute() if is_self(node):
            return _is_fixed_attribute(program, body, node.attr)
        case ast.Name():
            return _is_fixed_name(program, body, found, node, depth=depth)
        case ast.Call():
            return _is_pure(found, node) and all(
                is_so(each) for each in (*_owner(node), *node.args, *(keyword.value for keyword in node.keywords))
            )
        case _:
            return False


def _is_fixed_attribute(program: Program, body: Anatomy, name: str) -> bool:
    """Whether only `__init__` assigns it, from nothing that depends on the process."""
    changers = [found for found in body.methods.values() if found not in body.in_init]
    if any(name == changed for found in changers for changed, _, _ in changed_attributes(found.node)):
        return False
    if name in body.methods or _is_assigned_from_outside(program, name):
        return False
    text = " ".join(ast.unparse(origin.node) for origin in program.of_self(body.owner, name))
    return not any(word in text for word in ("getpid", "worker", "rank", "tempfile", "uuid", "time"))


def _is_assigned_from_outside(program: Program, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store) and not is_self(node)
        for file in program.files
        for node in file.nodes
    )


def _is_fixed_name(program: Program, body: Anatomy, found: FoundDefinition, node: ast.Name, *, depth: int) -> bool:
    """A local name is what it stands for; a name of the module is fixed if it is bound once, to something fixed."""
    value = local_value(found.node, node)
    if value is node:
        value = local_value(found.file.tree, node)
    return value is not node and is_fixed(program, body, found, value, depth=depth - 1)


def _is_pure(found: FoundDefinition, node: ast.Call) -> bool:
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _PURE_METHODS
    return is_method or found.file.names.called(node) in _PURE


def _owner(node: ast.Call) -> list[ast.expr]:
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _PURE_METHODS
    return [node.func.value] if is_method and isinstance(node.func, ast.Attribute) else []
