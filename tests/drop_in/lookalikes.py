"""Batches that look alike and are not: what a loader that remembers the structure of the last batch may mix up.

Each family makes its members one after the other, of a size; the batches of a family follow each other in every order.
"""

import collections
import datetime as dt
import decimal
import fractions
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from drop_in.kinds import LARGE, SMALL, floats, with_attribute
from drop_in.user_types import (
    Color,
    Flags,
    Frozen,
    FrozenSlotted,
    Labelled,
    OwnDict,
    OwnInt,
    OwnList,
    Pair,
    Plain,
    Point,
    Quiet,
    Slotted,
    a_function,
)

Family = Callable[[int], Iterator[Any]]
FAMILIES: dict[str, Family] = {}


def family(make: Family) -> Family:
    FAMILIES[make.__name__.replace("_", " ")] = make
    return make


@family
def ones(n: int) -> Iterator[Any]:
    same = (1, True, 1.0, 1 + 0j, OwnInt(1), Flags.A, "1", b"1", fractions.Fraction(1), decimal.Decimal(1), np.int64(1))
    yield from ({"x": one} for one in same)
    yield from ({"x": one} for one in (np.bool_(True), np.array(1), [1], (1,), {1}))
    yield from ({"x": torch.tensor(one)} for one in (1, True, 1.0))


@family
def zeros(n: int) -> Iterator[Any]:
    nothing = (0.0, -0.0, 0, False, math.nan, -math.nan, None, "", b"", (), [], {}, set(), frozenset())
    yield from ([zero, floats(n)] for zero in nothing)


@family
def keys(n: int) -> Iterator[Any]:
    same = (1, "1", True, 1.0, b"1", (1,), None, -1, Flags.A, OwnInt(1), np.int64(1))
    yield from ({key: floats(n)} for key in same)


@family
def keys_that_come_and_go(n: int) -> Iterator[Any]:
    yield from ({key: floats(n) for key in names} for names in ("ab", "ba", "a", "b", "", "abc", "ac"))
    yield {"a": None, "b": floats(n)}


@family
def sequences(n: int) -> Iterator[Any]:
    yield from (kind([floats(n), 1]) for kind in (list, tuple, collections.deque, OwnList))
    yield from (kind(floats(n), 1) for kind in (Point, Pair))
    yield collections.deque([floats(n), 1], 2)
    yield {0: floats(n), 1: 1}
    yield from ([floats(n), *more] for more in ([], [[1]], [1, None]))
    yield from ([[floats(n), 1]], [1, floats(n)])


@family
def mappings(n: int) -> Iterator[Any]:
    yield from (kind(x=floats(n), y=1) for kind in (dict, collections.OrderedDict, OwnDict))
    yield from (collections.defaultdict(default, x=floats(n), y=1) for default in (list, dict, None))
    yield from (with_attribute(OwnDict(x=floats(n), y=1), note=note) for note in ("kept", "another"))
    yield collections.Counter(x=3, y=1)
    yield collections.ChainMap({"x": floats(n), "y": 1})
    yield {"y": 1, "x": floats(n)}
    yield [("x", floats(n)), ("y", 1)]


@family
def objects(n: int) -> Iterator[Any]:
    yield from (kind(floats(n), 1) for kind in (Plain, Frozen, Slotted, FrozenSlotted))
    yield from (Plain(1, floats(n)), Plain(floats(n), [1]), with_attribute(Plain(floats(n), 1), z=2))
    yield {"x": floats(n), "y": 1}


@family
def nesting(n: int) -> Iterator[Any]:
    yield from ({"a": {"b": floats(n)}}, {"a": [floats(n)]}, {"a": floats(n)}, {"b": {"a": floats(n)}})
    yield from ([{"a": floats(n)}], {"a": {"b": {"c": floats(n)}}})
    yield from (floats(n), [floats(n)], [[floats(n)]], ((floats(n),),))


