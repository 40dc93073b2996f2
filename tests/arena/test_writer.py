"""A batch into a slot: the worker's side."""

import os
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import ALIGNMENT, DTYPES, Parcel
from antifreeze.engine.arena.segment import CHUNK, Segment
from antifreeze.engine.arena.views import read_batch, read_letter
from antifreeze.engine.arena.writer import ENCLOSE_UP_TO, MOST_FORMS, SPAN, Desk, SlotWriter, Written
from antifreeze.engine.crossing.results import ResultPickler, find_inherited
from antifreeze.errors import ArenaError


@pytest.fixture
def writer() -> SlotWriter:
    return SlotWriter(ResultPickler)


def room(writer: SlotWriter, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
    """Room for samples that make up a batch of this shape."""
    return writer.room(shape[0], torch.empty(shape[1:], dtype=dtype))


def slot_of(size: int) -> Desk:
    """A slot as a worker has it: mapped, and without a descriptor."""
    made = memory.create(size)
    made.close_descriptor()
    return Desk(made)


class Reader:
    """Reads what was written, as a trainer would."""

    def __init__(self) -> None:
        self.forms: dict[int, Form] = {}

    def read(self, written: Written, slot: Desk | None = None) -> Any:
        parcel, definition, body, made, _ = written
        if definition:
            self.forms[parcel.form] = Form(definition)
        form = self.forms[parcel.form] if parcel.form else None
        if body is not None:
            return read_letter(body, parcel, form, find=find_inherited)
        segment = made or (slot and slot.segment)
        assert segment is not None
        segment.close_descriptor()
        return read_batch(segment, parcel, form, lend=lambda: None, find=find_inherited)


def read(written: Written, slot: Desk | None = None) -> Any:
    return Reader().read(written, slot)


def table_of(view: memoryview, parcel: Parcel) -> np.ndarray:
    start = parcel.offset + parcel.structure_bytes
    return np.frombuffer(bytes(view[start : start + parcel.table_bytes]), np.int64)


def large(value: int, size: int = CHUNK // 2) -> torch.Tensor:
    """A tensor that is too large for a message."""
    return torch.full((size,), value, dtype=torch.uint8)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_a_batch_that_fits_goes_into_the_slot_that_was_given(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    writer.begin(slot)
    written = writer.write({"x": large(3)})
    assert written.made is None and written.body is None
    assert read(written, slot)["x"].equal(large(3))


def test_a_small_batch_goes_into_the_message_with_or_without_a_slot(writer: SlotWriter) -> None:
    for slot in (slot_of(CHUNK), None):
        for batch in (torch.arange(10), ["a", "list", {"of": torch.ones(3)}], (np.arange(3), torch.zeros(2, 2))):
            writer.begin(slot)
            written = writer.write(batch)
            assert written.body is not None and written.made is None
            assert len(written.body) <= ENCLOSE_UP_TO
            assert repr(read(written)) == repr(batch)


def test_a_batch_in_a_message_is_the_users_own(writer: SlotWriter) -> None:
    writer.begin(None)
    first = read(writer.write(torch.zeros(10)))
    writer.begin(None)
    second = read(writer.write(torch.ones(10)))
    first += 5
    assert second.eq(1).all() and first.eq(5).all()


def test_a_batch_that_does_not_fit_goes_into_a_larger_one_with_room_to_grow(writer: SlotWriter) -> None:
    writer.begin(slot_of(CHUNK))
    batch = torch.arange(10 * CHUNK, dtype=torch.uint8)
    written = writer.write(batch)
    assert written.made is not None
    assert written.made.size > batch.nbytes + batch.nbytes // 10
    assert read(written).equal(batch)


def test_without_a_slot_one_is_made_as_large_as_the_largest_so_far(writer: SlotWriter) -> None:
    writer.begin(None)
    first = writer.write(large(1, 3 * CHUNK)).made
    writer.begin(None)
    second = writer.write(large(1)).made
    assert first is not None and second is not None and second is not first
    assert second.size == first.size
    first.close_descriptor()
    second.close_descriptor()


def test_a_large_batch_is_forgotten_when_the_next_ones_are_small(writer: SlotWriter) -> None:
    writer.begin(None)
    outlier = writer.write(large(1, 50 * CHUNK)).made
    assert outlier is not None
    outlier.close_descriptor()
    for _ in range(2 * SPAN):
        writer.begin(None)
        small = writer.write(large(1)).made
        assert small is not None
        small.close_descriptor()
    assert small.size < 10 * CHUNK


def test_a_tensor_that_was_collated_into_the_slot_is_not_copied(writer: SlotWriter) -> None:
    slot = slot_of(4 * CHUNK)
    writer.begin(slot)
    first = room(writer, (20, 100), torch.float32)
    second = room(writer, (3,), torch.int64)
    assert first is not None and second is not None
    assert first.data_ptr() == slot.address
    assert second.data_ptr() == slot.address + 8000  # behind it, at a multiple of 64
    first.fill_(1.5)
    second.copy_(torch.tensor([1, 2, 3]))
    written = writer.write([first, second, torch.tensor([9])])
    table = table_of(slot.view, written.parcel)
    assert table[1::3][: table[0]].tolist() == [0, 8000, 8064]
    result = read(written, slot)
    assert result[0].equal(torch.full((20, 100), 1.5))
    assert result[1].tolist() == [1, 2, 3]
    assert result[2].tolist() == [9]


def test_room_that_is_not_there_is_refused(writer: SlotWriter) -> None:
    for desk in (None, slot_of(CHUNK)):
        writer.begin(desk)
        assert room(writer, (CHUNK + 1,), torch.uint8) is None
        assert room(writer, (CHUNK,), torch.uint8) is not None
        assert room(writer, (1,), torch.uint8) is None


def test_empty_samples_get_no_room(writer: SlotWriter) -> None:
    writer.begin(slot_of(CHUNK))
    assert room(writer, (2, 0, 3), torch.float32) is None


def test_batches_that_ask_for_the_same_room_again_and_again_are_told_apart(writer: SlotWriter) -> None:
    """The same tensors, in another order or another structure, or only some of them: each is read as it was written."""
    slot, reader = slot_of(16 * CHUNK), Reader()
    for turn in range(40):
        writer.begin(slot)
        one, two, three = (room(writer, (n, CHUNK // 16), torch.float32) for n in (2, 2, 3 + (turn // 9) % 2))
        assert one is not None and two is not None and three is not None
        one.fill_(turn), two.fill_(turn + 100), three.fill_(turn + 200)
        batch: Any = [
            {"a": one, "b": two, "c": three},
            {"a": two, "b": one, "c": three},
            [one, two, three],
            {"a": one, "b": two},
            {"a": one, "b": two, "c": three, "label": turn},
            {"a": one, "b": one, "c": three},
        ][turn % 11 % 6]
        expected = (
            str(batch),
            [
                tensor.clone()
                for tensor in (batch.values() if isinstance(batch, dict) else batch)
                if isinstance(tensor, torch.Tensor)
            ],
        )
        got = reader.read(writer.write(batch), slot)
        assert str(got) == expected[0]
        tensors = [t for t in (got.values() if isinstance(got, dict) else got) if isinstance(t, torch.Tensor)]
        assert all(torch.equal(a, b) for a, b in zip(tensors, expected[1], strict=True))


def test_without_a_slot_room_for_a_large_batch_is_made_once_one_has_been_seen(writer: SlotWriter) -> None:
    writer.begin(None)
    first = writer.write(large(1, 2 * CHUNK)).made
    writer.begin(None)
    inside = room(writer, (2 * CHUNK,), torch.uint8)
    assert first is not None and inside is not None
    written = writer.write(inside.fill_(6))
    assert written.made is not None and written.made.address == inside.data_ptr()
    assert read(written).equal(large(6, 2 * CHUNK))
    first.close_descriptor()


def test_what_was_collated_into_a_slot_that_is_too_small_moves_along(writer: SlotWriter) -> None:
    writer.begin(slot_of(2 * CHUNK))
    inside = room(writer, (CHUNK,), torch.uint8)
    assert inside is not None
    inside.fill_(7)
    outside = large(8, 4 * CHUNK)
    written = writer.write([inside, outside, inside[5:9]])
    assert written.made is not None
    result = read(written)
    assert result[0].equal(large(7, CHUNK))
    assert result[1].equal(outside)
    assert result[2].data_ptr() == result[0].data_ptr() + 5


def test_room_of_the_batch_before_is_given_again(writer: SlotWriter) -> None:
    slot, reader = slot_of(CHUNK), Reader()
    for value in range(5):
        writer.begin(slot)
        inside = room(writer, (CHUNK // 2,), torch.uint8)
        assert inside is not None
        written = writer.write(inside.fill_(value))
        assert written.made is None
        assert reader.read(written, slot).equal(large(value))


def test_a_view_into_a_large_dataset_does_not_carry_the_dataset_along(writer: SlotWriter) -> None:
    dataset = torch.zeros(1000, 1000)
    writer.begin(None)
    written = writer.write(dataset[500])
    assert written.made is not None and written.made.size == CHUNK
    assert read(written).equal(dataset[500])


def test_nothing_large_is_inside_the_pickle(writer: SlotWriter) -> None:
    writer.begin(None)
    batch = {
        "tensor": torch.zeros(50_000),
        "strided": torch.zeros(500, 100).t(),
        "array": np.zeros(50_000),
        "grad": torch.zeros(50_000, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.zeros(50_000)),
    }
    written = writer.write(batch)
    assert written.parcel.structure_bytes < 3000
    assert written.made is not None
    written.made.close_descriptor()


def test_every_region_is_aligned(writer: SlotWriter) -> None:
    writer.begin(None)
    written = writer.write([torch.zeros(length, dtype=torch.uint8) for length in (1, 63, 64, 65, 3)])
    assert written.body is not None
    table = table_of(memoryview(written.body), written.parcel)
    assert table[0] == 5
    assert (table[1:16:3] % ALIGNMENT == 0).all()
    assert written.parcel.offset % ALIGNMENT == 0


def test_every_dtype_has_a_number_of_its_own() -> None:
    assert len(set(DTYPES)) == len(DTYPES)
    assert {torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.uint16} <= set(DTYPES)


def test_a_form_is_defined_the_second_time_and_known_from_then_on(writer: SlotWriter) -> None:
    reader, slot = Reader(), slot_of(CHUNK)
    seen = []
    for value in range(4):
        writer.begin(slot)
        written = writer.write({"x": large(value), "names": ["a", str(value)]})
        seen.append((written.parcel.form, bool(written.definition)))
        result = reader.read(written, slot)
        assert result["x"].equal(large(value)) and result["names"] == ["a", str(value)]
    assert seen == [(0, False), (1, True), (1, False), (1, False)]


def test_another_place_is_another_form(writer: SlotWriter) -> None:
    """Whether a tensor was collated into the slot or copied there later may differ from batch to batch."""
    reader, slot = Reader(), slot_of(CHUNK)
    for value in range(12):
        writer.begin(slot)
        second = room(writer, (CHUNK // 4,), torch.uint8) if value % 3 else large(value, CHUNK // 4)
        assert second is not None
        written = writer.write([large(value, CHUNK // 4), second.fill_(value)])
        assert all(part.equal(large(value, CHUNK // 4)) for part in reader.read(written, slot))


def test_forms_are_bounded(writer: SlotWriter) -> None:
    reader = Reader()
    for _ in range(3):
        for length in range(1, MOST_FORMS + 50):
            writer.begin(None)
            assert reader.read(writer.write(torch.ones(length))).sum() == length
    assert len(reader.forms) == len(writer._forms) == MOST_FORMS


def test_forms_of_many_tensors_are_fewer(writer: SlotWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antifreeze.engine.arena.writer.MOST_TENSORS_OF_FORMS", 40)
    reader = Reader()
    for _ in range(3):
        for length in range(1, 9):
            writer.begin(None)
            assert reader.read(writer.write([torch.ones(length) for _ in range(10)]))[-1].sum() == length
    assert len(reader.forms) == len(writer._forms) == 4


def test_batches_that_never_come_again_take_no_place_of_those_that_do(writer: SlotWriter) -> None:
    reader = Reader()
    for length in range(1, MOST_FORMS + 50):
        writer.begin(None)
        reader.read(writer.write(torch.ones(length)))
    for _ in range(3):
        writer.begin(None)
        written = writer.write({"image": torch.ones(7)})
        assert reader.read(written)["image"].sum() == 7
    assert written.parcel.form == 1


def test_a_tensor_that_was_collated_and_dropped_is_not_taken_for_another(writer: SlotWriter) -> None:
    """Ids of dead objects are used again."""
    reader = Reader()
    for value in range(600):
        writer.begin(None)
        assert room(writer, (value + 1,), torch.uint8) is not None
        assert reader.read(writer.write([large(1, 10), large(2, 10)]))[1].equal(large(2, 10))


def test_what_plain_pickle_cannot_do_goes_by_value(writer: SlotWriter) -> None:
    for number in range(2):  # the second time the other pickler comes first
        slot = slot_of(CHUNK)
        writer.begin(slot)
        inside = room(writer, (4000,), torch.int32)
        assert inside is not None
        function, tensor = read(writer.write([lambda x: x + number, inside.fill_(number)]), slot)  # noqa: B023
        assert function(1) == number + 1
        assert tensor.tolist() == [number] * 4000


def test_what_cannot_be_pickled_at_all_says_so_and_the_next_batch_is_fine(writer: SlotWriter) -> None:
    slot = slot_of(CHUNK)
    writer.begin(slot)
    with pytest.raises(TypeError, match="not me"):
        writer.write([torch.zeros(3), Unpicklable()])
    writer.begin(slot)
    assert read(writer.write([torch.ones(3)]), slot)[0].tolist() == [1, 1, 1]


def test_a_machine_without_memory_says_so(writer: SlotWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: CHUNK)
    writer.begin(None)
    with pytest.raises(ArenaError):
        writer.write(torch.zeros(CHUNK))


def close(segment: Segment | None) -> None:
    assert segment is not None
    segment.close_descriptor()


def test_a_made_slot_that_turns_out_too_small_leaves_no_descriptor(writer: SlotWriter) -> None:
    before = descriptors()
    for factor in (1, 2, 4, 8):
        writer.begin(None)
        room(writer, (CHUNK + 1,), torch.uint8)
        close(writer.write(large(0, factor * CHUNK)).made)
    assert descriptors() == before


def test_a_made_slot_that_is_not_used_leaves_no_descriptor(writer: SlotWriter) -> None:
    writer.begin(None)
    close(writer.write(large(0, 2 * CHUNK)).made)
    before = descriptors()
    for _ in range(3):
        writer.begin(None)
        assert room(writer, (2 * CHUNK,), torch.uint8) is not None  # and then the dataset raises
    writer.begin(slot_of(CHUNK))
    assert descriptors() == before


def test_a_made_slot_of_a_batch_that_cannot_be_pickled_leaves_no_descriptor(writer: SlotWriter) -> None:
    writer.begin(None)
    close(writer.write(large(0, 2 * CHUNK)).made)
    before = descriptors()
    for _ in range(3):
        writer.begin(None)
        assert room(writer, (2 * CHUNK,), torch.uint8) is not None
        with pytest.raises(TypeError):
            writer.write(Unpicklable())
    writer.begin(slot_of(CHUNK))
    assert descriptors() == before


def test_what_a_class_makes_only_for_its_pickle_is_kept_until_it_is_copied(writer: SlotWriter) -> None:
    class Maker:
        def __reduce__(self) -> Any:
            return list, ([torch.full((1000,), 1.0), np.full(1000, 2.0)],)

    writer.begin(None)
    for tensor, array in read(writer.write([Maker() for _ in range(20)])):
        assert tensor.eq(1).all() and (array == 2).all()
