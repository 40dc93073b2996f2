"""Questions about a syntax tree: what surrounds a node, what is defined and assigned in it, under which guard. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

Parents = Mapping[ast.AST, ast.AST]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parents_of(nodes: Iterable[ast.AST]) -> dict[ast.AST, ast.AST]:
    return {child: node for node in nodes for child in ast.iter_child_nodes(node)}


def ancestors(parents: Parents, node: ast.AST) -> Iterator[ast.AST]:
    """From its parent outwards."""
    while node in parents:
        node = parents[node]
        yield node


def function_around(parents: Parents, node: ast.AST) -> Function | None:
    return next((each for each in ancestors(parents, node) if isinstance(each, Function)), None)


def class_around(parents: Parents, node: ast.AST) -> ast.ClassDef | None:
    return next((each for each in ancestors(parents, node) if isinstance(each, ast.ClassDef)), None)


def loops_around(parents: Parents, node: ast.AST) -> Iterator[Loop]:
    """The loops of the same function that run it again and again, the innermost first."""
    inner = node
    for each in ancestors(parents, node):
        if isinstance(each, Function | ast.ClassDef):
            return
        if isinstance(each, ast.For | ast.AsyncFor) and inner is not each.iter and inner not in each.orelse:
            yield each
        if isinstance(each, ast.While) and inner not in each.orelse:
            yield each
        inner = each


def is_under_main_guard(parents: Parents, node: ast.AST) -> bool:
    inner = node
    for each in ancestors(parents, node):
        if isinstance(each, ast.If) and is_main_guard(each) and inner in each.body:
            return True
        inner = each
    return False


def is_main_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, either way round, also as a part of a condition."""
    if not isinstance(node, ast.If):
        return False
    return any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], ast.Eq)
        and {"__name__", "'__main__'"} == {ast.unparse(each.left), ast.unparse(each.comparators[0])}
        for each in ast.walk(node.test)
    )


def is_module_level(parents: Parents, node: ast.AST) -> bool:
    return function_around(parents, node) is None and not is_under_main_guard(parents, node)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, without those of functions and classes that are defined in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.ClassDef):
            yield from own_nodes(child)


def body_nodes(block: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in block:
        yield from ast.walk(statement)


def parameters(function: Function) -> list[str]:
    """Names of its parameters in the order of positions, then those by keyword only."""
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values, of anything that assigns."""
    match node:
        case ast.Assign():
            yield from ((target, node.value) for target in node.targets)
        case ast.AnnAssign(value=ast.expr()) | ast.NamedExpr():
            assert node.value is not None
            yield node.target, node.value
        case ast.withitem(optional_vars=ast.expr()):
            assert node.optional_vars is not None
            yield node.optional_vars, node.context_expr


def targets(target: ast.expr) -> Iterator[ast.expr]:
    """What an assignment or loop target gives a value, each for itself."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from targets(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def target_names(target: ast.expr) -> Iterator[str]:
    """Those of them that are plain names."""
    yield from (each.id for each in targets(target) if isinstance(each, ast.Name))


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These and all statements in them, and what `with` binds, without those of functions and classes that they define."""
    for node in body:
        if isinstance(node, ast.stmt | ast.withitem):
            yield node
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case) and not isinstance(node, Definition):
            yield from statements(ast.iter_child_nodes(node))


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Classes and functions below a node, by their qualified names; a name may occur more than once."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield f"{prefix}{child.name}", child
            yield from definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, Definition):
            yield f"{prefix}{child.name}", child
            yield from definitions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from definitions(child, prefix)


def is_self(node: ast.AST, name: str | None = None) -> bool:
    """Whether it is `self.name`, or `self.` anything."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and name in (None, node.attr)
    )


def comes_before(parents: Parents, one: ast.AST, other: ast.AST) -> bool:
    """Whether `one` has always run when `other` does, for the blocks that it stands in are around `other`, too."""
    around = {other, *ancestors(parents, other)}
    inner = one
    for each in ancestors(parents, one):
        if each in around:
            return _is_before(each, inner, other, around)
        if isinstance(each, Function | ast.ClassDef | ast.If | ast.Try | ast.While | ast.For | ast.ExceptHandler) and (
            not isinstance(each, ast.If | ast.While) or inner is not each.test
        ):
            return False
        inner = each
    return False


def _is_before(common: ast.AST, one: ast.AST, other: ast.AST, around: set[ast.AST]) -> bool:
    """Of two nodes below a common one: whether the first is in the same block and earlier, or is its condition."""
    if isinstance(common, ast.If | ast.While) and one is common.test:
        return True
    for name in ("body", "orelse", "finalbody"):
        block = getattr(common, name, None)
        if isinstance(block, list) and one in block:
            later = next((each for each in block if each in around), None)
            return later is not None and block.index(one) < block.index(later)
    return False
