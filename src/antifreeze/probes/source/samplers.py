"""`DistributedSampler(…)` that is given to a loader, and whether anybody tells samplers which epoch it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from antifreeze.doctor.facts import DistributedOrder
from antifreeze.probes.source.files import File
from antifreeze.probes.source.names import ends_with
from antifreeze.probes.source.program import Origin, Program

_PLACES = ("dataset", "num_replicas", "rank", "shuffle")
# Their training loops call `set_epoch` themselves.
_TELLING = frozenset(
    (
        "lightning",
        "pytorch_lightning",
        "accelerate",
        "transformers",
        "composer",
        "mmengine",
        "mmcv",
        "fastai",
        "catalyst",
        "ignite",
    )
)
# `BatchSampler(DistributedSampler(…), …)`.
_DEPTH = 3


def distributed_order(program: Program, given: Mapping[str, Origin]) -> DistributedOrder | None:
    """Of the arguments of a loader: the sampler that shuffles for several processes; None: there is none."""
    made = (site for name in ("sampler", "batch_sampler") if name in given for site in _made(program, given[name]))
    for file, node in made:
        shuffles = _shuffles(node)
        if shuffles is not False:
            return DistributedOrder(place=file.place(node), shuffles=shuffles)
    return None


def _made(program: Program, origin: Origin, *, depth: int = _DEPTH) -> Iterator[tuple[File, ast.Call]]:
    for file, node in program.origins(origin.file, origin.node):
        if not isinstance(node, ast.Call):
            continue
        if ends_with(file.names.called(node), ("DistributedSampler",)):
            yield file, node
        elif depth:
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _made(program, Origin(file, each), depth=depth - 1)


def _shuffles(node: ast.Call) -> bool | None:
    """None: it cannot be told."""
    given = dict(zip(_PLACES, node.args, strict=False)) | {each.arg: each.value for each in node.keywords}
    if "shuffle" not in given:
        return None if None in given else True  # `**` may hold it
    value = given["shuffle"]
    return bool(value.value) if isinstance(value, ast.Constant) else None


def tells_epochs(program: Program) -> bool:
    """Whether `set_epoch` is called anywhere, or a library is imported that calls it."""
    return any(
        any(isinstance(node, ast.Attribute) and node.attr == "set_epoch" for node in file.nodes)
        or any(dotted.partition(".")[0] in _TELLING for dotted in file.names.imports.values())
        for file in program.files
    )
