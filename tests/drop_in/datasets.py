"""Datasets, samplers and functions of the drop-in suite, importable by name so that torch can spawn with them too."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler, get_worker_info


class Numbers(Dataset[int]):
    """Sample `i` is `i` times the factor."""

    def __init__(self, length: int = 13) -> None:
        self.length = length
        self.factor = 1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index * self.factor


class Pictures(Numbers):
    """A picture large enough not to be copied out, and its label."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 64, 64), float(index)), index


class Records(Numbers):
    """One of everything that torch's collate knows."""

    def __getitem__(self, index: int) -> Any:
        return {
            "image": torch.arange(12, dtype=torch.uint8).reshape(3, 4) + index,
            "scalar": torch.tensor(index, dtype=torch.float64),
            "nothing": torch.empty(0, 3),
            "label": index,
            "weight": index / 7,
            "name": f"näme {index}",
            "raw": bytes([index % 256]),
            "array": np.arange(4, dtype=np.int16) * index,
            "number": np.float32(index),
            "flag": bool(index % 2),
            "nested": [index, (torch.tensor([index, -index]), {"deep": float(index)})],
            "point": Point(index, torch.tensor(index + 0.5)),
        }


class Bulk(Numbers):
    """Offers whole batches, and tells that it was asked for one."""

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
        return [(index * self.factor, len(indices)) for index in indices]


class Augmented(Numbers):
    """Every sample draws from each of the global generators."""

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(3), random.random(), np.random.rand(2), torch.randint(0, 1 << 40, ())


class Rejecting(Numbers):
    """Raises for one index, with an exception built by a function of this module."""

    def __init__(self, length: int, *, bad: int, error: Callable[[int], BaseException]) -> None:
        super().__init__(length)
        self.bad = bad
        self.error = error

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise self.error(index)
        return index


class Places(Numbers):
    """Where and as what a sample was loaded."""

    def __getitem__(self, index: int) -> Any:
        worker = get_worker_info()
        if worker is None:
            return index, None
        return index, {
            "id": worker.id,
            "num_workers": worker.num_workers,
            "seed": worker.seed,
            "initial_seed": torch.initial_seed(),
            "dataset_is_this": worker.dataset is self,
            "rng": getattr(worker, "rng", None),  # newer than torch 2.6
            "repr": repr(worker).replace(repr(worker.dataset), "<dataset>"),
            "threads": torch.get_num_threads(),
            "note": getattr(self, "note", None),
            "type": type(worker),
        }


class Pids(Numbers):
    def __getitem__(self, index: int) -> int:
        return os.getpid()


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Boxes:
    """A batch type of the user's own."""

    corners: torch.Tensor
    names: list[str]
    extra: dict[str, Any]


class Watched(Sampler[int]):
    """Counts how often it was begun and how many indices were taken from it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.begun = 0
        self.taken = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return self._take()

    def _take(self) -> Iterator[int]:
        for index in range(self.length):
            self.taken += 1
            yield index


class Eager(Watched):
    """Draws its order from the global generator when it is begun, not when the first index is taken."""

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return iter(torch.randperm(self.length).tolist())


class Lazy(Watched):
    """Draws from all global generators of the parent for each index."""

    def _take(self) -> Iterator[int]:
        for _ in range(self.length):
            self.taken += 1
            drawn = random.random() + np.random.rand() + torch.rand(()).item()
            yield int(drawn * 1000) % self.length


class Backwards(Watched):
    def _take(self) -> Iterator[int]:
        yield from range(self.length - 1, -1, -1)


class Interrupted(Watched):
    """Raises when the given index is to be taken."""

    def __init__(self, length: int, *, at: int) -> None:
        super().__init__(length)
        self.at = at

    def _take(self) -> Iterator[int]:
        for index in range(self.length):
            if index == self.at:
                raise LookupError(f"the sampler lost index {index}")
            yield index


class PlainBatches:
    """Batches of uneven length, from an object that is no Sampler and has no `sampler`."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class TwoArguments(Exception):
    """Cannot be built from a message alone."""

    def __init__(self, first: str, second: int) -> None:
        super().__init__(f"{first} {second}")


