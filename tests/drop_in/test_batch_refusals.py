"""What cannot be sent is an error that says where it is in the batch; the batches after it arrive.

torch waits for ever in all of these cases: its worker's thread drops what it cannot pickle.
"""

import collections
import contextvars
import dataclasses
import functools
import mmap
import os
import re
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from antifreeze.errors import AntifreezeError, CannotCross
from drop_in.harness import Way, our_way
from drop_in.kinds import as_it_is, nested
from drop_in.user_types import FrozenSlotted, Plain, Point

pytestmark = [pytest.mark.usefixtures("not_for_torch")]


def a_generator() -> Iterator[int]:
    yield 1


class Refuses:
    def __reduce__(self) -> Any:
        raise ValueError("I stay here")


class RefusesState:
    def __getstate__(self) -> Any:
        raise KeyError("no state")


class Weak:
    pass


ALIVE = Weak()

CULPRITS: dict[str, Callable[[], Any]] = {
    "generator": a_generator,
    "lock": threading.Lock,
    "RLock": threading.RLock,
    "thread": threading.Thread,
    "condition": threading.Condition,
    "file, binary": functools.partial(open, os.devnull, "rb"),
    "file, text": functools.partial(open, os.devnull),
    "file, to write": functools.partial(open, os.devnull, "w"),
    "frame": sys._getframe,
    "memoryview": lambda: memoryview(b"abc"),
    "mmap": lambda: mmap.mmap(-1, 10),
    "weakref": lambda: weakref.ref(ALIVE),
    "sqlite": lambda: sqlite3.connect(":memory:"),
    "context": contextvars.copy_context,
    "__reduce__ that raises": Refuses,
    "__getstate__ that raises": RefusesState,
    "function over a lock": lambda: functools.partial(print, threading.Lock()),
    "DLPack capsule": lambda: torch.zeros(3).__dlpack__(),
    "tensor of MKL-DNN": lambda: torch.ones(3).to_mkldnn(),
}


class Noted(torch.Tensor):
    pass


def on_tensor(it: Any) -> Any:
    tensor = torch.zeros(3).as_subclass(Noted)
    tensor.note = it  # type: ignore[attr-defined]
    return [tensor]


def in_array(it: Any) -> np.ndarray:
    array = np.empty(2, dtype=object)
    array[1] = it
    return array


PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "alone": (lambda it: it, "batch"),
    "dict": (lambda it: {"x": torch.zeros(3), "parts": it}, "batch['parts']"),
    "list": (lambda it: [torch.zeros(40_000), it], "batch[1]"),
    "tuple": (lambda it: (1, (2, it)), "batch[1][1]"),
    "namedtuple": (lambda it: Point(1, it), "batch[1]"),
    "key": (lambda it: {"x": {("deep", 1): [it]}}, "batch['x'][('deep', 1)][0]"),
    "OrderedDict": (lambda it: collections.OrderedDict(a=1, b=it), "batch['b']"),
    "deque": (lambda it: collections.deque([1, it]), "batch[1]"),
    "attribute": (lambda it: Plain(1, it), "batch.y"),
    "slot": (lambda it: FrozenSlotted(1, it), "batch.y"),
    "array": (in_array, "batch[1]"),
    "attribute of a tensor": (on_tensor, "batch[0].note"),
}


class Case(NamedTuple):
    culprit: str
    place: str


class Bad(Dataset[Any]):
    """A case is a batch that cannot be sent; a number is one that can."""

    def __getitem__(self, index: Case | int) -> Any:
        if isinstance(index, int):
            return {"index": index, "x": torch.full((5,), float(index))}
        return PLACES[index.place][0](CULPRITS[index.culprit]())


def run(way: Way, cases: list[Case]) -> list[Exception | None]:
    """What came of each case; a good batch follows each and must arrive."""
    wanted = [index for number, case in enumerate(cases) for index in (case, number)]
    batches = iter(way.make(Bad(), sampler=wanted, batch_size=None, collate_fn=as_it_is, num_workers=1))
    errors: list[Exception | None] = []
    for number in range(len(cases)):
        try:
            next(batches)
            errors.append(None)
        except Exception as error:
            errors.append(error)
        good = next(batches)
        assert good["index"] == number and bool((good["x"] == number).all())
    with pytest.raises(StopIteration):
        next(batches)
    return errors


