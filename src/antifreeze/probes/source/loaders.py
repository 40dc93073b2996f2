"""`DataLoader(…)`: its arguments by torch's names for them, its dataset, and where it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from antifreeze.doctor.facts import LoaderCall, Place
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.files import File
from antifreeze.probes.source.program import Origin, Program
from antifreeze.probes.source.samplers import distributed_order
from antifreeze.probes.syntax import (
    function_around,
    is_module_level,
    is_under_main_guard,
    loops_around,
)

_TORCH_ORDER = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
# Loaders with other positional arguments share these.
_COMMON_ORDER = _TORCH_ORDER[:3]
_TORCH_LIKE = ("torch", "torchdata", "antifreeze")
_OTHERS = ("torch_geometric", "monai", "dgl", "lightning")
_CLASSES = ("DataLoader", "StatefulDataLoader")
UNKNOWN = "**"
# Callers of callers are followed so far.
_DEPTH = 4
T = TypeVar("T", int, str)


@dataclass(frozen=True, eq=False)
class LoaderCode:
    """A `DataLoader(…)`, and what belongs to it."""

    file: File
    node: ast.Call
    fact: LoaderCall
    datasets: tuple[Origin, ...]
    """The calls that make its dataset: of classes of the user's, those inside of Subset and the like included."""
    classes: tuple[FoundDefinition, ...]


def find_loaders(program: Program) -> list[LoaderCode]:
    return [
        _loader(program, file, node)
        for file in program.files
        for node in file.nodes
        if isinstance(node, ast.Call) and is_loader(file, node)
    ]


def is_loader(file: File, node: ast.Call) -> bool:
    package, _, name = (file.names.called(node) or "").partition(".")
    return name.rpartition(".")[2] in _CLASSES and package in (*_TORCH_LIKE, *_OTHERS)


def _loader(program: Program, file: File, node: ast.Call) -> LoaderCode:
    given = _arguments(program, file, node)
    made = tuple(dict.fromkeys(_datasets(program, given["dataset"]))) if "dataset" in given else ()
    classes = [program.definitions.find(each.file, each.node.func) for each in made if isinstance(each.node, ast.Call)]
    found = tuple(dict.fromkeys(each for each in classes if each is not None))
    functions = [_function(program, given[name]) for name in ("collate_fn", "worker_init_fn") if name in given]
    sent = [each for each in (*found, *functions) if each is not None]
    fact = LoaderCall(
        place=file.place(node),
        arguments={name: origin.file.written(origin.node) for name, origin in given.items()},
        name=_assigned_name(file, node),
        is_module_level=is_module_level(file.parents, node),
        workers=_workers(program, given),
        start_method=_start_method(program, given),
        datasets=tuple(each.node.name for each in found),
        guarded=tuple(_definition_place(each) for each in sent if _is_guarded(program, each)),
        is_in_loop=_is_in_loop(program, file, node, depth=_DEPTH),
        distributed=distributed_order(program, given),
    )
    return LoaderCode(file, node, fact, made, found)


# --- arguments


def _arguments(program: Program, file: File, node: ast.Call) -> dict[str, Origin]:
    package = (file.names.called(node) or "").partition(".")[0]
    order = _TORCH_ORDER if package in _TORCH_LIKE else _COMMON_ORDER
    given = {name: Origin(file, value) for name, value in zip(order, node.args, strict=False)}
    for keyword in node.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = Origin(file, keyword.value)
        else:
            given |= _unpacked(program, file, keyword.value)
    return given


def _unpacked(program: Program, file: File, node: ast.expr) -> dict[str, Origin]:
    """`**kwargs`, where that is a dict that is written out and never changed; `**` otherwise."""
    origins = program.origins(file, node)
    if len(origins) == 1 and not _is_changed(file, node):
        (source, made), named = origins[0], dict[str, Origin]()
        if isinstance(made, ast.Dict):
            for key, value in zip(made.keys, made.values, strict=True):
                is_known = isinstance(key, ast.Constant) and isinstance(key.value, str)
                named[str(key.value) if is_known and isinstance(key, ast.Constant) else UNKNOWN] = Origin(source, value)
            return named
        if isinstance(made, ast.Call) and source.names.called(made) == "dict" and not made.args:
            return {keyword.arg or UNKNOWN: Origin(source, keyword.value) for keyword in made.keywords}
    return {UNKNOWN: Origin(file, node)}