@family
def numbers(n: int) -> Iterator[Any]:
    lengths = (1, 2, 255, 256, 65535, 65536, -1, 1 << 31, 1 << 40, 1 << 63, -(1 << 70), 0.1, 0.2, math.inf, 1e300)
    yield from ({"n": number, "x": floats(n)} for number in lengths)


@family
def lists_of_numbers(n: int) -> Iterator[Any]:
    yield from ([1, 2, 3], [1, 2, 4], [1, 2, 3, 4], [True, 2, 3], [1.0, 2, 3], (1, 2, 3), [1, 2, "3"], [1, [2, 3]])
    yield from (list(range(300)), list(range(301)))


@family
def texts(n: int) -> Iterator[Any]:
    several = ("abc", "abd", "ab", "", "ä", "a" * 255, "a" * 256, "a" * 70_000, "nul\0", b"abc", b"a" * 300)
    yield from ({"s": text, "x": floats(n)} for text in several)
    once = str(12345)
    yield from ([once, once, str(12345)], ["12345", "12345", "123456"], ["12345", b"12345", "12345"])


@family
def values_by_name(n: int) -> Iterator[Any]:
    yield from ([value] for value in (Color.RED, Color.GREEN, Point, Pair, int, a_function, "Point"))
    yield from ([functools.partial(a_function, number)] for number in (1, 2))
    yield from ([value] for value in (torch.float32, torch.float64, torch.Size([1]), (1,), torch.device("cpu")))
    yield from ([dt.date(2024, 1, day)] for day in (1, 2))


