"""Forms: what batches that look alike have in common, so that it is said once and not with every batch.

A form is a *skeleton* (nested dicts, lists and tuples, with a mark in the place of every tensor and of every other
value) and, for each tensor, its dtype, its shape and the place of its bytes. What is left of a batch of a known form is
bytes and a few values. Only what is exactly one of the types below has a form: a subclass, a key that is not a string,
one object in two places, or anything else that plain comparison could take for something it is not, makes a batch
*irregular*, and it is pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from antifreeze.engine.arena.layout import CODES, COPY_BELOW, DTYPES, is_small_part
from antifreeze.engine.arena.tensors import tensor_over

Spec = tuple[torch.dtype, tuple[int, ...], int]
"""A tensor: its dtype, its shape, and where its bytes begin."""

# In a skeleton: "tensor", "value", ("dict", keys, parts), ("list", parts), ("tuple", parts).
Builder = Callable[[Iterator[torch.Tensor], Iterator[Any]], Any]

# No batch that is made by hand is deeper; one that is may be a cycle.
DEEPEST = 50
_SIMPLE = frozenset((int, float, complex, bool, str, bytes, type(None)))
_STRINGS = {str}


class Sketch(NamedTuple):
    """A batch taken apart."""

    skeleton: Any
    tensors: list[torch.Tensor]
    values: list[Any]


class _Irregular(Exception):
    """This batch has no form."""


def sketch(batch: Any) -> Sketch | None:
    """Take a batch apart; None if it is irregular. The tensors have yet to be looked at."""
    tensors: list[torch.Tensor] = []
    if type(batch) is torch.Tensor:
        tensors.append(batch)
        return Sketch("tensor", tensors, [])
    values: list[Any] = []
    containers: list[int] = []
    try:
        skeleton = _skeleton(batch, tensors, values, containers, 0)
    except _Irregular:
        return None
    if len(set(containers)) < len(containers):
        return None  # one of them is in two places, and must be one in two places on the other side
    return Sketch(skeleton, tensors, values)


def _skeleton(thing: Any, tensors: list[torch.Tensor], values: list[Any], containers: list[int], depth: int) -> Any:
    kind = type(thing)
    if kind is torch.Tensor:
        tensors.append(thing)
        return "tensor"
    if depth > DEEPEST:
        raise _Irregular
    if kind is dict:
        keys = tuple(thing)
        if set(map(type, keys)) != _STRINGS:
            raise _Irregular
        containers.append(id(thing))
        return "dict", keys, tuple([_skeleton(part, tensors, values, containers, depth + 1) for part in thing.values()])
    if kind is list or kind is tuple:
        if _SIMPLE.issuperset(map(type, thing)):
            values.append(thing)
            return "value"
        containers.append(id(thing))
        parts = tuple([_skeleton(part, tensors, values, containers, depth + 1) for part in thing])
        return kind.__name__, parts
    if kind in _SIMPLE:
        values.append(thing)
        return "value"
    raise _Irregular


def define(skeleton: Any, specs: tuple[Spec, ...]) -> bytes:
    """A form, to be sent."""
    return pickle.dumps((skeleton, [(CODES[dtype], tuple(shape), offset) for dtype, shape, offset in specs]), 5)


class Form:
    """A form as the trainer has it: ready to turn memory into batches."""

    def __init__(self, definition: bytes) -> None:
        skeleton, coded = pickle.loads(definition)
        self._specs: list[Spec] = [(DTYPES[code], shape, offset) for code, shape, offset in coded]
        self._sizes = [dtype.itemsize * _product(shape) for dtype, shape, _ in self._specs]
        self._build = _builder(skeleton)
        ends = [offset + size for (_, _, offset), size in zip(self._specs, self._sizes, strict=True)]
        self.extent = max(ends, default=0)
        """How far the bytes of the tensors reach."""
        self._is_apart = [is_small_part(size, self.extent) for size in self._sizes]
        self.has_large = any(size >= COPY_BELOW for size in self._sizes)
        """Whether any tensor is large enough to be lent."""

    def over(self, memory: bytearray, values: list[Any]) -> Any:
        """The batch whose tensors lie in this memory, except those that are only a small part of it."""
        tensors = []
        for (dtype, shape, offset), size, is_apart in zip(self._specs, self._sizes, self._is_apart, strict=True):
            if is_apart:
                tensors.append(tensor_over(memory[offset : offset + size], dtype, shape, 0))
            else:
                tensors.append(tensor_over(memory, dtype, shape, offset))
        return self._build(iter(tensors), iter(values))

    def within(self, view: memoryview, owner: Any, values: list[Any]) -> Any:
        """The batch whose tensors lie in this view: large ones laid over its owner, if it is lent, the others copied."""
        tensors = []
        for (dtype, shape, offset), size in zip(self._specs, self._sizes, strict=True):
            if size >= COPY_BELOW and owner is not None:
                tensors.append(tensor_over(owner, dtype, shape, offset))
            else:
                tensors.append(tensor_over(bytearray(view[offset : offset + size]), dtype, shape, 0))
        return self._build(iter(tensors), iter(values))


def _builder(skeleton: Any) -> Builder:
    """A function that puts tensors and values, each in their order, into the places that the skeleton has for them."""
    match skeleton:
        case "tensor":
            return lambda tensors, _: next(tensors)
        case "value":
            return lambda _, values: next(values)
        case ("dict", keys, parts) if set(parts) == {"tensor"}:
            return lambda tensors, _: dict(zip(keys, tensors))  # noqa: B905 - tensors may go on
        case ("dict", keys, parts):
            fields = tuple(zip(keys, map(_builder, parts), strict=True))
            return lambda tensors, values: {key: build(tensors, values) for key, build in fields}
        case ("list", parts):
            builders = tuple(map(_builder, parts))
            return lambda tensors, values: [build(tensors, values) for build in builders]
        case ("tuple", parts):
            builders = tuple(map(_builder, parts))
            return lambda tensors, values: tuple([build(tensors, values) for build in builders])
    raise ValueError(f"no such skeleton: {skeleton!r}")


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product
