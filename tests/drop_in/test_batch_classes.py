"""Objects of the user's own classes come back as instances of those very classes, wherever these were defined."""

import collections
import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import Dataset

from drop_in.harness import SELFTEST, Way
from drop_in.kinds import as_it_is
from user_scripts import Ended

MAIN = """
import collections, dataclasses, enum, functools, sys, typing
import numpy as np
import torch
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Point(typing.NamedTuple):
    x: typing.Any
    y: typing.Any = 7


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Plain:
    x: typing.Any
    count: typing.ClassVar[int] = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: typing.Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Slotted:
    __slots__ = ("x",)


class Outer:
    class Inner:
        def __init__(self, x):
            self.x = x


class Labelled(torch.Tensor):
    pass


class Records(dict):
    pass


class Sentinel:
    def __reduce__(self):
        return "NOTHING"


NOTHING = Sentinel()


def nothing():
    return globals().get("NOTHING")  # not by its name: a main module that is not run again has not got it


def remade(x):
    return Reduced(x)


class Reduced:
    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return remade, (self.x,)


class Layer(torch.nn.Module):
    def __init__(self, x):
        super().__init__()
        self.register_buffer("x", x)


class Odd(ValueError):
    pass


class Everything(Dataset):
    def __init__(self, nameless):
        self.nameless = nameless

    def __len__(self):
        return 12

    def __getitem__(self, index):
        size = 3 if index % 2 else 40_000
        x = torch.full((size,), float(index))
        slotted = Slotted()
        slotted.x = x
        labelled = x.as_subclass(Labelled)
        labelled.label = "five"
        objects = np.empty(2, dtype=object)
        objects[0], objects[1] = Plain(x), Color.BLUE
        Plain.count += 1  # of the worker's own class
        return {
            "point": Point(x), "pair": Pair(x, 1), "plain": Plain(x), "frozen": Frozen(x), "color": Color.RED,
            "level": Level.LOW | Level.HIGH, "slotted": slotted, "inner": Outer.Inner(x), "labelled": labelled,
            "records": Records(a=x), "nothing": nothing(), "reduced": Reduced(x), "layer": Layer(x), "odd": Odd("x"),
            "class": Point, "function": remade, "partial": functools.partial(remade, 5), "objects": objects,
            "method": Plain(x).__eq__, Color.BLUE: "key",
            # what plain pickle cannot send: another pickler takes its place, for this batch and the ones after it
            **({"lambda": lambda: index, "local": make_local(index)} if self.nameless else {}),
        }


def make_local(index):
    class Local:
        value = index

    return Local()


def check(batch, index):
    kinds = dict(point=Point, pair=Pair, plain=Plain, frozen=Frozen, slotted=Slotted, inner=Outer.Inner, labelled=Labelled,
                 records=Records, reduced=Reduced, layer=Layer, odd=Odd, color=Color, level=Level)
    for name, kind in kinds.items():
        assert type(batch[name]) is kind, (name, type(batch[name]), id(type(batch[name])), id(kind))
    for name in ("point", "plain", "frozen", "slotted", "inner", "reduced", "layer"):
        assert bool((batch[name].x == index).all()), name
    assert batch["color"] is Color.RED and batch[Color.BLUE] == "key" and batch["level"] == Level(3)
    assert batch["class"] is Point and batch["function"] is remade
    assert batch["nothing"] is NOTHING or not GUARDED
    assert batch["partial"]().x == 5 and type(batch["partial"]()) is Reduced
    assert batch["labelled"].label == "five" and batch["records"]["a"].shape == batch["pair"].left.shape
    assert type(batch["objects"][0]) is Plain and batch["objects"][1] is Color.BLUE
    assert "lambda" not in batch or (batch["lambda"]() == index and batch["local"].value == index)
    assert Plain.count == 100 and Point.marked == "by the trainer", "the classes of the trainer are as it left them"


def as_it_is(batch):
    return batch


def main(method, nameless):
    Plain.count = 100
    Point.marked = "by the trainer"
    options = dict(batch_size=None, collate_fn=as_it_is, num_workers=2, multiprocessing_context=method)
    try:
        for index, batch in enumerate(DataLoader(Everything(nameless), **options)):
            check(batch, index)
    except Exception as error:
        print(method, "nameless" if nameless else "named", repr(error))
"""

GUARDED = (
    MAIN
    + """
GUARDED = True

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        main(method, False)
        if "named" not in sys.argv:
            main(method, True)
    print("OK")
"""
)

# Without a guard the main module is not run again: its classes go by value.
UNGUARDED = (
    MAIN
    + """
GUARDED = False
main("spawn", False)
main("spawn", True)
print("OK")
"""
)


@pytest.mark.long
def test_classes_of_the_main_module_come_back_as_themselves(run_script: Callable[..., Ended]) -> None:
    arguments = ["named"] if SELFTEST else []  # torch cannot send what has no name
    assert run_script(GUARDED, *arguments).check().stdout == "OK\n"


@pytest.mark.long
@pytest.mark.usefixtures("not_for_torch")
def test_classes_of_a_main_module_without_a_guard_come_back_as_themselves(run_script: Callable[..., Ended]) -> None:
    """torch cannot spawn from it."""
    assert run_script(UNGUARDED).check().stdout == "OK\n"


@pytest.mark.usefixtures("not_for_torch")
def test_classes_and_functions_without_a_name_come_back_as_themselves(ours: Way) -> None:
    """torch's worker cannot send them, and hangs."""

    class Local:
        def __init__(self, x: Any) -> None:
            self.x = x

    class LocalPoint(NamedTuple):
        x: Any

    @dataclasses.dataclass(frozen=True, slots=True)
    class LocalData:
        x: Any

    class LocalColor(enum.Enum):
        RED = 1

    class LocalTensor(torch.Tensor):
        pass

    local_pair = collections.namedtuple("local_pair", "a b")
    offset = 100

    def shift(x: int) -> int:
        return x + offset

    class LocalDataset(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            x = torch.full((3 if index % 2 else 40_000,), float(index))
            return {
                "object": Local(x),
                "point": LocalPoint(x),
                "data": LocalData(x),
                "color": LocalColor.RED,
                "tensor": x.as_subclass(LocalTensor),
                "pair": local_pair(x, Local),
                "function": shift,
                "partial": functools.partial(shift, index),
                "lambda": lambda y: y + index,
            }

    batches = ours.make(LocalDataset(), sampler=range(9), batch_size=None, collate_fn=as_it_is)
    for index, batch in enumerate(batches):
        assert type(batch["object"]) is Local and bool((batch["object"].x == index).all())
        assert type(batch["point"]) is LocalPoint and bool((batch["point"].x == index).all())
        assert type(batch["data"]) is LocalData and bool((batch["data"].x == index).all())
        assert batch["color"] is LocalColor.RED
        assert type(batch["tensor"]) is LocalTensor and bool((batch["tensor"] == index).all())
        assert type(batch["pair"]) is local_pair and batch["pair"].b is Local
        assert batch["function"] is shift
        assert batch["partial"]() == index + 100
        assert batch["lambda"](1) == index + 1


@pytest.mark.usefixtures("not_for_torch")
def test_a_class_that_only_the_worker_has_arrives_whole(ours: Way) -> None:
    class Inventive(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return type(f"Made{index}", (), {"index": index, "twice": lambda self: 2 * self.index})()

    batches = ours.make(Inventive(), sampler=range(5), batch_size=None, collate_fn=as_it_is)
    assert [(type(batch).__name__, batch.twice()) for batch in batches] == [(f"Made{k}", 2 * k) for k in range(5)]
