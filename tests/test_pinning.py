"""The thread that pins, with batches that say how they are pinned: no device, no workers."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch

from antifreeze.engine import pinning
from antifreeze.engine.outcomes import Outcomes, Pinning
from antifreeze.engine.pinning import Device, Limits, Pinned, Pinner
from antifreeze.engine.supervise.watchdog import Seen


class Batch:
    """Notes the thread that it is pinned in, and can wait there until it is told to go on."""

    def __init__(self, *, waits: bool = False) -> None:
        self.pinned_in: threading.Thread | None = None
        self.has_begun = threading.Event()
        self.go_on = threading.Event()
        if not waits:
            self.go_on.set()

    def pin_memory(self) -> "Batch":
        self.has_begun.set()
        assert self.go_on.wait(10)
        self.pinned_in = threading.current_thread()
        return self


class Doing:
    """Does this when it is pinned."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def pin_memory(self) -> Any:
        return self.action()


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    devices: list[int] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", devices.append)
    return devices


@pytest.fixture
def pinner(entered: list[int]) -> Iterator[Pinner]:
    made = Pinner(Device("cuda", 3))
    yield made
    made.close()


def pinned_by(pinner: Pinner, batch: Any) -> Any:
    pinned = pinner.start(batch)
    await_pinned(pinner, pinned)
    return pinned.take()


def await_pinned(pinner: Pinner, pinned: Pinned, *, timeout_s: float = 10, idle_s: float = 60) -> None:
    pinner.await_pinned(pinned, batch=7, limits=Limits(timeout_s, idle_s))


def test_batches_are_pinned_in_the_thread_and_for_the_device(pinner: Pinner, entered: list[int]) -> None:
    batch = pinned_by(pinner, {"a": [Batch()]})["a"][0]
    assert batch.pinned_in is pinner.thread
    assert entered == [3]


def test_what_pinning_raises_is_raised_where_the_batch_is_taken(pinner: Pinner) -> None:
    def fail() -> None:
        raise KeyError("no room")

    with pytest.raises(KeyError, match="Caught KeyError in pin memory thread for device 3") as caught:
        pinned_by(pinner, [Doing(fail)])
    assert "no room" in str(caught.value)
    assert pinned_by(pinner, "the next") == "the next"


def test_a_batch_is_let_go_of_as_soon_as_its_copy_is_there(pinner: Pinner) -> None:
    batch = Doing(lambda: "a copy")
    original = weakref.ref(batch)
    pinned = pinner.start(batch)
    del batch
    await_pinned(pinner, pinned)
    assert original() is None
    copy = weakref.ref(pinned_by(pinner, Batch()))
    assert copy() is None  # nor is that kept, once it has been taken


def test_a_batch_that_nobody_wants_is_not_pinned(pinner: Pinner) -> None:
    first, unwanted = Batch(waits=True), Batch()
    pins = [pinner.start(first), pinner.start(unwanted)]
    Outcomes(mock.Mock(), mock.Mock(), mock.Mock()).discard(Pinning(pins[1]))
    first.go_on.set()
    for pinned in pins:
        await_pinned(pinner, pinned)
    assert first.pinned_in is not None and unwanted.pinned_in is None


def test_whoever_waits_is_told_when_time_is_up_and_can_wait_again(pinner: Pinner) -> None:
    batch = Batch(waits=True)
    pinned = pinner.start(batch)
    with pytest.raises(RuntimeError, match=r"timed out after 0.01 seconds: batch 7 has come"):
        await_pinned(pinner, pinned, timeout_s=0.01)
    batch.go_on.set()
    await_pinned(pinner, pinned)
    await_pinned(pinner, pinned)
    assert pinned.take() is batch


def test_a_thread_that_is_stuck_is_reported_and_then_an_error_with_the_line_that_it_is_at(
    pinner: Pinner, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pinning, "SLICE_S", 0.01)
    monkeypatch.setattr(pinning, "SLOW_S", 0.05)
    batch = Batch(waits=True)
    pinned = pinner.start(batch)
    assert batch.has_begun.wait(10)
    with pytest.raises(
        RuntimeError, match=r"nothing has happened; batch 7 .*, at .*threading.py:\d+ in wait.*pin_memory"
    ):
        await_pinned(pinner, pinned, timeout_s=0, idle_s=0.5)
    assert capfd.readouterr().err.count("batch 7 has come") == 1
    batch.go_on.set()
    await_pinned(pinner, pinned)


def test_a_thread_that_works_is_waited_for(pinner: Pinner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "SLICE_S", 0.02)
    monkeypatch.setattr(pinner, "_seen", working())

    def take_a_while() -> str:
        assert not threading.Event().wait(0.3)
        return "done"

    pinned = pinner.start(Doing(take_a_while))
    await_pinned(pinner, pinned, timeout_s=0, idle_s=0.1)
    assert pinned.take() == "done"


def working() -> Callable[[], Seen]:
    """Looks at something that uses a processor all the time."""
    seconds = itertools.count()
    return lambda: Seen(next(seconds), io_bytes=0, is_traced=False, is_stopped=False, waits_in=None)


def test_a_wait_whose_end_was_lost_to_an_interrupt_can_be_repeated() -> None:
    pinned = Pinned("a batch")
    pinned.pin(Device("cuda", 0))
    assert pinned._under_way.acquire(timeout=1)  # as a wait that never came to return
    assert pinned.wait(10)


def test_closing_ends_the_thread_and_drops_what_it_has_not_begun(pinner: Pinner) -> None:
    begun, waiting = Batch(waits=True), Batch()
    pinner.start(begun)
    pinner.start(waiting)
    assert begun.has_begun.wait(10)
    threading.Timer(0.05, begun.go_on.set).start()
    pinner.close()
    assert not pinner.thread.is_alive()
    assert begun.pinned_in is not None and waiting.pinned_in is None
    pinner.close()  # again: nothing happens


def test_the_thread_does_not_outlive_whoever_forgets_it(entered: list[int]) -> None:
    pinner = Pinner(Device("cuda", 0))
    thread = pinner.thread
    del pinner
    gc.collect()
    assert not thread.is_alive()


def test_the_thread_can_close_its_own_pinner(pinner: Pinner) -> None:
    """The collector runs in any thread, and may find an iterator that nobody has closed."""
    pinned = pinner.start(Doing(lambda: pinner.close()))  # noqa: PLW0108 - not before it is called
    assert pinned.wait(10)
    assert pinned.take() is None
    pinner.thread.join(10)
    assert not pinner.thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_noticed(pinner: Pinner) -> None:
    def end() -> None:
        raise SystemExit

    with pytest.raises(RuntimeError, match="Pin memory thread exited unexpectedly"):
        pinned_by(pinner, Doing(end))
