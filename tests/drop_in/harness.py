"""Runs a case on torch's loader and on ours, and compares what was observed, bit for bit.

A case is a function of a *maker* (`make(dataset, **options)` builds a loader). It returns whatever it observed: batches,
states of generators, counts, outcomes. Both runs begin from the same seeds.
"""

import atexit
import copy
import dataclasses
import multiprocessing
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

SELFTEST = os.environ.get("DROP_IN_SELFTEST", "")
"""When set, 'ours' is torch's loader, so that the suite itself can be tested; `spawn` gives the clean way torch's spawn."""

torch.set_num_threads(1)  # tests fork, and the thread pool of this process does not survive that

TorchLoader = torch.utils.data.DataLoader
started: list[Any] = []
"""Iterators of torch that `tidy_up` has to end."""


class TidyTorchLoader(TorchLoader[Any]):
    """torch's loader, whose iterators are ended by hand.

    Left to the garbage collector in a cycle (an exception's traceback is enough), torch's iterator loses its queues before
    it has told its workers to stop; it then waits five seconds for each.
    """

    def _get_iterator(self) -> Any:
        started.append(super()._get_iterator())
        return started[-1]


def tidy_up() -> None:
    """End torch's workers, and remove the temporary directories of those that had no time to do so themselves."""
    while started:
        iterator = started.pop()
        if iterator._num_workers:
            iterator._shutdown_workers()
    # With kept workers and pin_memory, torch 2.11 holds ended workers, and so their descriptors, until the program ends.
    atexit.unregister(getattr(_MultiProcessingDataLoaderIter, "_clean_up_worker", None))
    own = multiprocessing.current_process()._config.get("tempdir")  # type: ignore[attr-defined]
    for directory in Path(tempfile.gettempdir()).glob("pymp-*"):
        if str(directory) != own:
            shutil.rmtree(directory, ignore_errors=True)


Maker = Callable[..., Any]
Case = Callable[[Maker], Any]


@dataclass(frozen=True, slots=True)
class Way:
    """A kind of loader: the class and the start method that it is asked for."""

    name: str
    loader: type[Any]
    context: str | None
    test: str = ""
    """The test it runs in: the same for every way."""

    def make(self, dataset: Any, **options: Any) -> Any:
        if options.setdefault("num_workers", 2):
            options.setdefault("multiprocessing_context", self.context)
        return self.loader(dataset, **options)

    def __repr__(self) -> str:
        return self.name


def our_class() -> type[Any]:
    if SELFTEST:
        return TorchLoader
    import antifreeze

    return antifreeze.DataLoader


TORCH = Way("torch", TidyTorchLoader, "fork")


def our_way(name: str, *, test: str = "") -> Way:
    contexts = {"default": None, "grown": "fork", "clean": "fork" if SELFTEST == "1" else "spawn"}
    return Way(name, our_class(), contexts[name], test)


def seed_all(seed: int = 20) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextmanager
def torch_may_fork() -> Iterator[None]:
    """torch forks from a process that may have threads; from Python 3.12 on that warns. Ours must not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        yield


def observe(way: Way, case: Case) -> Any:
    seed_all()
    if not way.loader.__module__.startswith("antifreeze"):
        with torch_may_fork():
            return case(way.make)
    return case(way.make)


def assert_same(way: Way, case: Case) -> Any:
    """Run the case on torch's loader and on ours; ours must agree. Gives back what was observed."""
    expected = reference(way.test, case)
    actual = observe(way, case)
    assert_identical(expected, actual)
    return actual


def reference(test: str, case: Case) -> Any:
    """What torch does, observed once for both of our stems."""
    if test in references:
        return references.pop(test)
    expected = observe(TORCH, case)
    tidy_up()
    if test:
        references[test] = copy.deepcopy(expected)  # torch's tensors hold a descriptor each
    return expected


references: dict[str, Any] = {}


def generator_states() -> tuple[bytes, Any, Any]:
    """The global generators of this process."""
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()


def outcome(action: Callable[[], Any]) -> tuple[str, Any]:
    """What an action came to: ('value', it) or ('raised', (type, first line, last line))."""
    try:
        return "value", action()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return "raised", (type(error), lines[0], lines[-1])


def assert_identical(expected: Any, actual: Any, path: str = "observed") -> None:
    """Same types, structure, dtypes, shapes, strides, order and bits."""
    assert type(actual) is type(expected), f"{path}: {type(actual)} instead of {type(expected)}: {actual!r}"
    match expected:
        case torch.Tensor():
            assert_same_tensor(expected, actual, path)
        case np.ndarray():
            assert_same_array(expected, actual, path)
        case dict():
            assert list(actual) == list(expected), f"{path}: keys {list(actual)} instead of {list(expected)}"
            for key in expected:
                assert_identical(expected[key], actual[key], f"{path}[{key!r}]")
        case list() | tuple():
            for number, (left, right) in enumerate(zip(expected, actual, strict=False)):
                assert_identical(left, right, f"{path}[{number}]")
            assert len(actual) == len(expected), f"{path}: {len(actual)} elements instead of {len(expected)}"
        case float() | np.generic():
            assert np.array(actual).tobytes() == np.array(expected).tobytes(), f"{path}: {actual!r}, not {expected!r}"
        case _ if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
            for field in dataclasses.fields(expected):
                name = field.name
                assert_identical(getattr(expected, name), getattr(actual, name), f"{path}.{name}")
        case _:
            assert actual == expected, f"{path}: {actual!r} instead of {expected!r}"


def assert_same_tensor(expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
    def form(tensor: torch.Tensor) -> dict[str, Any]:
        return {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "stride": tensor.stride(),
            "device": tensor.device,
            "requires_grad": tensor.requires_grad,
        }

    assert form(actual) == form(expected), f"{path}: {form(actual)} instead of {form(expected)}"
    assert bits(actual) == bits(expected), f"{path}: {actual} instead of {expected}"


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_same_array(expected: np.ndarray, actual: np.ndarray, path: str) -> None:
    def form(array: np.ndarray) -> tuple[Any, ...]:
        return array.dtype, array.shape, array.strides, array.flags.writeable

    assert form(actual) == form(expected), f"{path}: {form(actual)} instead of {form(expected)}"
    if expected.dtype.hasobject:
        assert_identical(expected.tolist(), actual.tolist(), path)
    else:
        assert actual.tobytes() == expected.tobytes(), f"{path}: {actual} instead of {expected}"
