"""A batch into a slot: the worker's side."""

import os
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.layout import ALIGNMENT, DTYPES, Parcel, SlotWriter
from antifreeze.engine.arena.segment import CHUNK, Segment
from antifreeze.engine.arena.views import read_batch
from antifreeze.engine.crossing.results import ResultPickler, find_inherited
from antifreeze.errors import ArenaError


@pytest.fixture
def writer() -> SlotWriter:
    return SlotWriter(ResultPickler)


def slot_of(size: int) -> Segment:
    """A slot as a worker has it: mapped, and without a descriptor."""
    made = memory.create(size)
    made.close_descriptor()
    return made


def copied(segment: Segment, parcel: Parcel) -> Any:
    segment.close_descriptor()
    return read_batch(segment, parcel, lend=lambda: None, find=find_inherited)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_a_batch_that_fits_goes_into_the_slot_that_was_given(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    writer.begin(slot)
    written, parcel = writer.write({"x": torch.arange(10)})
    assert written is slot
    assert copied(slot, parcel)["x"].tolist() == list(range(10))


def test_a_batch_that_does_not_fit_goes_into_a_larger_one_with_room_to_grow(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    writer.begin(slot)
    batch = torch.arange(10 * CHUNK, dtype=torch.uint8)
    written, parcel = writer.write(batch)
    assert written is not slot
    assert written.size > batch.nbytes + batch.nbytes // 10
    assert copied(written, parcel).equal(batch)


def test_without_a_slot_one_is_made_as_large_as_the_largest_so_far(writer: SlotWriter) -> None:
    writer.begin(None)
    first, _ = writer.write(torch.zeros(3 * CHUNK, dtype=torch.uint8))
    writer.begin(None)
    second, _ = writer.write(torch.zeros(1))
    assert second is not first
    assert second.size == first.size
    first.close_descriptor()
    second.close_descriptor()


def test_a_tensor_that_was_collated_into_the_slot_is_not_copied(writer: SlotWriter) -> None:
    slot = slot_of(4 * CHUNK)
    writer.begin(slot)
    first = writer.room((2, 100), torch.float32, 800)
    second = writer.room((3,), torch.int64, 24)
    assert first is not None and second is not None
    assert first.data_ptr() == slot.address
    assert second.data_ptr() == slot.address + 832  # behind it, at a multiple of 64
    first.fill_(1.5)
    second.copy_(torch.tensor([1, 2, 3]))
    written, parcel = writer.write([first, second, torch.tensor([9])])
    assert written is slot
    table = np.frombuffer(slot.read(parcel.offset + parcel.structure_bytes, parcel.table_bytes), np.int64)
    assert table[1::3][: table[0]].tolist() == [0, 832, 896]
    result = copied(written, parcel)
    assert result[0].equal(torch.full((2, 100), 1.5))
    assert result[1].tolist() == [1, 2, 3]
    assert result[2].tolist() == [9]


def test_room_that_is_not_there_is_refused(writer: SlotWriter) -> None:
    writer.begin(None)
    assert writer.room((1,), torch.uint8, 1) is None
    writer.begin(slot_of(CHUNK))
    assert writer.room((CHUNK + 1,), torch.uint8, CHUNK + 1) is None
    assert writer.room((CHUNK,), torch.uint8, CHUNK) is not None
    assert writer.room((1,), torch.uint8, 1) is None


def test_what_was_collated_into_a_slot_that_is_too_small_moves_along(writer: SlotWriter) -> None:
    slot = slot_of(2 * CHUNK)
    writer.begin(slot)
    inside = writer.room((CHUNK,), torch.uint8, CHUNK)
    assert inside is not None
    inside.fill_(7)
    outside = torch.full((4 * CHUNK,), 8, dtype=torch.uint8)
    written, parcel = writer.write([inside, outside, inside[5:9]])
    assert written is not slot
    result = copied(written, parcel)
    assert result[0].equal(torch.full((CHUNK,), 7, dtype=torch.uint8))
    assert result[1].equal(outside)
    assert result[2].data_ptr() == result[0].data_ptr() + 5


def test_room_of_the_batch_before_is_given_again(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    for value in range(3):
        writer.begin(slot)
        inside = writer.room((CHUNK // 2,), torch.uint8, CHUNK // 2)
        assert inside is not None
        written, parcel = writer.write(inside.fill_(value))
        assert written is slot
        assert copied(slot, parcel).equal(torch.full((CHUNK // 2,), value, dtype=torch.uint8))


def test_a_view_into_a_large_dataset_does_not_carry_the_dataset_along(writer: SlotWriter) -> None:
    dataset = torch.zeros(1000, 1000)
    writer.begin(None)
    written, parcel = writer.write(dataset[500])
    assert written.size == CHUNK
    assert copied(written, parcel).equal(dataset[500])


def test_nothing_large_is_inside_the_pickle(writer: SlotWriter) -> None:
    writer.begin(None)
    batch = {
        "tensor": torch.zeros(50_000),
        "strided": torch.zeros(500, 100).t(),
        "array": np.zeros(50_000),
        "grad": torch.zeros(50_000, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.zeros(50_000)),
    }
    written, parcel = writer.write(batch)
    assert parcel.structure_bytes < 3000
    written.close_descriptor()


def test_every_region_is_aligned(writer: SlotWriter) -> None:
    writer.begin(None)
    written, parcel = writer.write([torch.zeros(length, dtype=torch.uint8) for length in (1, 63, 64, 65, 3)])
    table = np.frombuffer(written.read(parcel.offset + parcel.structure_bytes, parcel.table_bytes), np.int64)
    assert table[0] == 5
    assert (table[1:16:3] % ALIGNMENT == 0).all()
    assert parcel.offset % ALIGNMENT == 0
    written.close_descriptor()


def test_every_dtype_has_a_number_of_its_own() -> None:
    assert len(set(DTYPES)) == len(DTYPES)
    assert {torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.uint16} <= set(DTYPES)


def test_what_plain_pickle_cannot_do_goes_by_value(writer: SlotWriter) -> None:
    for number in range(2):  # the second time the other pickler comes first
        slot = slot_of(CHUNK)
        writer.begin(slot)
        inside = writer.room((4,), torch.int32, 16)
        assert inside is not None
        written, parcel = writer.write([lambda x: x + number, inside.fill_(number)])  # noqa: B023
        function, tensor = copied(written, parcel)
        assert function(1) == number + 1
        assert tensor.tolist() == [number] * 4


def test_what_cannot_be_pickled_at_all_says_so_and_the_next_batch_is_fine(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    writer.begin(slot)
    with pytest.raises(TypeError, match="not me"):
        writer.write([torch.zeros(3), Unpicklable()])
    writer.begin(slot)
    written, parcel = writer.write([torch.ones(3)])
    assert copied(written, parcel)[0].tolist() == [1, 1, 1]


def test_a_machine_without_memory_says_so(writer: SlotWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: CHUNK)
    writer.begin(None)
    with pytest.raises(ArenaError):
        writer.write(torch.zeros(CHUNK))


def test_a_made_slot_that_turns_out_too_small_leaves_no_descriptor(writer: SlotWriter) -> None:
    before = descriptors()
    for factor in (1, 2, 4):
        writer.begin(None)
        written, _ = writer.write(torch.zeros(factor * CHUNK, dtype=torch.uint8))
        written.close_descriptor()
    assert descriptors() == before


def test_a_made_slot_that_is_not_used_leaves_no_descriptor(writer: SlotWriter) -> None:
    writer.begin(None)
    written, _ = writer.write(torch.zeros(10))
    written.close_descriptor()
    before = descriptors()
    for _ in range(3):
        writer.begin(None)  # and then the dataset raises
    writer.begin(slot_of(CHUNK))
    assert descriptors() == before


def test_a_made_slot_of_a_batch_that_cannot_be_pickled_leaves_no_descriptor(writer: SlotWriter) -> None:
    writer.begin(None)
    written, _ = writer.write(torch.zeros(10))
    written.close_descriptor()
    before = descriptors()
    for _ in range(3):
        writer.begin(None)
        with pytest.raises(TypeError):
            writer.write(Unpicklable())
    writer.begin(slot_of(CHUNK))
    assert descriptors() == before


def test_what_a_class_makes_only_for_its_pickle_is_kept_until_it_is_copied(writer: SlotWriter) -> None:
    class Maker:
        def __reduce__(self) -> Any:
            return list, ([torch.full((1000,), 1.0), np.full(1000, 2.0)],)

    writer.begin(None)
    written, parcel = writer.write([Maker() for _ in range(20)])
    for tensor, array in copied(written, parcel):
        assert tensor.eq(1).all() and (array == 2).all()