def _is_changed(file: File, node: ast.expr) -> bool:
    """Whether something is put into a dict after it was made."""
    name = ast.unparse(node)

    def changed(each: ast.AST) -> ast.expr | None:
        match each:
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                return each.value
            case ast.Attribute(attr="update" | "setdefault" | "pop" | "clear"):
                return each.value
            case ast.AugAssign():
                return each.target
            case _:
                return None

    found = (changed(each) for each in file.nodes)
    return any(ast.unparse(each) == name for each in found if each is not None)


def _workers(program: Program, given: dict[str, Origin]) -> int | None:
    if "num_workers" not in given:
        return None if UNKNOWN in given else 0
    return constant(program, given["num_workers"], int)


def constant(program: Program, origin: Origin, kind: type[T]) -> T | None:
    """The value of an expression that is a constant, or a name for one."""
    found = program.origins(origin.file, origin.node)
    value = found[0].node if len(found) == 1 else None
    return value.value if isinstance(value, ast.Constant) and type(value.value) is kind else None


def _start_method(program: Program, given: dict[str, Origin]) -> str | None:
    context = given.get("multiprocessing_context")
    found = [] if context is None else program.origins(context.file, context.node)
    if len(found) != 1:
        return None
    file, node = found[0]
    if isinstance(node, ast.Call) and file.names.called(node) == "multiprocessing.get_context" and node.args:
        return constant(program, Origin(file, node.args[0]), str)
    return constant(program, found[0], str)


# --- what its workers need


def _datasets(program: Program, origin: Origin, *, depth: int = _DEPTH) -> Iterator[Origin]:
    """Calls of classes of the user's that give samples, also those that others are made of."""
    if not depth:
        return
    for file, node in program.origins(origin.file, origin.node):
        if isinstance(node, ast.Subscript):  # a part of `random_split(…)`
            yield from _datasets(program, Origin(file, node.value), depth=depth - 1)
        if isinstance(node, ast.List | ast.Tuple):
            for each in node.elts:
                yield from _datasets(program, Origin(file, each), depth=depth - 1)
        if isinstance(node, ast.Call):
            found = program.definitions.find(file, node.func)
            if found is not None and gives_samples(program, found):
                yield Origin(file, node)
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _datasets(program, Origin(file, each), depth=depth - 1)


def gives_samples(program: Program, found: FoundDefinition) -> bool:
    if not isinstance(found.node, ast.ClassDef):
        return False
    named = program.definitions.methods(found)
    return "__getitem__" in named or "__iter__" in named or is_dataset_by_name(program, found)


def is_dataset_by_name(program: Program, found: FoundDefinition) -> bool:
    """Whether one of its bases is a dataset of torch's or of a library."""
    return any(_is_library_dataset(base) for base in program.definitions.foreign_bases(found))


def _is_library_dataset(base: str) -> bool:
    package, _, rest = base.partition(".")
    return rest.endswith(("Dataset", "ImageFolder", "DatasetFolder")) or (
        package == "torchvision" and rest.startswith("datasets.")
    )


def _function(program: Program, origin: Origin) -> FoundDefinition | None:
    found = program.definitions.find(origin.file, origin.node)
    return found if found is not None and not isinstance(found.node, ast.ClassDef) else None


def _is_guarded(program: Program, found: FoundDefinition) -> bool:
    """The guard of the script only: that of another module never holds."""
    return found.file is program.files[0] and is_under_main_guard(found.file.parents, found.node)


def _definition_place(found: FoundDefinition) -> Place:
    place = found.file.place(found.node)
    return Place(place.file, place.line, found.node.name, place.text)


# --- where it is


def _assigned_name(file: File, node: ast.Call) -> str | None:
    parent = file.parents.get(node)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name | ast.Attribute):
        return ast.unparse(parent.targets[0])
    return ast.unparse(parent.target) if isinstance(parent, ast.AnnAssign) else None


def _is_in_loop(program: Program, file: File, node: ast.AST, *, depth: int) -> bool:
    if next(loops_around(file.parents, node), None) is not None:
        return True
    function = function_around(file.parents, node)
    if function is None or not depth:
        return False
    return any(_is_in_loop(program, where, call, depth=depth - 1) for where, call in program.callers(function))
