"""`pin_memory=True`, with batches that say themselves how they are pinned: what torch gives, raises and warns of.

torch pins only where there is an accelerator. Where there is none, its four questions to it get made-up answers, for
torch's loader and for ours; an older torch asks CUDA instead. What needs a real one is in `tests/device/`.
"""

import dataclasses
import gc
import inspect
import os
import signal
import sys
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from antifreeze.errors import WorkerLost
from drop_in.harness import SELFTEST, Maker, Way, assert_same, our_way, outcome
from leftovers import open_accelerator, status, wait_until
from user_scripts import StartScript

open_accelerator()

TAKES_A_DEVICE = "pin_memory_device is deprecated" not in inspect.getsource(torch.utils.data.dataloader)
"""Whether this is a torch whose loaders pin for the device that they are told (if none, 2.6 pins for CUDA)."""


@pytest.fixture(autouse=True)
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.accelerator.is_available():
        return
    answers = {
        "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda _: None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.accelerator, name, answer)
    if TAKES_A_DEVICE:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)


@dataclass
class Leaf:
    """Knows how to be pinned, and whether it was."""

    value: Any
    is_pinned: bool = False

    def pin_memory(self) -> "Leaf":
        return dataclasses.replace(self, is_pinned=True)


@dataclass
class Refusing(Leaf):
    def pin_memory(self) -> Leaf:
        raise ValueError(f"{self.value} cannot be pinned")


@dataclass
class Stopping(Leaf):
    """Would end the epoch, if it were raised as it is."""

    def pin_memory(self) -> Leaf:
        raise StopIteration


@dataclass
class Plain:
    """Has tensors in it, and no way to pin them."""

    leaf: Leaf


class Named(OrderedDict[str, Any]):
    """A mapping with something beside its items."""

    note = "kept"


Pair = namedtuple("Pair", ["left", "right"])

BATCHES: dict[str, Any] = {
    "its own way": Leaf(1),
    "dict": {"a": Leaf(1), "b": [Leaf(2), "text", b"bytes", None, 3.5]},
    "mapping": Named(a=Leaf(1)),
    "list": [Leaf(1), [Leaf(2)]],
    "tuple": (Leaf(1), (Leaf(2), 3)),
    "namedtuple": Pair(Leaf(1), [Leaf(2)]),
    "range": range(3),
    "string": "text",
    "dataclass": Plain(Leaf(1)),
    "array": np.arange(5),
    "set": {1, 2},
    "None": None,
}


class Given(Dataset[Any]):
    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class Stream(IterableDataset[Any]):
    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(self.lengths[info.id]):
            yield Leaf((info.id, number))


def as_it_is(sample: Any) -> Any:
    return sample


def leaves(count: int) -> Given:
    return Given(*map(Leaf, range(count)))


def pinning(make: Maker, dataset: Any, **options: Any) -> Any:
    return make(dataset, **{"batch_size": None, "pin_memory": True, **options})


@pytest.mark.long(but=4)
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_pinned_as_torch_pins_it(name: str) -> None:
    dataset = Given(*[BATCHES[name]] * 3)
    batches = assert_same(our_way("grown"), lambda make: list(pinning(make, dataset, collate_fn=as_it_is)))
    if isinstance(batches[0], Leaf):
        assert batches[0].is_pinned


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kept", [False, True])
def test_batches_of_several_passes_are_torchs(ours: Way, kept: bool) -> None:
    def case(make: Maker) -> Any:
        loader = pinning(make, leaves(9), persistent_workers=kept)
        return [next(iter(loader)), list(loader), list(loader)]  # the first is broken off

    assert_same(ours, case)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("lengths", [(5, 5), (1, 8, 3), (0, 4)], ids=str)
def test_streams_are_torchs(lengths: tuple[int, ...], kept: bool) -> None:
    def case(make: Maker) -> Any:
        loader = pinning(make, Stream(*lengths), num_workers=len(lengths), persistent_workers=kept)
        return [list(loader) for _ in range(2)]

    assert_same(our_way("grown"), case)


@pytest.mark.parametrize("dataset", [leaves(20), Stream(9, 4)], ids=["map", "stream"])
def test_out_of_order_every_batch_comes_once(dataset: Any) -> None:
    def case(make: Maker) -> Any:
        return sorted(pinning(make, dataset, in_order=False), key=lambda leaf: leaf.value)

    assert_same(our_way("grown"), case)


