"""Kinds of samples: each makes one from its index and from the random numbers that the dataset drew for it."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Pair(collections.namedtuple("Pair", "a b")):
    """A named tuple as users derive them."""


@dataclasses.dataclass
class Record:
    """A data class, which default_collate does not know."""

    a: Any
    b: Any


class Color(enum.Enum):
    """An enumeration, which default_collate does not know."""

    RED = 1
    BLUE = 2


class MarkedTensor(torch.Tensor):
    """A subclass of torch.Tensor."""


class MarkedArray(np.ndarray):
    """A subclass of numpy.ndarray."""


class OwnDict(dict):
    """A mapping of the user's, with an attribute."""


class OwnList(list):
    """A sequence of the user's."""


class Box:
    """An object with a `pin_memory` method, as torch's documentation has it."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def pin_memory(self) -> Box:
        return Box(self.inside)


def _own_dict(i: int, noise: float) -> OwnDict:
    made = OwnDict(a=i, b=torch.tensor(i))
    made.extra = "e"
    return made


def _read_only(i: int, noise: float) -> np.ndarray:
    array = np.full((2,), i)
    array.flags.writeable = False
    return array


def _aliases(i: int, noise: float) -> dict[str, torch.Tensor]:
    tensor = torch.tensor([float(i), noise])
    return {"x": tensor, "y": tensor, "z": tensor.view(1, 2), "w": tensor[1:]}


def _tensor_with_attribute(i: int, noise: float) -> torch.Tensor:
    tensor = torch.tensor([float(i)])
    tensor.note = "a note"
    return tensor


# Of these default_collate makes a batch.
COLLATABLE: dict[str, Callable[[int, float], Any]] = {
    "float": lambda i, noise: i + noise,
    "int": lambda i, noise: i,
    "bool": lambda i, noise: i % 2 == 0,
    "str": lambda i, noise: f"s{i}",
    "bytes": lambda i, noise: b"x%d" % i,
    "tensor": lambda i, noise: torch.full((3,), float(i) + noise),
    "tensor of no dimension": lambda i, noise: torch.tensor(i),
    "empty tensor": lambda i, noise: torch.empty(0, 3),
    "float16": lambda i, noise: torch.full((2, 2), i, dtype=torch.float16),
    "bfloat16": lambda i, noise: torch.full((2, 2), i, dtype=torch.bfloat16),
    "uint16": lambda i, noise: torch.full((2, 2), i, dtype=torch.uint16),
    "int8": lambda i, noise: torch.full((3,), i, dtype=torch.int8),
    "bool tensor": lambda i, noise: torch.arange(4) > i,
    "float8": lambda i, noise: torch.full((4,), float(i)).to(torch.float8_e4m3fn),
    "complex": lambda i, noise: torch.tensor([complex(i, noise)]),
    "rows of a transpose": lambda i, noise: (torch.arange(20.0).reshape(4, 5) + i).t()[::2],
    "sometimes a transpose": lambda i, noise: torch.full((3, 3), noise).t() if i % 2 else torch.full((3, 3), float(i)),
    "expanded": lambda i, noise: torch.tensor([float(i)]).expand(4),
    "view of much": lambda i, noise: torch.arange(1000)[i : i + 3],
    "channels last": lambda i, noise: torch.full((2, 3, 4, 4), float(i)).contiguous(memory_format=torch.channels_last),
    "large tensor": lambda i, noise: torch.full((100, 100), float(i) + noise),
    "tensor subclass": lambda i, noise: torch.full((2,), float(i)).as_subclass(MarkedTensor),
    "parameter": lambda i, noise: torch.nn.Parameter(torch.full((2,), float(i)), requires_grad=False),
    "array": lambda i, noise: np.full((2, 3), i + noise),
    "Fortran array": lambda i, noise: np.asfortranarray(np.full((2, 3), i + noise)),
    "float32 array": lambda i, noise: np.full((3,), i, dtype=np.float32),
    "array of no dimension": lambda i, noise: np.array(i),
    "read-only array": _read_only,
    "NumPy float": lambda i, noise: np.float32(i),
    "NumPy bool": lambda i, noise: np.bool_(i % 2),
    "NumPy int": lambda i, noise: np.int16(i),
    "dict": lambda i, noise: {"a": i, "b": torch.tensor([i, i]), "c": {"d": noise}},
    "dict of the user's": _own_dict,
    "Counter": lambda i, noise: collections.Counter({"a": i, "b": 2}),
    "OrderedDict": lambda i, noise: collections.OrderedDict(b=i, a=noise),
    "defaultdict": lambda i, noise: collections.defaultdict(int, a=i),
    "named tuple": lambda i, noise: Pair(i, torch.tensor([noise])),
    "tuple": lambda i, noise: (torch.full((2,), noise), i),
    "nested": lambda i, noise: [(i, {"z": [torch.tensor(i), np.float64(noise)]}), "t"],
    "list": lambda i, noise: [i, noise],
    "list of floats": lambda i, noise: [float(i)] * 3,
    "aliases": _aliases,
    "int or float": lambda i, noise: i if i % 2 else float(i),
}
# These need a collate function of the user's, or are errors.
OTHERS: dict[str, Callable[[int, float], Any]] = {
    "None in a dict": lambda i, noise: {"a": None, "b": i},
    "list of the user's": lambda i, noise: OwnList([i, torch.tensor(noise)]),
    "ragged lists": lambda i, noise: list(range(i % 3 + 1)),
    "ragged tensors": lambda i, noise: torch.arange(i % 3 + 1),
    "dtypes that differ": lambda i, noise: torch.tensor([i], dtype=torch.int32 if i % 2 else torch.int64),
    "keys that differ": lambda i, noise: {"a": i, f"b{i % 2}": noise},
    "sparse": lambda i, noise: torch.eye(3).to_sparse() * i,
    "sparse CSR": lambda i, noise: (torch.eye(3) * (i + 1)).to_sparse_csr(),
    "quantized": lambda i, noise: torch.quantize_per_tensor(torch.full((2,), float(i)), 0.1, 10, torch.quint8),
    "tensor with an attribute": _tensor_with_attribute,
    "meta tensor": lambda i, noise: torch.empty(2, device="meta"),
    "data class": lambda i, noise: Record(i, torch.tensor(noise)),
    "object": lambda i, noise: Box(torch.tensor([noise])),
    "enumeration": lambda i, noise: Color.RED if i % 2 else Color.BLUE,
    "large int": lambda i, noise: 10**30 + i,
    "bytearray": lambda i, noise: bytearray(b"ab"),
    "None": lambda i, noise: None,
    "range": lambda i, noise: range(i),
    "set": lambda i, noise: {i, "a"},
    "frozenset": lambda i, noise: frozenset({i}),
    "slice": lambda i, noise: slice(i),
    "Path": lambda i, noise: pathlib.Path("a") / str(i),
    "date": lambda i, noise: dt.date(2020, 1, i % 28 + 1),
    "Decimal": lambda i, noise: decimal.Decimal(i) / 3,
    "Fraction": lambda i, noise: fractions.Fraction(i, 3),
    "type": lambda i, noise: (int, torch.float16, torch.Size([i])),
    "array of strings": lambda i, noise: np.array(["a", "bb"]),
    "array of objects": lambda i, noise: np.array([i, None, "x"], dtype=object),
    "array of records": lambda i, noise: np.array([(i, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "array of dates": lambda i, noise: np.array(["2020-01-01"], dtype="M8[D]") + i,
    "masked array": lambda i, noise: np.ma.masked_array([i, 2, 3], mask=[False, True, False]),
    "array subclass": lambda i, noise: np.full((2,), float(i)).view(MarkedArray),
    "array of the other byte order": lambda i, noise: np.array([i, 2], dtype=">i4"),
    "array in reverse": lambda i, noise: np.arange(4)[::-1] + i if i % 2 else (np.arange(4) + i)[::-1],
    "half of an array": lambda i, noise: (np.arange(12).reshape(3, 4) + i)[:, ::2],
    "float16 array": lambda i, noise: np.full((2,), i, dtype=np.float16),
    "complex array": lambda i, noise: np.array([complex(i, 1)]),
    "uint64 array": lambda i, noise: np.array([i], dtype=np.uint64),
}
KINDS = COLLATABLE | OTHERS


def sample(kind: str, i: int, noise: float) -> Any:
    """Makes the sample of this index."""
    return KINDS[kind](i, noise)
