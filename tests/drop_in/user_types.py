"""Classes as users write them, importable by name, so that a clean stem, and torch's spawn, find them too."""

import collections
import copyreg
import dataclasses
import enum
import pickle
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_map_only


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: Any
    y: Any = 7


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Plain:
    x: Any
    y: Any = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: Any
    y: Any = None


class HandSlotted:
    __slots__ = ("x", "y")


class Reduced:
    """Rebuilt by a call."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return Reduced, self.parts


class Stateful:
    """Leaves out what it can make again."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.cache = (part for part in ())

    def __getstate__(self) -> Any:
        return {"x": self.x}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self.cache = "made again"


class Sentinel:
    """There is one, and it stays one."""

    def __reduce__(self) -> str:
        return "SENTINEL"


SENTINEL = Sentinel()


class ByCopyreg:
    """Only copyreg knows how."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("copyreg knows how")


class ByForkingPickler(ByCopyreg):
    """Only the pickler of multiprocessing, which torch uses, knows how."""


copyreg.pickle(ByCopyreg, lambda thing: (ByCopyreg, (thing.x,)))  # type: ignore[arg-type, return-value]
ForkingPickler.register(ByForkingPickler, lambda thing: (ByForkingPickler, (thing.x,)))


class OutOfBand:
    """Gives its bytes as a buffer, as protocol 5 allows."""

    def __init__(self, content: Any) -> None:
        self.content = bytes(content)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (OutOfBand, (pickle.PickleBuffer(bytearray(self.content)),)) if protocol >= 5 else super().__reduce__()


class UserDict(collections.UserDict[Any, Any]):
    pass


class OwnDict(dict[Any, Any]):
    """With an attribute."""


class OwnList(list[Any]):
    """With an attribute."""


class OwnMapping(Mapping[Any, Any]):
    """Read-only, and no dict."""

    def __init__(self, content: Any) -> None:
        self.content = dict(content)

    def __getitem__(self, key: Any) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


class OwnInt(int):
    pass


class OwnStr(str):
    __slots__ = ()


class OwnArray(np.ndarray):
    """With an attribute that pickle, as numpy does it, forgets."""


class Labelled(torch.Tensor):
    """A tensor with attributes that takes part in torch's functions."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        for source in args:
            if isinstance(source, Labelled) and isinstance(result, Labelled) and hasattr(source, "label"):
                result.label = source.label
        return result


class Quiet(torch.Tensor):
    """A subclass of which no function of torch knows."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Twofold(torch.Tensor):
    """A wrapper: two tensors that behave like one."""

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> "Twofold":
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)  # type: ignore[attr-defined]

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.first = first
        self.second = second

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> "Twofold":
        return Twofold(inner["first"], inner["second"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Twofold, (self.first, self.second)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first, second = (tree_map_only(Twofold, attrgetter(name), (args, kwargs or {})) for name in ("first", "second"))
        return Twofold(func(*first[0], **first[1]), func(*second[0], **second[1]))


def a_function(x: int) -> int:
    return x + 1
