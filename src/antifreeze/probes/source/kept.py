"""Batches that a loop keeps: put, as they are or as a view, into something that outlives the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Place
from antifreeze.probes.source.files import File
from antifreeze.probes.source.program import Binding, bindings
from antifreeze.probes.syntax import assigned, body_nodes, function_around, target_names

# What these give still lies in the memory of the batch. `cpu` copies only what was on another device.
_VIEWS = {
    *(
        "numpy",
        "cpu",
        "detach",
        "view",
        "view_as",
        "reshape",
        "squeeze",
        "unsqueeze",
        "flatten",
        "permute",
        "transpose",
    ),
    *("t", "contiguous", "narrow", "select", "expand", "values", "items", "unbind", "split", "chunk", "requires_grad_"),
}
_PUTS = frozenset(("append", "extend", "insert", "add", "update", "appendleft"))
_CONTAINERS = frozenset(("list", "tuple", "dict", "zip"))
_EMPTIES = frozenset(("clear", "pop", "popleft", "popitem"))


def kept_by_loop(file: File, loop: ast.For | ast.AsyncFor) -> Iterator[Place]:
    views = _views_in(file, loop)
    for node in body_nodes(loop.body):
        for container, value in _stores(node):
            if _is_view(value, views) and _outlives(file, loop, container):
                assert isinstance(node, ast.expr | ast.stmt)
                yield file.place(node)


def kept_by_comprehension(file: File, head: ast.comprehension) -> Iterator[Place]:
    """`[batch for batch in loader]`."""
    around = file.parents[head]
    views = set(target_names(head.target))
    if isinstance(around, ast.ListComp | ast.SetComp) and around.generators[-1] is head and _is_view(around.elt, views):
        yield file.place(around)
    if isinstance(around, ast.DictComp) and around.generators[-1] is head and _is_view(around.value, views):
        yield file.place(around)


def keeps_all(file: File, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop keeps all that a batch consists of, and not only a part of it."""
    parts, stored = set(target_names(_batch(file, loop))), set[str]()
    stands_for = {name: {name} for name in parts}
    for node in sorted(body_nodes(loop.body), key=lambda each: getattr(each, "lineno", 0)):
        for target, value in assigned(node):
            whole = _whole(value, stands_for)
            if isinstance(target, ast.Name):
                stands_for[target.id] = whole
            elif isinstance(target, ast.Tuple) and whole & parts:
                parts = (parts - whole) | set(target_names(target))
                stands_for |= {name: {name} for name in target_names(target)}
        if isinstance(node, ast.For):
            stands_for |= {name: _whole(node.iter, stands_for) for name in target_names(node.target)}
        for container, value in _stores(node):
            if _outlives(file, loop, container):
                stored |= _whole(value, stands_for)
    return bool(parts) and parts <= stored


def _whole(node: ast.expr, stands_for: dict[str, set[str]]) -> set[str]:
    """The parts of a batch that are in it undivided."""
    match node:
        case ast.Name():
            return stands_for.get(node.id, set())
        case ast.Starred():
            return _whole(node.value, stands_for)
        case ast.Tuple() | ast.List():
            return set[str]().union(*(_whole(each, stands_for) for each in node.elts))
        case ast.Dict():
            return set[str]().union(*(_whole(each, stands_for) for each in node.values))
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _VIEWS:
            return _whole(value, stands_for)
        case ast.Call(func=ast.Name(id=name)) if name in _CONTAINERS:
            return set[str]().union(*(_whole(each, stands_for) for each in node.args))
        case _:
            return set()


def _batch(file: File, loop: ast.For | ast.AsyncFor) -> ast.expr:
    """What stands for the batch in the head of the loop."""
    is_counted = any(file.names.called(each) == "enumerate" for each in ast.walk(loop.iter))
    return _second(loop.target) if is_counted else loop.target


def _views_in(file: File, loop: ast.For | ast.AsyncFor) -> set[str]:
    """Names of the batch and of its parts; what is bound to something else in the loop is not one of them."""
    views = set(target_names(_batch(file, loop)))
    for node in sorted(body_nodes(loop.body), key=lambda each: getattr(each, "lineno", 0)):
        for name, value in ((name, value) for into, value in assigned(node) for name in target_names(into)):
            if _is_view(value, views):
                views.add(name)
            else:
                views.discard(name)
        if isinstance(node, ast.For):
            views |= set(_views_of_parts(node.target, node.iter, views))
    return views