@pytest.mark.parametrize("options", [{}, {"in_order": False, "num_workers": 1}], ids=str)
def test_an_error_is_raised_in_the_place_of_its_batch_and_the_next_one_comes(ours: Way, options: Any) -> None:
    def case(make: Maker) -> Any:
        iterator = iter(pinning(make, Given(Leaf(0), Refusing(1), Leaf(2), Refusing(3), Leaf(4)), **options))
        return [outcome(lambda: next(iterator)) for _ in range(5)], next(iterator, "over")

    (seen, end) = assert_same(ours, case)
    assert [kind for kind, _ in seen] == ["value", "raised", "value", "raised", "value"] and end == "over"


@pytest.mark.usefixtures("not_for_torch")
def test_a_stop_iteration_of_a_batch_does_not_end_the_epoch() -> None:
    iterator = iter(pinning(our_way("grown").make, Given(Leaf(0), Stopping(1), Leaf(2))))
    assert next(iterator).value == 0
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iterator)
    assert next(iterator).value == 2


def test_the_old_argument_for_the_device_is_taken_as_torch_takes_it() -> None:
    """Older ones heed it, newer ones warn of it and ignore it."""
    device = "cuda" if TAKES_A_DEVICE else "xpu"

    def case(make: Maker) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(pinning(make, leaves(2), pin_memory_device=device))
        return batches, [str(each.message) for each in caught if "pin_memory_device" in str(each.message)]

    _, said = assert_same(our_way("grown"), case)
    assert len(said) == (0 if TAKES_A_DEVICE else 1)


class Counting:
    """A sampler that says how often it was asked."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.asked = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.asked += 1
            yield index


@pytest.mark.parametrize("in_order", [True, False])
def test_the_sampler_is_asked_when_torch_asks_it(in_order: bool) -> None:
    def case(make: Maker) -> Any:
        sampler = Counting(9)
        dataset = Given(*[Refusing(n) if n == 3 and in_order else Leaf(n) for n in range(9)])
        iterator = iter(pinning(make, dataset, sampler=sampler, in_order=in_order))
        asked = [sampler.asked]
        for _ in range(9):
            outcome(lambda: next(iterator))
            asked.append(sampler.asked)
        return asked

    assert_same(our_way("grown"), case)


class Deadly(Dataset[Leaf]):
    """One sample ends every worker."""

    def __init__(self, deaths: Path) -> None:
        self.deaths = deaths

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Leaf:
        if index == 5:
            with self.deaths.open("a") as file:
                file.write(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return Leaf(index)

    def have_died(self, count: int) -> bool:
        pids = self.deaths.read_text().split() if self.deaths.exists() else []
        known = [status(int(pid)) for pid in pids]
        return len(pids) >= count and all(each is None or each[0] in "ZX" for each in known)


@pytest.mark.usefixtures("not_for_torch")
def test_batches_that_came_before_a_failure_are_delivered_before_it(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path / "deaths")
    iterator = iter(pinning(our_way("grown").make, dataset, num_workers=1, prefetch_factor=9))
    for number in range(5):
        assert next(iterator).value == number
        deaths = min(number + 1, 2)  # the second is of the worker that took over when the second batch was asked for
        assert wait_until(lambda deaths=deaths: dataset.have_died(deaths), 10)
    with pytest.raises(WorkerLost, match="sample 5"):
        next(iterator)


# --- the thread


def test_the_thread_lives_as_long_as_the_workers() -> None:
    def case(make: Maker) -> Any:
        iterator = iter(pinning(make, leaves(6)))
        thread, seen = iterator._pin_memory_thread, []
        seen.append((thread.is_alive(), thread.daemon))
        list(iterator)
        seen.append(thread.is_alive())
        loader = pinning(make, leaves(6), persistent_workers=True)
        list(loader)
        thread = loader._iterator._pin_memory_thread
        seen.append(thread.is_alive())
        list(loader)
        seen.append(thread is loader._iterator._pin_memory_thread)
        loader._iterator._shutdown_workers()
        seen.append(thread.is_alive())
        return seen

    assert assert_same(our_way("grown"), case) == [(True, True), False, True, True, False]


@pytest.mark.usefixtures("not_for_torch")
@pytest.mark.parametrize("kept", [False, True])
def test_the_thread_ends_when_the_loop_is_left(kept: bool) -> None:
    threads = []

    def leave_by_an_exception() -> None:
        iterator = iter(pinning(our_way("grown").make, leaves(50), persistent_workers=kept))
        threads.append(iterator._pin_memory_thread)
        for leaf in iterator:
            raise KeyError(leaf.value)

    with pytest.raises(KeyError):
        leave_by_an_exception()
    gc.collect()
    assert not threads[0].is_alive()


def test_no_thread_is_started_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def case(make: Maker) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            iterator = iter(pinning(make, leaves(2)))
        said = [str(each.message) for each in caught if "'pin_memory' argument" in str(each.message)]
        return list(iterator), said, hasattr(iterator, "_pin_memory_thread")

    assert_same(our_way("grown"), case)


EXIT = """
import atexit, threading
atexit.register(lambda: print("threads at the end:", threading.active_count()))  # the first one is called last

