"""`worker_init_fn`: what it seeds, and from what."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from antifreeze.doctor.facts import Place, WorkerInit
from antifreeze.probes.source.files import File
from antifreeze.probes.source.loaders import LoaderCode
from antifreeze.probes.source.names import ends_with
from antifreeze.probes.source.program import Program, bindings
from antifreeze.probes.syntax import Function, parameters

_SEEDERS = frozenset(
    ("random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed_all")
)
# Functions that seed everything, in libraries and by custom.
_SEED_ALL = frozenset(("seed_everything", "set_seed", "set_random_seed", "seed_all", "set_determinism", "fix_seed"))
_WORKER_INFO = "torch.utils.data.get_worker_info()"
# The same for a worker in every epoch.
_CONSTANT_OF_WORKER = (f"{_WORKER_INFO}.id", f"{_WORKER_INFO}.num_workers")
_PURE = frozenset(("int", "abs", "hash", "str", "min", "max", "numpy.uint32", "numpy.int64"))


@dataclass(frozen=True, eq=False)
class _Init:
    file: File
    node: Function


def worker_inits(program: Program, loaders: Sequence[LoaderCode]) -> tuple[WorkerInit, ...]:
    given: dict[Function, tuple[_Init, list[Place]]] = {}
    for loader in loaders:
        value = next((each.value for each in loader.node.keywords if each.arg == "worker_init_fn"), None)
        found = None if value is None else _function(program, loader.file, value)
        if found is not None:
            given.setdefault(found.node, (found, []))[1].append(loader.fact.place)
    return tuple(_read(program, found, used_by) for found, used_by in given.values())


def _function(program: Program, file: File, value: ast.expr) -> _Init | None:
    """The function or lambda that is given; `functools.partial` seen through."""
    found = program.definitions.find(file, value)
    if found is not None and not isinstance(found.node, ast.ClassDef):
        return _Init(found.file, found.node)
    for origin in program.origins(file, value):
        if isinstance(origin.node, ast.Lambda):
            return _Init(origin.file, origin.node)
        if isinstance(origin.node, ast.Call) and origin.file.names.called(origin.node) == "functools.partial":
            return _function(program, origin.file, origin.node.args[0]) if origin.node.args else None
    return None


def _read(program: Program, init: _Init, used_by: list[Place]) -> WorkerInit:
    seeds = [node for node in ast.walk(init.node) if isinstance(node, ast.Call) and _seeds(program, init.file, node)]
    worker = next((name for name in parameters(init.node) if name != "self"), None)
    names = dict.fromkeys(name for seed in seeds for each in _arguments(seed) for name in _names(init, each))
    return WorkerInit(
        name=getattr(init.node, "name", "<lambda>"),
        place=init.file.place(init.node),
        seeds=tuple(init.file.place(seed) for seed in seeds),
        seeds_from=tuple(names),
        is_fixed=_is_fixed(program, init, seeds, list(names), worker) if seeds else False,
        used_by=tuple(used_by),
    )


def _seeds(program: Program, file: File, node: ast.Call) -> bool:
    name = file.names.called(node)
    if name in _SEEDERS or (ends_with(name, _SEED_ALL) and bool(_arguments(node))):
        return True
    found = program.definitions.find(file, node.func)
    return found is not None and any(
        found.file.names.called(each) in _SEEDERS for each in ast.walk(found.node) if isinstance(each, ast.Call)
    )


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _names(init: _Init, node: ast.expr, *, depth: int = 6) -> Iterator[str]:
    """The dotted names that an expression is made of; those of locals are followed."""
    if isinstance(node, ast.Attribute | ast.Name):
        yield from _of_name(init, node, depth=depth)
    elif isinstance(node, ast.Call):
        name = init.file.names.called(node)
        if name not in _PURE:
            yield name or ast.unparse(node.func)
        for each in _arguments(node):
            yield from _names(init, each, depth=depth)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _names(init, child, depth=depth)


def _of_name(init: _Init, node: ast.Attribute | ast.Name, *, depth: int) -> Iterator[str]:
    root: ast.expr = node
    path = ""
    while isinstance(root, ast.Attribute):
        path = f".{root.attr}{path}"
        root = root.value
    bound = [] if not isinstance(root, ast.Name) or not depth else list(bindings(init.node, root.id))
    if not bound:
        yield init.file.names.dotted(node) or ast.unparse(node)
    for each in bound:
        if path and isinstance(each.value, ast.Call):
            yield f"{init.file.names.dotted(each.value) or ast.unparse(each.value)}{path}"
        else:
            yield from _names(init, each.value, depth=depth - 1)


def _is_fixed(
    program: Program, init: _Init, seeds: list[ast.Call], names: list[str], worker: str | None
) -> bool | None:
    """As of `WorkerInit.is_fixed`."""
    if any(not _arguments(seed) for seed in seeds):
        return False  # from the clock or the system
    unknown = [name for name in names if name != worker and name not in _CONSTANT_OF_WORKER]
    unknown = [name for name in unknown if not _is_constant(program, init.file, name)]
    if not unknown:
        return True
    return None if all(_says_seed(name) for name in unknown) else False


def _is_constant(program: Program, file: File, name: str) -> bool:
    """Whether it is a name of the module that is bound once, to a number."""
    bound = list(bindings(file.tree, name))
    return len(bound) == 1 and isinstance(bound[0].value, ast.Constant)


def _says_seed(name: str) -> bool:
    """`args.seed`, `SEED`, `cfg.random_seed`; not `torch.initial_seed`, `info.seed` or `base_seed`, which change."""
    owner, _, last = name.lower().rpartition(".")
    is_torch = "initial_seed" in last or "base_seed" in last or "worker_info" in owner or "epoch" in name.lower()
    return last.endswith("seed") and not is_torch and "info" not in owner
