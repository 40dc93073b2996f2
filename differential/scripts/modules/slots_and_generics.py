"""Datasets of unusual classes: with __slots__, generic, abstract, a data class, made by type(), with a metaclass."""

import abc
import sys
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")


class Slotted:
    __slots__ = ("length", "unset")

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return i, hasattr(self, "unset")


class Typed(Dataset[T], Generic[T]):
    def __init__(self, items: list[T]):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i) -> T:
        return self.items[i]


class Base(abc.ABC):
    def __len__(self):
        return 3

    @abc.abstractmethod
    def __getitem__(self, i): ...


class Concrete(Base):
    def __getitem__(self, i):
        return i * 2


@dataclass
class Data:
    scale: int = 2
    table: list = field(default_factory=lambda: [1, 2, 3])

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        return self.table[i] * self.scale


Made = type("Made", (), {"__len__": lambda self: 2, "__getitem__": lambda self, i: i + 50})

if __name__ == "__main__":
    for dataset in (
        Slotted(3),
        Typed[str](["a", "b", "c"]),
        Concrete(),
        Data(),
        Made(),
        "text",
        b"bytes",
        (1, 2, 3),
        {0: "x", 1: "y"},
    ):
        print(list(DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])))