class WithMessage(Exception):
    """torch hands its text over as `message=`."""

    message = "set"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def value_error(index: int) -> BaseException:
    return ValueError(f"cannot decode sample {index}")


def key_error(index: int) -> BaseException:
    return KeyError(f"sample-{index}")


def file_not_found(index: int) -> BaseException:
    return FileNotFoundError(2, "No such file or directory", f"/data/{index}.png")


def not_implemented(index: int) -> BaseException:
    return NotImplementedError(f"sample {index}")


def two_arguments(index: int) -> BaseException:
    return TwoArguments("sample", index)


def with_message(index: int) -> BaseException:
    return WithMessage(message=f"sample {index}")


def unicode_error(index: int) -> BaseException:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, f"sample {index}")


def telling(index: int) -> BaseException:
    """One that says more than its text."""
    error = ValueError(f"sample {index}")
    error.index, error.shape = index, torch.tensor([1, 2])  # type: ignore[attr-defined]
    error.__cause__ = file_not_found(index)
    error.add_note("a note")
    return error


ERRORS = [value_error, key_error, file_not_found, not_implemented, two_arguments, with_message, unicode_error]


def as_is(samples: list[Any]) -> list[Any]:
    return samples


def as_structure(samples: list[Any]) -> Any:
    """Every container and leaf that a hand-written collate function may return."""
    numbers = torch.tensor(samples)
    return {
        "dict": {"b": numbers, "a": numbers * 2},
        "list": [numbers.float(), [1, 2.5, None, "text", b"bytes", True, 1 + 2j]],
        "tuple": (numbers, (), ([],)),
        "named": Point(numbers, np.array(samples)),
        "boxes": Boxes(numbers.reshape(-1, 1).double(), [str(number) for number in samples], {"count": len(samples)}),
        "none": None,
        "int": 1 << 70,
        "set": frozenset(samples),
        "array": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided array": np.arange(20)[::3],
        "structured": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        "strings": np.array(["a", "bcd"]),
        "objects": np.array([None, {"x": 1}], dtype=object),
        "scalar": np.int16(3),
        (1, "key"): "tuple key",
    }


def as_none(samples: list[Any]) -> None:
    return None


def as_large_array(samples: list[Any]) -> Any:
    return {"array": np.full((200, 200), samples[0], dtype=np.float64), "count": len(samples)}


def as_dtypes(samples: list[Any]) -> Any:
    """A small and a large tensor of each dtype."""
    dtypes = (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
        *(torch.float32, torch.float64, torch.complex64, torch.complex128),
    )
    base = torch.arange(300 * 300) % 100 + samples[0]
    return {
        str(dtype): [torch.tensor(samples).to(dtype), base.to(dtype), torch.tensor(samples[0]).to(dtype)]
        for dtype in dtypes
    }


def as_layouts(samples: list[Any]) -> Any:
    """Tensors whose strides are not those of a fresh one, and values that compare unequal to themselves."""
    picture = torch.arange(2 * 3 * 100 * 100, dtype=torch.float32).reshape(2, 3, 100, 100) + samples[0]
    return {
        "transposed": picture[0, 0, :4, :3].t(),
        "large transposed": picture[0].permute(2, 1, 0),
        "channels last": picture.to(memory_format=torch.channels_last),
        "slice": picture[:, :, ::2, 1:50],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "offset": torch.arange(10)[3:7],
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
        "empty": torch.empty(0, 5),
        "zero-dimensional": torch.tensor(3),
    }


def as_aliases(samples: list[Any]) -> Any:
    """Two tensors over one memory, and one object twice."""
    whole = torch.arange(100 * 300).reshape(100, 300) + samples[0]
    label = [1, 2]
    return {"whole": whole, "row": whole[3], "same": whole, "label": label, "label again": label}


def reject_batch(samples: list[Any]) -> Any:
    if 4 in samples:
        raise TypeError(f"cannot collate {samples}")
    return torch.tensor(samples)


def leave_note(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.note = f"initialised by worker {worker}"  # type: ignore[attr-defined]


def draw_first(worker: int) -> None:
    """Moves every generator before the first sample."""
    torch.rand(5)
    random.random()
    np.random.seed(1234 + worker)


def reject_worker(worker: int) -> None:
    raise RuntimeError(f"worker {worker} does not start")
