"""The trainer's side of the shared memory: real memory, no workers."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType
from typing import Any, ClassVar

import pytest
import torch

from antifreeze.engine import forks
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.arena import LETTERS_IN_A_ROW, MOST_LENT, SIZE_SPAN, SPARE, USE_SPAN, Arena, Lease
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import COPY_BELOW, Parcel
from antifreeze.engine.arena.recent import RecentMaximum
from antifreeze.engine.arena.segment import Segment
from antifreeze.engine.arena.slots import State
from antifreeze.engine.arena.writer import Desk, SlotWriter
from antifreeze.engine.crossing.results import ResultPickler
from antifreeze.engine.numbers import SlotNo, WorkerNo
from antifreeze.errors import InternalError

SIZE = 2 * COPY_BELOW
"""A batch of this many bytes is lent; its slot has one chunk more."""
SLOT_BYTES = 3 * memory.CHUNK
WORKER = WorkerNo(0)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


class Setting:
    """An arena and one worker that answers at once."""

    def __init__(self, *, window: int = 4, budget_bytes: int = 100 * SLOT_BYTES) -> None:
        self.arena = Arena(window=window, budget_bytes=budget_bytes)
        self.mapped: dict[SlotNo, Desk] = {}
        self.forms: dict[SlotNo, Form | None] = {}
        self._writer = SlotWriter(ResultPickler)

    def lease(self, worker: int = 0) -> Lease:
        lease = self.arena.lease(WorkerNo(worker))
        for slot in lease.forget:
            self.mapped.pop(slot, None)
        return lease

    def fill(self, lease: Lease, value: int, *, size: int = SIZE) -> tuple[SlotNo, Parcel]:
        """The worker makes a batch, and the trainer hears of it."""
        given = None
        if lease.slot is not None:
            if lease.descriptor is not None:
                segment = Segment(os.dup(lease.descriptor), lease.size)
                segment.close_descriptor()
                self.mapped[lease.slot] = Desk(segment)
            given = self.mapped[lease.slot]
        self._writer._slot_bytes = RecentMaximum(1)
        self._writer.begin(given)
        parcel, definition, body, made, _ = self._writer.write(torch.full((size,), value, dtype=torch.uint8))
        assert body is None
        form = self.arena.form_of(WORKER, parcel.form, definition)
        slot = lease.slot
        if made is not None:
            slot = self.arena.adopt(made.fd, made.size, WORKER, used_bytes=parcel.end, instead_of=slot)
        else:
            assert slot is not None
            self.arena.fill(slot, WORKER, used_bytes=parcel.end)
        self.forms[slot] = form
        return slot, parcel

    def batch(self, value: int, *, size: int = SIZE) -> torch.Tensor:
        slot, parcel = self.fill(self.lease(), value, size=size)
        return self.open(slot, parcel)

    def open(self, slot: SlotNo, parcel: Parcel) -> Any:
        return self.arena.open(slot, parcel, self.forms[slot], lambda _: None)

    def is_lent(self, tensor: torch.Tensor) -> bool:
        spans = [(each.address, each.address + each.size) for each in self.arena._segments.values()]
        return any(low <= tensor.data_ptr() < high for low, high in spans)

    @property
    def slots(self) -> int:
        return len(self.arena._books)

    def states(self) -> list[str]:
        books = self.arena._books
        return sorted(state.name for state in State for _ in books.slots_in(state))


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    made.arena.close()


def test_the_first_lease_is_for_memory_of_the_workers_own_making(setting: Setting) -> None:
    assert setting.lease() == Lease(None, 0, None, ())


def test_an_adopted_slot_is_lent_then_free_then_leased_with_its_descriptor_once(setting: Setting) -> None:
    tensor = setting.batch(1)
    assert setting.is_lent(tensor)
    assert setting.states() == ["LENT"]
    assert setting.lease().slot is None
    del tensor
    lease = setting.lease()
    assert lease.slot is not None and lease.size == SLOT_BYTES and lease.descriptor is not None
    setting.arena.hand_back(lease.slot)
    again = setting.lease()
    assert again.slot == lease.slot and again.descriptor is None
    setting.arena.hand_back(lease.slot)
    other = setting.lease(worker=1)
    assert other.slot == lease.slot and other.descriptor is not None


def test_a_slot_of_small_tensors_is_free_as_soon_as_it_is_opened(setting: Setting) -> None:
    tensor = setting.batch(1, size=10_000)
    assert setting.states() == ["FREE"]
    assert tensor.eq(1).all()


def test_a_batch_that_cannot_be_opened_leaves_its_slot_free(setting: Setting) -> None:
    slot, parcel = setting.fill(setting.lease(), 1)
    with pytest.raises(Exception):  # noqa: B017 - whatever pickle says
        setting.open(slot, parcel._replace(offset=parcel.offset + 1))
    assert setting.states() == ["FREE"]


@pytest.fixture
def tight() -> Iterator[Setting]:
    """With room for the window, and for the few that are lent in any case."""
    made = Setting(budget_bytes=(4 + SPARE) * SLOT_BYTES)
    yield made
    made.arena.close()


def test_slots_are_lent_within_the_rule_and_further_batches_are_copied(tight: Setting) -> None:
    setting = tight
    kept = [setting.batch(value) for value in range(SPARE + 4)]
    assert [setting.is_lent(tensor) for tensor in kept] == [True] * SPARE + [False] * 4
    assert [int(tensor[0]) for tensor in kept] == list(range(SPARE + 4))
    assert all(tensor.eq(value).all() for value, tensor in enumerate(kept))
    del kept[0]
    kept.append(setting.batch(99))
    assert setting.is_lent(kept[-1])


def test_batches_that_are_held_are_lent_while_the_budget_has_room_for_the_window_beside_them() -> None:
    setting = Setting(budget_bytes=(4 + 16) * SLOT_BYTES)  # 16 steps whose gradients are accumulated, say
    for cycle in range(3):
        kept = [setting.batch(value) for value in range(20)]
        assert [setting.is_lent(tensor) for tensor in kept] == [True] * 16 + [False] * 4
        assert all(tensor.eq(value).all() for value, tensor in enumerate(kept))
        assert setting.arena.window == 4
        assert setting.arena._books.total_bytes <= setting.arena.budget_bytes
        if cycle == 0:
            slots = setting.slots
        assert setting.slots == slots  # those that are given back are used again
        del kept
    setting.arena.close()


def test_held_batches_that_are_in_the_way_of_larger_ones_make_the_window_smaller_until_they_go() -> None:
    setting = Setting(budget_bytes=(4 + 16) * SLOT_BYTES)
    kept = [setting.batch(value) for value in range(16)]
    large = setting.batch(99, size=5 * SIZE)
    assert setting.arena.window < 4
    del kept, large
    for value in range(2 * SIZE_SPAN):
        setting.batch(value)
    assert setting.arena.window == 4
    setting.arena.close()


def test_as_many_as_are_under_way_can_be_lent_for_now(tight: Setting) -> None:
    setting = tight
    filled = [setting.fill(setting.lease(), value) for value in range(SPARE + 5)]
    copied = [setting.arena.open(*each, setting.forms[each[0]], lambda _: None, for_now=True) for each in filled]
    assert [setting.is_lent(tensor) for tensor in copied] == [True] * (SPARE + 4) + [False]
    assert all(tensor.eq(value).all() for value, tensor in enumerate(copied))
    del copied
    assert setting.is_lent(setting.batch(9))


def test_however_many_batches_the_user_keeps_slots_and_descriptors_stay_few(setting: Setting) -> None:
    before = descriptors()
    kept = [setting.batch(value % 250) for value in range(MOST_LENT + 30)]
    assert setting.slots <= MOST_LENT + 1
    assert len(descriptors() - before) == setting.slots
    assert all(tensor.eq(value % 250).all() for value, tensor in enumerate(kept))


def test_in_a_calm_run_the_same_slots_are_used_for_ever(setting: Setting) -> None:
    tensor = setting.batch(0)
    for value in range(1, 40):
        tensor = setting.batch(value)  # holds the last one while it asks for the next, as a loop does
        assert setting.is_lent(tensor)
    assert setting.slots == 2
    assert tensor.eq(39).all()


def test_a_slot_that_is_too_small_is_replaced_and_the_worker_told_to_forget_it(setting: Setting) -> None:
    before = descriptors()
    setting.batch(1)
    setting.batch(1)
    (small,) = setting.arena._segments
    assert small in setting.mapped
    tensor = setting.batch(2, size=4 * SIZE)
    assert setting.is_lent(tensor) and tensor.eq(2).all()
    assert small not in setting.arena._segments
    assert setting.lease().forget == (small,)
    assert len(descriptors() - before) == 1


def test_a_batch_may_be_released_by_another_thread(setting: Setting) -> None:
    held = [setting.batch(1)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert setting.lease().slot is not None
    assert setting.states() == ["LEASED"]


def test_a_batch_may_be_released_by_the_garbage_collector(setting: Setting) -> None:
    cycle: list[Any] = [setting.batch(1)]
    cycle.append(cycle)
    del cycle
    assert setting.states() == ["LENT"]
    gc.collect()
    assert setting.lease().slot is not None


def test_a_batch_that_is_released_while_another_is_opened_is_taken_back_later(setting: Setting) -> None:
    kept = [setting.batch(value) for value in range(SPARE)]
    lease = setting.lease()
    slot, parcel = setting.fill(lease, 9)
    kept.clear()
    assert setting.is_lent(setting.open(slot, parcel))  # for it looks again before it refuses


def test_memory_that_a_child_of_the_trainer_sees_is_never_written_again(setting: Setting) -> None:
    before = descriptors()
    tensor = setting.batch(1)
    (slot,) = setting.arena._segments
    fork()
    assert tensor.eq(1).all()
    del tensor
    lease = setting.lease()
    assert lease.slot is None
    assert setting.slots == 0
    assert setting.arena._books.state(slot) is State.GONE
    assert descriptors() == before


def test_a_slot_that_was_free_at_a_fork_is_used_again(setting: Setting) -> None:
    tensor = setting.batch(1)
    del tensor
    setting.arena._collect()
    fork()
    assert setting.is_lent(setting.batch(2))
    assert setting.lease().slot is not None


def test_slots_that_a_fork_has_spoilt_count_as_lent(tight: Setting) -> None:
    setting = tight
    kept = [setting.batch(value) for value in range(SPARE)]
    fork()
    assert not setting.is_lent(setting.batch(9))
    assert all(each.eq(value).all() for value, each in enumerate(kept))
    kept.clear()
    assert setting.is_lent(setting.batch(9))


def test_every_arena_hears_of_a_fork() -> None:
    settings = [Setting(), Setting()]
    kept = [each.batch(1) for each in settings]
    fork()
    assert all(tensor.eq(1).all() for tensor in kept)
    kept.clear()
    assert [each.lease().slot for each in settings] == [None, None]
    for each in settings:
        each.arena.close()


def test_what_is_called_before_a_fork_is_not_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that raises in a Python function there is ignored, and so would be the rest of the function."""
    called: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: called.extend(hooks.items()))
    forks.start_counting.__wrapped__()
    [(when, hook)] = called
    assert when == "before" and isinstance(hook, partial) and isinstance(hook.func, BuiltinFunctionType)


