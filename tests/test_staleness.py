"""What is seen of a dataset: changes that there are, and none that there are not."""

import math
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from antifreeze.engine.staleness import describe, difference


class Holding(Dataset[Any]):
    """Holds one thing."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing


class Rude(list[int]):
    """Answers no question."""

    def __len__(self) -> int:
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


class Table:
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.rows = [1, 2]
        self._cache: dict[str, int] = {}


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.zeros(3)


def nested_tensor() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])


THINGS = {
    "not a number": lambda: math.nan,
    "inference tensor": inference_tensor,
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "nested tensor": nested_tensor,
    "rude object": Rude,
    "array of texts": lambda: np.array(["a", "b"]),
    "no elements": lambda: np.zeros((0, 3)),
    "a module": lambda: torch,
}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_what_has_not_changed_is_the_same(make: Any) -> None:
    dataset = Holding(make())
    assert difference(describe(dataset), describe(dataset)) is None


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (1, 1.0), ("a", "b"), (math.nan, 0.0), ([1], [1, 2]), ({"a": 1}, {"a": 2})]
)
def test_what_has_changed_is_named(one: Any, other: Any) -> None:
    dataset = Holding(one)
    before = describe(dataset)
    dataset._thing = other
    changed = difference(before, describe(dataset))
    assert changed is not None and changed.startswith("dataset._thing")


def test_numbers_in_an_array_that_is_not_contiguous_are_looked_at_without_a_copy_of_all() -> None:
    array = np.zeros((4000, 1000), np.uint8).T
    dataset = Holding(array)
    before = describe(dataset)
    array[0, :10] = 1
    tracemalloc.start()
    try:
        changed = difference(before, describe(dataset))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert changed == "dataset._thing"
    assert peak < 100_000


def test_what_an_object_keeps_to_itself_is_no_change_of_the_dataset() -> None:
    dataset = Holding(Table())
    before = describe(dataset)
    dataset._thing._cache["a"] = 1
    assert difference(before, describe(dataset)) is None
    dataset._thing.rows.append(3)
    assert difference(before, describe(dataset)) == "dataset._thing.rows"


def test_a_lazy_proxy_is_not_loaded() -> None:
    asked: list[str] = []

    class Lazy:
        """As those of werkzeug and lazy_object_proxy: whatever is asked of it loads what it stands for."""

        @property
        def __class__(self) -> Any:
            asked.append("class")
            return dict

    class Counted(dict[str, int]):
        def __len__(self) -> int:
            asked.append("len")
            return 0

    class Angry(type):
        def __eq__(cls, other: object) -> bool:
            asked.append("eq")
            return False

        __hash__ = type.__hash__

    describe(Holding([Lazy(), Counted(a=1), Angry("Angry", (), {})()]))
    assert asked == []


def test_the_seed_that_torch_gives_a_data_pipe_for_each_pass_is_no_change() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    pipe: Any = IterableWrapper(range(4)).shuffle()
    before = describe(pipe)
    pipe.set_seed(7)
    assert difference(before, describe(pipe)) is None
    pipe.buffer_size = 2
    assert difference(before, describe(pipe)) == "dataset.buffer_size"