def test_what_cannot_be_sent_is_named_whatever_it_is(ours: Way) -> None:
    cases = [Case(culprit, "dict") for culprit in CULPRITS]
    found = []
    for case, error in zip(cases, run(ours, cases), strict=True):
        if not isinstance(error, CannotCross):
            found.append(f"{case.culprit}: {error!r}")
        elif "batch['parts'] cannot be pickled" not in str(error) and "batch['parts']." not in str(error):
            found.append(f"{case.culprit}: {error}")
    assert not found, "\n".join(found)


def test_what_cannot_be_sent_is_named_wherever_it_is(ours: Way) -> None:
    cases = [Case("lock", place) for place in PLACES]
    found = []
    for case, error in zip(cases, run(ours, cases), strict=True):
        path = PLACES[case.place][1]
        if not isinstance(error, CannotCross) or f"{path} is a _thread.lock" not in str(error):
            found.append(f"{case.place}: {path} is not in: {error}")
    assert not found, "\n".join(found)


def test_the_error_says_what_where_why_and_what_to_try() -> None:
    (error,) = run(our_way("grown"), [Case("generator", "key")])
    assert isinstance(error, CannotCross) and isinstance(error, TypeError)
    assert error.what == "worker 0 made a batch that cannot be sent: batch['x'][('deep', 1)][0] cannot be pickled"
    place = f"{Path(__file__).name}:{a_generator.__code__.co_firstlineno}"
    assert error.where == f"batch['x'][('deep', 1)][0] is a generator of a_generator at {place}"
    assert error.code == "AF305"
    assert error.why == "TypeError: cannot pickle 'generator' object"
    assert error.try_ and "plain data" in error.try_
    assert any(re.search(r"worker 0 \(pid \d+\), batch 0", note) for note in error.__notes__)


class Fragile:
    """Travels well, and breaks on arrival."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __setstate__(self, state: Any) -> None:
        if state["where"] == "state":
            raise LookupError("broken on arrival")
        self.__dict__.update(state)

    def __reduce__(self) -> Any:
        return (Fragile._make, (self.where,)) if self.where == "call" else super().__reduce__()

    @staticmethod
    def _make(where: str) -> "Fragile":
        raise LookupError("broken on arrival")


class FragileBatches(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        large = torch.full((40_000,), float(index))
        return {"x": large, "thing": Fragile("call" if index % 4 == 1 else "state") if index % 2 else None}


def test_what_cannot_be_rebuilt_is_raised_as_it_is_and_the_next_batch_arrives(ours: Way) -> None:
    batches = iter(ours.make(FragileBatches(), sampler=range(40), batch_size=None, collate_fn=as_it_is))
    for index in range(40):
        if index % 2:
            with pytest.raises(LookupError, match="broken on arrival"):
                next(batches)
        else:
            assert bool((next(batches)["x"] == index).all())


class Levels(Dataset[Any]):
    def __getitem__(self, depth: int) -> Any:
        return nested(depth)


@dataclasses.dataclass
class Link:
    next: Any
    x: torch.Tensor


class Chain(Dataset[Any]):
    """Objects that hold each other in a long row: each costs pickle several levels."""

    def __getitem__(self, length: int) -> Any:
        link = None
        for _ in range(length):
            link = Link(link, torch.zeros(2))
        return link


@pytest.mark.long(but=2)
@pytest.mark.parametrize("dataset", [Levels(), Chain()], ids=["levels", "chain"])
def test_what_is_too_deep_for_pickle_is_an_error_that_says_so(ours: Way, dataset: Dataset[Any]) -> None:
    """torch's worker drops it, and the loop waits for ever."""
    depths = [3, 20_000, 4, 5_000, 5]
    batches = iter(ours.make(dataset, sampler=depths, batch_size=None, collate_fn=as_it_is, num_workers=1))
    for depth in depths:
        if depth < 10:
            next(batches)
            continue
        with pytest.raises((AntifreezeError, RecursionError)) as caught:
            next(batches)
        assert "recursion" in str(caught.value).lower()
    with pytest.raises(StopIteration):
        next(batches)
