"""What is big is told with its size; what nobody has to copy is not."""

import mmap
import shutil
from collections.abc import Callable
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.doctor.facts import Bulk
from antifreeze.probes.objects.bulks import FEWEST_OBJECTS, SMALLEST_ARRAY_BYTES, find_bulks
from antifreeze.probes.objects.reach import Reach

N = FEWEST_OBJECTS


class Holder:
    def __init__(self, thing: Any) -> None:
        self.thing = thing


class Record:
    def __init__(self, number: int) -> None:
        self.number = number + 1000


def bulks_of(thing: Any) -> list[Bulk]:
    return list(find_bulks(Reach({"dataset": Holder(thing)}, patience_s=10)))


@pytest.mark.parametrize(
    ("make", "type_", "each"),
    [
        (lambda: [f"image {i:08d}" for i in range(N)], "list", range(60, 90)),
        (lambda: {i: f"image {i:08d}" for i in range(N)}, "dict", range(120, 300)),
        (lambda: {f"image {i:08d}" for i in range(N)}, "set", range(60, 200)),
        (lambda: [{"a": i + 1000, "b": float(i)} for i in range(N)], "list", range(200, 400)),
        (lambda: [Record(i) for i in range(N)], "list", range(50, 250)),
        (lambda: [i + 1000 for i in range(N)], "list", range(30, 45)),
        (lambda: np.array([f"{i}" for i in range(N)], dtype=object), "numpy.ndarray of objects", range(50, 75)),
    ],
    ids=["texts", "dict", "set", "dicts", "records", "numbers", "array"],
)
def test_containers_of_many_objects_are_told_with_an_estimate(make: Callable[[], Any], type_: str, each: range) -> None:
    (bulk,) = bulks_of(make())
    assert (bulk.path, bulk.type, bulk.count) == ("dataset.thing", type_, N)
    assert bulk.bytes // N in each
    assert bulk.place is not None and bulk.place.text == "self.thing = thing"


@pytest.mark.parametrize(
    "thing",
    [["a"] * (N - 1), [1] * N, [None, True] * N, np.zeros(1000), torch.zeros(1000)],
    ids=["few", "one number", "two singletons", "array", "tensor"],
)
def test_what_is_small_or_exists_once_is_not_told(thing: Any) -> None:
    assert not bulks_of(thing)


def test_big_arrays_are_told_once() -> None:
    array = np.zeros(SMALLEST_ARRAY_BYTES, np.uint8)
    tensor = torch.zeros(SMALLEST_ARRAY_BYTES, dtype=torch.uint8)
    found = bulks_of([array, array[:], tensor, tensor[1:]])
    assert [(bulk.type, bulk.count, bulk.bytes) for bulk in found] == [
        ("numpy.ndarray", 0, SMALLEST_ARRAY_BYTES),
        ("torch.Tensor", 0, SMALLEST_ARRAY_BYTES),
    ]


# torch keeps what it could not fill: then there is no shared memory left for the tests beside this one.
@pytest.mark.skipif(
    shutil.disk_usage("/dev/shm").free < 2 * SMALLEST_ARRAY_BYTES, reason="/dev/shm has no room for an array of 64 MB"
)
def test_arrays_in_files_and_in_shared_memory_are_nobodys_to_copy(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(SMALLEST_ARRAY_BYTES)
    mapped = np.memmap(path, np.uint8, "r")
    assert not bulks_of(
        [mapped, np.asarray(mapped), torch.zeros(SMALLEST_ARRAY_BYTES, dtype=torch.uint8).share_memory_()]
    )
    segment = shared_memory.SharedMemory(create=True, size=SMALLEST_ARRAY_BYTES)
    try:
        array: Any = np.frombuffer(segment.buf, np.uint8)
        assert not bulks_of(array)
        del array
    finally:
        segment.close()
        segment.unlink()
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # a process of Python's own
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as plain:
        tensor = torch.frombuffer(bytearray(1), dtype=torch.uint8)
        assert not bulks_of([tensor, plain])
