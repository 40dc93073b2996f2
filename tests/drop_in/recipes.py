"""Batches of any structure, written down as nested tuples: small enough for an index, and the same batch every time.

A recipe is `(name, *details)`. Parts that were made before can be taken again, as they are or through a view, so that
batches arise whose parts are one object, or share memory.
"""

import collections
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.utils.data import Dataset

from drop_in.kinds import raw_bytes
from drop_in.user_types import FrozenSlotted, Labelled, OwnDict, Pair, Plain, Point

Recipe = tuple[Any, ...]

DTYPES = ("float32", "int64", "uint8", "bool", "bfloat16", "float8_e4m3fn", "complex64", "float64", "uint16", "int8")
CODES = ("f4", "i8", "u1", "?", "c16", "M8[s]", "S3", "U2", "V3", "f2")
VIEWS = ("whole", "step", "tail", "turn", "expand", "pick", "flat", "bytes")


class Cook:
    """Makes one batch."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def make(self, recipe: Recipe) -> Any:
        name, *details = recipe
        return getattr(self, f"_make_{name}")(*details)

    def _make_value(self, value: Any) -> Any:
        return value

    def _make_numpy_scalar(self, code: str, number: int) -> Any:
        return np.dtype(code).type(number)

    def _make_tensor(self, dtype: str, shape: tuple[int, ...], seed: int, view: str, kind: str) -> torch.Tensor:
        tensor = view_of(dense(getattr(torch, dtype), shape, seed), view)
        if kind == "grad" and tensor.dtype.is_floating_point:
            tensor = tensor.requires_grad_()
        elif kind == "parameter":
            tensor = torch.nn.Parameter(tensor, requires_grad=tensor.dtype in (torch.float32, torch.float64))
        elif kind == "subclass" and "8" not in dtype and dtype != "uint16":  # torch cannot send those
            tensor = tensor.as_subclass(Labelled)
        self._made.append(tensor)
        return tensor

    def _make_array(self, code: str, shape: tuple[int, ...], seed: int, order: str) -> np.ndarray:
        raw = np.frombuffer(raw_bytes(int(np.prod(shape)) * np.dtype(code).itemsize + seed)[seed:], "u1")
        array = (raw & 1 if code == "?" else raw & 63).view(code).reshape(shape).copy(order)
        self._made.append(array)
        return array

    def _make_again(self, number: int) -> Any:
        return self._made[number % len(self._made)] if self._made else None

    def _make_view(self, number: int, view: str) -> Any:
        tensors = [made for made in self._made if type(made) is torch.Tensor and not made.requires_grad]
        if not tensors:
            return None
        self._made.append(view_of(tensors[number % len(tensors)], view))
        return self._made[-1]

    def _make_sequence(self, kind: str, *parts: Recipe) -> Any:
        made = [self.make(part) for part in parts]
        kinds = {"list": list, "tuple": tuple, "deque": collections.deque}
        self._made.append(kinds[kind](made))
        return self._made[-1]

    def _make_mapping(self, kind: str, *entries: tuple[Any, Recipe]) -> Any:
        made = {key: self.make(part) for key, part in entries}
        kinds = {"dict": dict, "ordered": collections.OrderedDict, "own": OwnDict}
        self._made.append(kinds[kind](made))
        return self._made[-1]

    def _make_object(self, kind: str, x: Recipe, y: Recipe) -> Any:
        kinds = {"point": Point, "pair": Pair, "plain": Plain, "slotted": FrozenSlotted}
        self._made.append(kinds[kind](self.make(x), self.make(y)))
        return self._made[-1]

    def _make_objects(self, *parts: Recipe) -> np.ndarray:
        array = np.empty(len(parts), dtype=object)
        for number, part in enumerate(parts):
            array[number] = self.make(part)
        return array


def dense(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    count = int(np.prod(shape))
    if not count:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(raw_bytes(count * dtype.itemsize + seed)[seed:]), dtype=torch.uint8)
    return (raw & 1).view(torch.bool).reshape(shape) if dtype is torch.bool else raw.view(dtype).reshape(shape)


def view_of(tensor: torch.Tensor, view: str) -> torch.Tensor:
    """A view, as far as this tensor has such a one."""
    if view == "bytes" and tensor.numel() and tensor.is_contiguous() and tensor.dim() and tensor.stride(-1) == 1:
        return tensor.view(torch.uint8)
    if view == "flat" and tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.dim() == 0:
        return tensor
    match view:
        case "step":
            return tensor[::2]
        case "tail":
            return tensor[len(tensor) // 2 :]
        case "turn":
            return tensor.transpose(0, -1)
        case "expand":
            return tensor.unsqueeze(0).expand(2, *tensor.shape)
        case "pick" if len(tensor):
            return tensor[-1]
    return tensor


class Kitchen(Dataset[Any]):
    """Sample `recipe` is what it describes."""

    def __getitem__(self, recipe: Recipe) -> Any:
        return Cook().make(recipe)


def recipes() -> st.SearchStrategy[Recipe]:
    """Any batch at all."""
    small = st.integers(0, 3)
    shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=3).map(tuple) | st.sampled_from(
        [(20_000,), (150, 150)]
    )
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
    leaves = st.one_of(
        st.tuples(st.just("value"), values),
        st.tuples(st.just("numpy_scalar"), st.sampled_from(["f4", "i8", "u1", "?", "c16"]), small),
        st.tuples(
            st.just("tensor"),
            st.sampled_from(DTYPES),
            shapes,
            small,
            st.sampled_from(VIEWS),
            st.sampled_from(["plain", "plain", "plain", "grad", "parameter", "subclass"]),
        ),
        st.tuples(st.just("array"), st.sampled_from(CODES), shapes, small, st.sampled_from("CF")),
        st.tuples(st.just("again"), small),
        st.tuples(st.just("view"), small, st.sampled_from(VIEWS)),
    )
    keys = st.text(max_size=2) | st.integers(0, 2) | st.booleans() | st.none()
    return st.recursive(leaves, lambda part: containers(part, keys), max_leaves=8)


def containers(part: st.SearchStrategy[Recipe], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Recipe]:
    parts = st.lists(part, max_size=4)
    entries = st.lists(st.tuples(keys, part), max_size=4)
    return st.one_of(
        st.builds(lambda kind, made: ("sequence", kind, *made), st.sampled_from(["list", "tuple", "deque"]), parts),
        st.builds(lambda kind, made: ("mapping", kind, *made), st.sampled_from(["dict", "ordered", "own"]), entries),
        st.builds(
            lambda kind, x, y: ("object", kind, x, y),
            st.sampled_from(["point", "pair", "plain", "slotted"]),
            part,
            part,
        ),
        st.builds(lambda made: ("objects", *made), parts),
    )