def _views_of_parts(target: ast.expr, source: ast.expr, views: set[str]) -> Iterator[str]:
    """The names in `for target in source` that stand for parts of a batch."""
    match source:
        case ast.Call(func=ast.Name(id="zip"), args=sources) if isinstance(target, ast.Tuple):
            for each, its_source in zip(target.elts, sources, strict=False):
                yield from _views_of_parts(each, its_source, views)
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            yield from _views_of_parts(_second(target), inner, views)
        case ast.Call(func=ast.Attribute(attr="items", value=inner)):
            yield from _views_of_parts(_second(target), inner, views)
        case _ if _is_view(source, views):
            yield from target_names(target)


def _second(target: ast.expr) -> ast.expr:
    """Of `i, batch` and of `key, value`: the latter."""
    return target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target


def _is_view(node: ast.expr, views: set[str]) -> bool:
    """Whether it holds on to memory of a batch."""
    match node:
        case ast.Name():
            return node.id in views
        case ast.Subscript() | ast.Starred():
            return _is_view(node.value, views)
        case ast.Attribute():
            return node.attr not in ("shape", "dtype", "device", "size", "ndim") and _is_view(node.value, views)
        case ast.Tuple() | ast.List() | ast.Set():
            return any(_is_view(each, views) for each in node.elts)
        case ast.Dict():
            return any(_is_view(each, views) for each in node.values)
        case ast.Call(func=ast.Attribute() as called):
            return called.attr in _VIEWS and _is_view(called.value, views)
        case ast.Call(func=ast.Name(id=name)):
            return name in _CONTAINERS and any(_is_view(each, views) for each in node.args)
        case ast.ListComp() | ast.GeneratorExp():
            inner = {
                name for each in node.generators if _is_view(each.iter, views) for name in target_names(each.target)
            }
            return _is_view(node.elt, views | inner)
        case ast.DictComp():
            return _is_view(node.value, views.union(*(_views_of_parts(*each, views) for each in _turns(node))))
        case _:
            return False


def _turns(node: ast.DictComp) -> Iterator[tuple[ast.expr, ast.expr]]:
    return ((each.target, each.iter) for each in node.generators)


def _stores(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Containers and what is put into them."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS and node.args:
        yield node.func.value, node.args[-1]
    if (
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.List | ast.Tuple)
    ):
        yield node.target, node.value
    for target, value in assigned(node):
        if isinstance(target, ast.Subscript):
            yield target.value, value


def _outlives(file: File, loop: ast.For | ast.AsyncFor, container: ast.expr) -> bool:
    """Whether a container is made outside of the loop, is a plain one, and is not emptied in the loop."""
    text, root = ast.unparse(container), container
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    inside = list(body_nodes(loop.body))
    if root.id in {*target_names(loop.target), *(name for each in inside for name in _bound(each))}:
        return False
    return not any(_empties(each, text) for each in inside) and _is_plain(file, loop, root)


def _bound(node: ast.AST) -> Iterator[str]:
    for target, _ in assigned(node):
        if isinstance(target, ast.Name | ast.Tuple | ast.List):
            yield from target_names(target)
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from target_names(node.target)


def _empties(node: ast.AST, container: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr in _EMPTIES and ast.unparse(value) == container
        case ast.Delete():
            return any(ast.unparse(each).startswith(container) for each in node.targets)
        case ast.Assign():
            return any(ast.unparse(each) in (container, f"{container}[:]") for each in node.targets)
        case _:
            return False


def _is_plain(file: File, loop: ast.AST, root: ast.Name) -> bool:
    """Whether it is a list or dict as far as one can see: no array, which copies, and no deque of a given length."""
    scopes = [function_around(file.parents, loop) or file.tree, file.tree]
    bound = next((found for scope in scopes if (found := list(bindings(scope, root.id)))), [])
    values = [value for each in bound if (value := _bound_value(each)) is not None]
    if any(isinstance(each, ast.Call) and not _makes_container(file, each) for each in values):
        return False
    return bool(values) or root.id == "self"


def _bound_value(binding: Binding) -> ast.expr | None:
    """Also of `xs, ys = [], []`."""
    value, part = binding
    if part is None:
        return value
    if not isinstance(value, ast.Tuple | ast.List) or any(isinstance(each, ast.Starred) for each in value.elts):
        return None
    return value.elts[part] if part < len(value.elts) else None


def _makes_container(file: File, call: ast.Call) -> bool:
    is_bounded = any(keyword.arg == "maxlen" for keyword in call.keywords)
    name = (file.names.called(call) or "").rpartition(".")[2]
    return name in ("list", "dict", "set", "defaultdict", "deque", "OrderedDict") and not is_bounded