OVER_A_CYCLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "a memoryview": lambda batch: memoryview(batch.numpy()),
    "an array": lambda batch: batch.numpy(),
    "the tensor": lambda batch: batch,
    "its storage": lambda batch: batch.untyped_storage(),
    "the owner": lambda batch: batch.untyped_storage()._antifreeze_memory,  # type: ignore[attr-defined]
    "a memoryview of the owner": lambda batch: memoryview(batch.untyped_storage()._antifreeze_memory),  # type: ignore[attr-defined]
}


class Pooled:
    """A record that puts itself back into a pool when it is collected, as caches of buffers do."""

    pool: ClassVar[list["Pooled"]] = []

    def __init__(self, content: Any) -> None:
        self.content = content
        self.itself = self

    def __del__(self) -> None:
        self.pool.append(self)


@pytest.mark.parametrize("content", OVER_A_CYCLE)
def test_what_a_finalizer_brings_back_to_life_keeps_its_memory(setting: Setting, content: str) -> None:
    record = Pooled(OVER_A_CYCLE[content](setting.batch(1)))
    del record
    gc.collect()
    assert len(Pooled.pool) == 1
    kept = [setting.batch(value) for value in range(2, 5)]
    assert bytes(_bytes_of(Pooled.pool[0].content)[:SIZE]) == b"\x01" * SIZE
    del kept
    Pooled.pool[0].itself = None
    Pooled.pool.clear()
    setting.arena._collect()
    assert setting.arena._books.lent == 0


