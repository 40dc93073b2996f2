"""Tensors that the program has shared on purpose."""

import os
from typing import Any

import pytest
import torch

from antifreeze.engine.arena import shared
from antifreeze.engine.arena.shared import MOST_SHARED, storage_of
from antifreeze.engine.arena.views import read_letter
from antifreeze.engine.arena.writer import SlotWriter
from antifreeze.engine.crossing.results import ResultPickler


def shared_before(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Tensors that were shared before this process became a worker."""
    tensors = [torch.full((3, 2), float(k)).share_memory_() for k in range(MOST_SHARED + 3)]
    monkeypatch.setattr(shared, "_began_ns", os.stat(tensors[-1].untyped_storage()._share_fd_cpu_()[0]).st_ctime_ns)
    return tensors


def through(batch: Any) -> tuple[Any, int]:
    """The batch as it arrives, and how many descriptors came with it."""
    writer = SlotWriter(ResultPickler)
    writer.begin(None)
    parcel, _, body, _, descriptors = writer.write(batch)
    assert body is not None
    storages = [storage_of(fd) for fd in descriptors]
    return read_letter(body, parcel, None, lambda reference: reference, storages), len(descriptors)


def test_what_was_shared_before_is_the_same_memory_on_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shared_before(monkeypatch)
    plain = torch.ones(3)
    (whole, turned, row, other), count = through([before[0], before[0].t(), before[0][1], plain])
    assert count == 1
    before[0].fill_(5)
    assert whole.eq(5).all() and turned.shape == (2, 3) and turned.eq(5).all() and row.eq(5).all()
    row.fill_(7)
    assert before[0][1].eq(7).all()
    assert not whole._is_view() and not other.is_shared()


def test_more_than_fit_into_a_message_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shared_before(monkeypatch)
    arrived, count = through(before)
    assert count == MOST_SHARED
    assert [float(each[0, 0]) for each in arrived] == [float(each[0, 0]) for each in before]
    for each in before:
        each.fill_(-1)
    assert [float(each[0, 0]) for each in arrived] == [-1.0] * MOST_SHARED + [6.0, 7.0, 8.0]


def test_what_a_worker_shares_itself_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_began_ns", 1)
    (arrived,), count = through([torch.ones(3).share_memory_()])
    assert (count, arrived.is_shared(), arrived.tolist()) == (0, False, [1, 1, 1])


def test_outside_of_workers_nothing_goes_as_it_is() -> None:
    _, count = through([torch.ones(3).share_memory_()])
    assert count == 0


def test_memory_that_cannot_be_mapped_is_an_error_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shared_before(monkeypatch)
    writer = SlotWriter(ResultPickler)
    writer.begin(None)
    parcel, _, body, _, descriptors = writer.write([before[0]])
    for fd in descriptors:
        os.close(fd)
    assert body is not None
    with pytest.raises(OSError, match="too many"):
        read_letter(body, parcel, None, lambda reference: reference, OSError("too many"))


def test_a_worker_knows_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_began_ns", 0)
    earlier = torch.ones(3).share_memory_()
    shared.begin()
    assert shared.descriptor_of(earlier.untyped_storage()) is not None
    assert shared.descriptor_of(torch.ones(3).untyped_storage()) is None