import time, torch
from antifreeze import DataLoader

if not torch.accelerator.is_available():
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _: None
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0

class Leaf:
    def __init__(self, number): self.number = number
    def pin_memory(self): return self

class Leaves(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index): return Leaf(index)

loader = DataLoader(Leaves(), batch_size=None, num_workers=2, pin_memory=True, persistent_workers=True,
    multiprocessing_context="fork")
numbers = [leaf.number for leaf in loader]
assert numbers == list(range(100))
iterator = iter(loader)
next(iterator)
print("leaving")
"""


def test_a_program_that_ends_in_mid_epoch_with_kept_workers_ends(start_script: StartScript) -> None:
    script = start_script(EXIT)
    script.wait_line("leaving", within_s=60)
    ended = script.wait_exit(within_s=60).check()
    assert ended.stdout.endswith("threads at the end: 1\n") and ended.stderr == ""
    script.assert_gone()


# --- waiting


@dataclass
class Slow(Leaf):
    """Is pinned when the test says so."""

    def pin_memory(self) -> Leaf:
        assert GO_ON.wait(10)
        return super().pin_memory()


GO_ON = threading.Event()


@pytest.fixture
def slow() -> Iterator[None]:
    GO_ON.clear()
    yield
    GO_ON.set()


def waits_for_pinning() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and (frame.f_code.co_name, frame.f_code.co_filename[-10:]) == ("wait", "pinning.py")


@pytest.mark.usefixtures("slow", "not_for_torch")
@pytest.mark.parametrize("options", [{}, {"in_order": False}], ids=str)
def test_an_interrupt_while_a_batch_is_being_pinned_loses_nothing(options: Any) -> None:
    iterator = iter(pinning(our_way("grown").make, Given(Slow(0), *map(Leaf, range(1, 9))), num_workers=1, **options))

    def interrupt() -> None:
        assert wait_until(waits_for_pinning, 10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    thread.join()
    GO_ON.set()
    assert [leaf.value for leaf in iterator] == list(range(9))


@pytest.mark.usefixtures("slow", "not_for_torch")
def test_pinning_is_not_waited_for_without_end() -> None:
    GO_ON.clear()
    iterator = iter(pinning(our_way("grown").make, Given(Slow(0), Leaf(1)), sample_timeout=1))
    with pytest.raises(
        RuntimeError, match="for 1 seconds nothing has happened; batch 0 has come, and is still on its way"
    ):
        next(iterator)
    GO_ON.set()
    assert [leaf.value for leaf in iterator] == [0, 1]


@pytest.mark.usefixtures("slow")
def test_torchs_timeout_counts_while_a_batch_is_being_pinned() -> None:
    def case(make: Maker) -> Any:
        GO_ON.clear()
        iterator = iter(pinning(make, Given(Slow(0), Leaf(1)), timeout=1))
        with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds"):
            next(iterator)
        GO_ON.set()
        return list(iterator)

    assert_same(our_way("grown"), case)


# --- slots


@dataclass
class Large(Leaf):
    """A tensor that is lent by the arena, until its copy is there."""

    def pin_memory(self) -> "Large":
        return Large(self.value.clone(), is_pinned=True)


@pytest.mark.skipif(bool(SELFTEST), reason="torch has no slots")
def test_the_slots_of_all_that_has_come_are_free_as_soon_as_it_is_pinned() -> None:
    dataset = Given(*[Large(torch.full((1 << 18,), number)) for number in range(24)])
    iterator = iter(pinning(our_way("grown").make, dataset, num_workers=2, prefetch_factor=4))
    arena, kept = iterator._epoch._arena, []

    def is_free() -> bool:
        arena._collect()
        return bool(arena._books.lent == 0)

    for number, batch in enumerate(iterator):
        kept.append(batch)
        assert batch.is_pinned and batch.value.eq(number).all()
        assert wait_until(is_free, 5)
    assert len(kept) == len(dataset)
