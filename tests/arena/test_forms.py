"""Batches that look alike: what has a form, and that nothing is taken for what it is not."""

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.arena.forms import Form, define, sketch
from antifreeze.engine.arena.layout import COPY_BELOW

Pair = namedtuple("Pair", "left right")


def skeleton_of(batch: Any) -> Any:
    taken_apart = sketch(batch)
    assert taken_apart is not None
    return taken_apart.skeleton


one, two = torch.ones(1), torch.ones(2)


def test_what_has_a_form_is_taken_apart_in_order() -> None:
    taken_apart = sketch({"x": one, "meta": {"y": [two, "name", (1, 2.5)]}, "n": None})
    assert taken_apart is not None
    assert taken_apart.skeleton == (
        "dict",
        ("x", "meta", "n"),
        ("tensor", ("dict", ("y",), (("list", ("tensor", "value", "value")),)), "value"),
    )
    assert taken_apart.tensors[0] is one and taken_apart.tensors[1] is two
    assert taken_apart.values == ["name", (1, 2.5), None]


class Words(str):
    __slots__ = ()


SHARED = [one]
CYCLE: list[Any] = [one]
CYCLE.append(CYCLE)
DEEP: Any = one
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "batch",
    [
        OrderedDict(x=one),
        Pair(one, two),
        {1: one},
        {"x": one, 2: two},
        {Words("x"): one},
        {},
        {"x": Words("y")},
        {"x": {1, 2}},
        np.zeros(3),
        [np.float32(1), one],
        torch.nn.Parameter(one),
        [SHARED, SHARED],
        {"a": SHARED, "b": {"c": SHARED}},
        CYCLE,
        DEEP,
        object(),
    ],
    ids=lambda batch: str(type(batch).__name__),
)
def test_anything_else_is_irregular(batch: Any) -> None:
    assert sketch(batch) is None


DIFFERENT: list[Any] = [
    one,
    [one],
    (one,),
    [[one]],
    {"x": one},
    {"y": one},
    {"x": [one]},
    {"x": (one,)},
    [one, 1],
    [1, one],
    {"x": one, "y": two},
    {"y": one, "x": two},
    {"x": one, "y": 1},
    {"x": 1, "y": one},
    [one, one],
    [one, [two]],
    [[one], two],
]


def test_what_looks_different_has_another_skeleton() -> None:
    skeletons = [skeleton_of(batch) for batch in DIFFERENT]
    assert len(set(skeletons)) == len(skeletons)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers())
LEAVES = st.one_of(VALUES, st.just(torch.Tensor), st.lists(VALUES, max_size=3), st.tuples(VALUES))
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


def with_tensors(structure: Any, made: list[torch.Tensor]) -> Any:
    """The structure, with a new tensor wherever it says `torch.Tensor`."""
    if structure is torch.Tensor:
        made.append(torch.full((len(made) % 3 + 1,), float(len(made))))
        return made[-1]
    if type(structure) is dict:
        return {key: with_tensors(part, made) for key, part in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(with_tensors(part, made) for part in structure)
    return structure


@given(STRUCTURES)
def test_a_form_puts_together_what_was_taken_apart(structure: Any) -> None:
    tensors: list[torch.Tensor] = []
    batch = with_tensors(structure, tensors)
    taken_apart = sketch(batch)
    assert taken_apart is not None and [id(each) for each in taken_apart.tensors] == [id(each) for each in tensors]
    specs, place = [], 0
    memory = bytearray()
    for tensor in tensors:
        specs.append((tensor.dtype, tensor.shape, place))
        memory += tensor.numpy().tobytes()
        place = len(memory)
    form = Form(define(taken_apart.skeleton, tuple(specs)))
    assert form.extent == len(memory)
    assert repr(form.over(memory, taken_apart.values)) == repr(batch)


def test_large_tensors_are_laid_over_what_is_lent_and_small_ones_copied() -> None:
    memory = bytearray(2 * COPY_BELOW + 64)
    specs = ((torch.uint8, (COPY_BELOW,), 64), (torch.bfloat16, (2, 2), 0), (torch.int64, (), 16))
    form = Form(define(("list", ("tensor",) * 3), specs))
    assert form.has_large
    for owner in (memory, None):
        large, small, scalar = form.within(memoryview(memory), owner, [])
        memory[64] += 1
        memory[0] += 1
        assert large[0] == (memory[64] if owner is not None else memory[64] - 1)
        assert small.dtype is torch.bfloat16 and small.shape == (2, 2) and scalar.shape == ()
        assert small.view(torch.uint8)[0, 0] == memory[0] - 1
        assert not small._is_view() and not large._is_view()