@family
def identity(n: int) -> Iterator[Any]:
    ways = (
        *(lambda one: one, lambda one: one.clone(), lambda one: one[:], lambda one: one[1:], lambda one: one.view(-1)),
        *(lambda one: one.view(torch.int32), lambda one: one.view(torch.int32).clone(), lambda one: one.detach()),
    )
    yield from ([one, way(one)] for way in ways for one in [floats(n)])
    yield from ([way(one), one] for way in ways[2:5] for one in [floats(n)])
    yield from ([one[: n // 2], one[n // 2 :]] for one in [floats(n)])
    yield [floats(n // 2), floats(n // 2)]


@family
def identity_of_containers(n: int) -> Iterator[Any]:
    yield from ([one, one] for one in ([floats(n)], (1, 2), []))
    yield from ([[floats(n)], [floats(n)]], [[], []], {"a": {"k": 1}, "b": {"k": 1}})
    yield from ([[one], [one]] for one in [floats(n)])
    yield from ({"a": one, "b": one} for one in [{"k": 1}])


@family
def strides(n: int) -> Iterator[Any]:
    yield from (floats(2 * n)[::2], floats(2 * n)[n:], floats(2 * n)[:n], floats(2, n), floats(n, 2))
    yield from (floats(n, 2).t(), floats(n, 1).expand(n, 2))
    yield from (one.contiguous() for one in (floats(2 * n)[::2], floats(n, 2).t(), floats(n, 1).expand(n, 2)))


@family
def shapes(n: int) -> Iterator[Any]:
    yield from (floats(*shape) for shape in ((6,), (2, 3), (3, 2), (1, 6), (6, 1), (2, 1, 3), (6, 1, 1), ()))
    yield from (floats(n), floats(n + 1), floats(n + 2), floats(n, 2, 1, 2))
    yield from (torch.empty(0), torch.empty(0, 6), torch.empty(6, 0))


@family
def dtypes_of_the_same_bytes(n: int) -> Iterator[Any]:
    wide = (torch.float32, torch.int32, torch.uint32, torch.complex64)
    narrow = (torch.bfloat16, torch.int16, torch.uint8, torch.float8_e5m2)
    yield from (floats(n).view(dtype) for dtype in (*wide, *narrow))
    yield from (floats(n).numpy().view(code) for code in ("f4", "i4", "u4", "u1", "S4", "V4", "M8[s]", "M8[ms]"))
    yield from (floats(n).untyped_storage(), bytearray(floats(n).numpy().tobytes()), floats(n).numpy().tobytes())
    yield from (floats(n).tolist()[:100], (floats(n) % 2).bool())


@family
def tensors_and_arrays(n: int) -> Iterator[Any]:
    yield from ({"x": one, "y": 1} for one in (floats(n), floats(n).double()))
    yield from ({"x": one.numpy(), "y": 1} for one in (floats(n), floats(n).double()))
    yield {"x": np.float32(1), "y": 1}
    pairs = itertools.product((floats(n), floats(n).numpy()), (floats(1), floats(1).numpy()))
    yield from ({"x": x, "y": y} for x, y in pairs)


@family
def arrays(n: int) -> Iterator[Any]:
    yield from (np.arange(2 * n).reshape(2, n), np.asfortranarray(np.arange(2 * n).reshape(2, n)))
    yield from (np.arange(2 * n).reshape(n, 2), np.arange(2 * n), np.arange(2 * n, dtype="f8"), np.zeros(n, "i8"))
    yield from (np.zeros(n, [(name, "i4") for name in names]) for names in ("ab", "ba"))
    yield from (np.array([1, "a"], dtype=object), np.array(["1", "a"]))


@family
def kinds_of_tensors(n: int) -> Iterator[Any]:
    yield from (floats(n), floats(n).requires_grad_(), floats(n).to_sparse(), torch.empty(n, device="meta"))
    yield from (torch.nn.Parameter(floats(n), requires_grad=requires) for requires in (True, False))
    yield from (floats(n).as_subclass(kind) for kind in (Labelled, Quiet))
    yield from (with_attribute(floats(n).as_subclass(Labelled), label=label) for label in "ab")
    yield floats(n).numpy()


@family
def how_many(n: int) -> Iterator[Any]:
    yield from ([floats(n + k) for k in range(count)] for count in (0, 1, 2, 3, 10))
    yield from ({f"t{k}": floats(3) for k in range(count)} for count in (1, 2, 9, 10, 11))


@family
def many_small(n: int) -> Iterator[Any]:
    lasts = (floats(32), 1, "1", floats(31), floats(32).int(), floats(32).numpy())
    yield from ({**{f"k{k}": floats(32) for k in range(9)}, "last": last} for last in lasts)


SIZES = {name: sum(1 for _ in make(SMALL)) for name, make in FAMILIES.items()}


class Step(NamedTuple):
    """Asks for one batch of a family."""

    family: str
    member: int
    size: int


def every_order(name: str, size: int) -> list[Step]:
    """All members twice in a row, then shuffled, in an order that is always the same."""
    members = list(range(SIZES[name]))
    draw = random.Random(f"{name} {size}")
    walk = [member for member in members for _ in (1, 2)]
    for _ in range(1 if size == LARGE else 2):
        walk += draw.sample(members, len(members))
    return [Step(name, member, size) for member in walk]


def steps(sizes: tuple[int, ...], *, without: tuple[str, ...] = ()) -> Iterator[Step]:
    for name in FAMILIES:
        for size in sizes if name not in without else ():
            yield from every_order(name, size)


class Lookalikes(Dataset[Any]):
    def __getitem__(self, step: Step) -> Any:
        return next(itertools.islice(FAMILIES[step.family](step.size), step.member, None))


class Reused(Dataset[Any]):
    """Gives the same objects again and again, with other contents: what is known of an object may be out of date."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(5)
        self.large = torch.zeros(30_000)
        self.array = np.zeros(4)
        self.names = ["a"]
        self.batch: dict[Any, Any] = {}

    def __getitem__(self, index: int) -> Any:
        self.tensor.resize_(4 if index % 7 < 6 else 5).fill_(index)
        self.large.fill_(index)
        self.array.fill(index)
        self.names[:] = [f"n{k}" for k in range(index % 4)]
        self.batch.clear()
        self.batch.update(tensor=self.tensor, names=self.names, number=index)
        if index % 3 == 0:
            self.batch["array"] = self.array
        if index % 3 == 1:
            self.batch["large"] = self.large
        if index % 5 == 4:
            self.batch["again"] = self.tensor
        return self.batch