def _bytes_of(content: Any) -> Any:
    if isinstance(content, torch.UntypedStorage):
        content = torch.empty(0, dtype=torch.uint8).set_(content)
    return memoryview(content.numpy() if isinstance(content, torch.Tensor) else content).cast("B")


def test_the_window_shrinks_with_the_budget_and_one_slot_to_lend_remains() -> None:
    setting = Setting(window=8, budget_bytes=3 * SLOT_BYTES)
    assert setting.arena.window == 8
    kept = [setting.batch(value) for value in range(5)]
    assert setting.arena.window == 2
    assert [setting.is_lent(tensor) for tensor in kept] == [True, False, False, False, False]
    assert setting.arena._books.total_bytes <= setting.arena.budget_bytes
    setting.arena.close()


def test_a_batch_beyond_the_budget_still_passes_one_at_a_time() -> None:
    setting = Setting(window=8, budget_bytes=SLOT_BYTES // 2)
    for value in range(5):
        tensor = setting.batch(value)
        assert tensor.eq(value).all()
        assert not setting.is_lent(tensor)
        assert setting.slots == 1
    assert setting.arena.window == 1
    setting.arena.close()


def test_the_window_comes_back_when_batches_become_small_again() -> None:
    setting = Setting(window=4, budget_bytes=4 * SLOT_BYTES)
    setting.batch(1, size=3 * SIZE)
    assert setting.arena.window < 4
    for value in range(2 * SIZE_SPAN):
        assert setting.batch(value, size=10_000) is not None
    assert setting.arena.window == 4
    setting.arena.close()


def test_the_window_comes_back_also_where_no_slot_has_to_be_made_for_the_small_ones() -> None:
    setting = Setting(window=16, budget_bytes=20 * SLOT_BYTES)
    slots = [setting.fill(Lease(None, 0, None, ()), value) for value in range(16)]
    for slot, _ in slots:
        setting.arena.discard(slot)
    setting.batch(1, size=15 * SIZE)
    assert setting.arena.window < 16
    made = len(setting.arena._segments)
    for value in range(2 * SIZE_SPAN):
        setting.batch(value)
    assert setting.arena.window == 16
    assert len(setting.arena._segments) <= made
    setting.arena.close()


def test_a_slot_far_larger_than_batches_are_is_let_go(setting: Setting) -> None:
    setting.batch(1, size=40 * SIZE)
    for value in range(2 * SIZE_SPAN + 1):
        setting.batch(value)
    assert setting.arena._books.total_bytes <= 2 * SLOT_BYTES


def test_slots_beyond_window_and_spare_are_let_go() -> None:
    setting = Setting(window=1)
    slots = [setting.fill(Lease(None, 0, None, ()), value) for value in range(8)]
    for slot, _ in slots:
        setting.arena.discard(slot)
    assert setting.slots == 8  # of which all were in use a moment ago
    for value in range(2 * USE_SPAN):
        setting.batch(value)
    assert setting.slots == 1 + SPARE
    setting.arena.close()


def test_free_slots_are_given_back_at_once_when_memory_is_short(setting: Setting) -> None:
    kept = setting.batch(7)
    slot, _ = setting.fill(setting.lease(), 1)
    mapped = os.dup(setting.arena._segments[slot].fd)  # as a worker has it, which has not heard of this yet
    setting.arena.discard(slot)
    assert os.fstat(mapped).st_blocks
    setting.arena.give_back_free()
    assert os.fstat(mapped).st_blocks == 0
    os.close(mapped)
    assert setting.states() == ["LENT"]
    assert kept.eq(7).all()


def test_the_slot_of_a_lost_worker_is_not_reused_before_its_death_is_confirmed(setting: Setting) -> None:
    setting.batch(1, size=10_000)
    lease = setting.lease()
    assert lease.slot is not None
    setting.arena.lose_writer(lease.slot)
    setting.arena.forget_worker(WORKER)
    assert setting.states() == ["CONDEMNED"]
    assert setting.lease(worker=1).slot is None
    setting.arena.confirm_death(lease.slot)
    again = setting.lease()
    assert again.slot == lease.slot
    assert again.descriptor is not None  # the next worker of that number has not got it


def test_a_worker_whose_batches_come_in_messages_gets_no_slot_until_one_does_not(setting: Setting) -> None:
    setting.batch(1)
    for _ in range(LETTERS_IN_A_ROW):
        lease = setting.lease()
        assert lease.slot is not None
        setting.arena.pass_over(lease.slot, WORKER)
    assert setting.lease().slot is None
    assert setting.lease(worker=1).slot is not None
    setting.arena.pass_over(None, WORKER)
    setting.fill(Lease(None, 0, None, ()), 2)
    setting.batch(3)
    assert setting.lease().slot is not None


def test_what_is_not_in_the_table_is_a_bug_of_ours(setting: Setting) -> None:
    slot, _ = setting.fill(setting.lease(), 1)
    with pytest.raises(InternalError):
        setting.arena.fill(slot, WORKER, used_bytes=SIZE)
    with pytest.raises(InternalError):
        setting.arena.hand_back(slot)


def test_batches_outlive_the_arena() -> None:
    before = descriptors()
    setting = Setting()
    kept = [setting.batch(value) for value in range(SPARE)]
    setting.fill(setting.lease(), 9)
    setting.arena.close()
    setting.arena.close()
    assert descriptors() == before
    del setting
    gc.collect()
    assert all(tensor.eq(value).all() for value, tensor in enumerate(kept))
    kept.clear()  # nobody is there any more to take them back


def test_an_arena_can_say_how_it_is(setting: Setting) -> None:
    tensor = setting.batch(1)
    assert repr(setting.arena).startswith("<Arena 1 slots, 1 lent, 0 of ")
    del tensor
