"""A slot → the batch in it: whatever was written is read, bit for bit, lent or copied."""

import gc
import pickle
import re
import warnings
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import COPY_BELOW, DTYPES
from antifreeze.engine.arena.segment import Owner, Segment
from antifreeze.engine.arena.views import read_batch, read_letter
from antifreeze.engine.arena.writer import SlotWriter
from antifreeze.engine.crossing.results import ResultPickler

LARGE = COPY_BELOW
FLOATS = COPY_BELOW // 4
"""As many floats as are lent."""


class Reader:
    """Writes batches, reads them back, and counts what it lends.

    Every batch goes three times: pickled, with the definition of its form, and by the number of its form (if it has
    one). The last result is returned; all of them are compared.
    """

    def __init__(self, *, lends: bool = True) -> None:
        self.lends = lends
        self.owners: list[weakref.ref[Owner]] = []
        self.segment: Segment | None = None
        self._forms: dict[int, Form] = {}
        self._writer = SlotWriter(ResultPickler)

    def through(self, batch: Any, *, times: int = 3) -> Any:
        for _ in range(times):
            self.owners.clear()
            result = self._once(batch)
        return result

    def _once(self, batch: Any) -> Any:
        self._writer.begin(None)
        parcel, definition, body, self.segment, _ = self._writer.write(batch)
        if definition:
            self._forms[parcel.form] = Form(definition)
        form = self._forms[parcel.form] if parcel.form else None
        if body is not None:
            return read_letter(body, parcel, form, find=lambda reference: reference)
        assert self.segment is not None
        self.segment.close_descriptor()
        return read_batch(self.segment, parcel, form, lend=self._lend, find=lambda reference: reference)

    def _lend(self) -> Owner | None:
        if not self.lends:
            return None
        assert self.segment is not None
        owner = self.segment.owner()
        self.owners.append(weakref.ref(owner))
        return owner

    def is_lent(self, thing: torch.Tensor | np.ndarray) -> bool:
        address = thing.data_ptr() if isinstance(thing, torch.Tensor) else thing.ctypes.data
        return self.segment is not None and self.segment.address <= address < self.segment.address + self.segment.size


def bits(tensor: torch.Tensor) -> bytes:
    dense = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    return bytes(dense.reshape(-1).view(torch.uint8).numpy())


def assert_same(result: Any, expected: Any) -> None:
    assert type(result) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (result.dtype, result.shape, result.layout) == (expected.dtype, expected.shape, expected.layout)
        assert result.requires_grad == expected.requires_grad
        if expected.numel() > 1:
            assert [s for s, n in zip(result.stride(), result.shape, strict=True) if n > 1] == [
                s for s, n in zip(expected.stride(), expected.shape, strict=True) if n > 1
            ]
        if expected.numel():
            assert bits(result) == bits(expected)
    elif isinstance(expected, np.ndarray):
        pickled = pickle.loads(pickle.dumps(expected, 4))  # torch's: it forgets byte order and read-only
        assert (result.dtype, result.shape, result.flags.writeable) == (
            pickled.dtype,
            pickled.shape,
            pickled.flags.writeable,
        )
        assert result.tobytes() == pickled.tobytes()
    elif isinstance(expected, dict):
        assert list(result) == list(expected)
        for key in expected:
            assert_same(result[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other)
    else:
        assert result == expected


TENSOR_DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16, torch.uint32),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.uint64),
]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(TENSOR_DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    length = int(np.prod(shape)) * dtype.itemsize
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (length,), dtype=torch.uint8, generator=generator)
    tensor = (raw.view(dtype) if length else torch.empty(0, dtype=dtype)).reshape(shape)
    for how in draw(st.lists(st.sampled_from(["transpose", "step", "tail", "expand", "select"]), max_size=2)):
        if tensor.dim() == 0:
            break
        match how:
            case "transpose":
                tensor = tensor.transpose(0, -1)
            case "step":
                tensor = tensor[::2]
            case "tail":
                tensor = tensor[min(1, len(tensor)) :]
            case "expand":
                tensor = tensor.unsqueeze(0).expand(3, *tensor.shape)
            case "select" if len(tensor):
                tensor = tensor[-1]
    return tensor


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(["u1", "i4", "i8", "f2", "f8", "c16", "?", "S3", "U2", "M8[s]", ">i4"]))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    array = np.arange(int(np.prod(shape))).astype("i8").astype(dtype).reshape(shape)
    if draw(st.booleans()):
        array = np.asfortranarray(array)
    if draw(st.booleans()) and array.ndim:
        array = array[::-1]
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
BATCHES = st.recursive(
    tensors() | arrays() | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(batch=BATCHES, lends=st.booleans())
def test_any_structure_arrives_bit_for_bit(batch: Any, lends: bool) -> None:
    assert_same(Reader(lends=lends).through(batch), batch)


@settings(deadline=None, max_examples=60)
@given(
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), min_size=1, max_size=6),
    factor=st.sampled_from([1, FLOATS]),
    lends=st.booleans(),
)
@example(spans=[[0, 40], [3, 5]], factor=1, lends=True)
@example(spans=[[3, 5], [0, 40]], factor=1, lends=True)
@example(spans=[[5, 9], [0, 2], [20, 40]], factor=FLOATS, lends=False)
@example(spans=[[0, 1], [0, 1], [39, 40]], factor=FLOATS, lends=True)
@example(spans=[[38, 40], [10, 11], [39, 40], [9, 10]], factor=FLOATS, lends=False)
def test_tensors_over_one_storage_stay_over_one_storage_in_any_order(
    spans: list[list[int]], factor: int, lends: bool
) -> None:
    """Those that overlap or touch always do; those that do not, unless much lies between them."""
    whole = torch.arange(40 * factor, dtype=torch.float32)
    batch = [whole[low * factor : high * factor] for low, high in spans]
    result = Reader(lends=lends).through(batch)
    assert_same(result, batch)
    filled = [part.numel() > 0 for part in batch]
    for one, has_one in enumerate(filled):
        for other, has_other in enumerate(filled):
            is_near = spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
            if has_one and has_other and (factor == 1 or is_near):
                assert (
                    result[one].data_ptr() - result[other].data_ptr() == batch[one].data_ptr() - batch[other].data_ptr()
                )


@settings(deadline=None, max_examples=60)
@given(spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), min_size=1, max_size=5))
@example(spans=[[0, 10], [0, 40]])
@example(spans=[[0, 40], [0, 10]])
def test_arrays_over_one_memory_arrive_whole(spans: list[list[int]]) -> None:
    whole = np.arange(40.0)
    batch = [whole[low:high] for low, high in spans]
    assert_same(Reader().through(batch), batch)


def test_an_array_and_a_tensor_over_its_memory_arrive_whole() -> None:
    array = np.arange(40.0)
    for batch in ([array[:10], torch.from_numpy(array)], [torch.from_numpy(array), array[:10]]):
        assert_same(Reader().through(batch), batch)


def test_tensors_of_different_length_over_one_borrowed_memory_arrive_whole() -> None:
    array = np.arange(40.0)
    grads = [torch.from_numpy(array[:10]).requires_grad_(), torch.from_numpy(array).requires_grad_()]
    for batch in (grads, grads[::-1]):
        assert_same(Reader().through(batch), batch)


def test_one_object_that_occurs_twice_is_one_object_again() -> None:
    tensor, names = torch.zeros(3), ["a"]
    result = Reader().through([tensor, tensor, names, names])
    assert result[0] is result[1]
    assert result[2] is result[3]


def test_every_dtype_that_a_tensor_can_hold_arrives() -> None:
    unusable = re.compile(r"torch\.(q|bits|u?int[1-7]$|float4)")  # torch itself crashes or has no operations for them
    warnings.filterwarnings("ignore", message="B?Complex(Half|32)")
    for dtype in (each for each in DTYPES if not unusable.match(str(each))):
        raw = torch.arange(48 * dtype.itemsize, dtype=torch.uint8)
        tensor = raw % 2 == 1 if dtype is torch.bool else raw.view(dtype)
        result = Reader().through(tensor)
        assert result.dtype is dtype
        assert bits(result) == bits(tensor)


def test_a_tensor_beside_one_of_another_dtype_on_one_storage_stays_aligned() -> None:
    for lends, factor in [(True, 1), (True, LARGE), (False, LARGE)]:
        storage = torch.zeros(64 * factor, dtype=torch.uint8)
        result = Reader(lends=lends).through([storage[1 : 8 * factor - 1], storage[8 * factor :].view(torch.float64)])
        assert result[1].data_ptr() % 8 == 0


def test_a_small_tensor_is_copied_and_never_asks_for_the_slot() -> None:
    reader = Reader()
    result = reader.through([torch.zeros(FLOATS - 1), torch.zeros(10), np.zeros(10)])
    assert not reader.owners
    assert not any(map(reader.is_lent, result))


def test_a_large_tensor_is_lent_and_the_small_one_beside_it_is_not() -> None:
    reader = Reader()
    image, label = reader.through([torch.zeros(FLOATS), torch.zeros(10)])
    assert reader.is_lent(image)
    assert not reader.is_lent(label)
    assert len(reader.owners) == 1


def test_a_large_array_is_never_lent() -> None:
    reader = Reader()
    assert not reader.is_lent(reader.through([np.zeros(FLOATS), np.zeros(10)])[0])
    assert not reader.owners


def test_a_large_tensor_is_copied_when_the_slot_is_not_lent() -> None:
    reader = Reader(lends=False)
    result = reader.through([torch.ones(FLOATS), torch.ones(2 * FLOATS)])
    assert not any(map(reader.is_lent, result))
    assert all(part.eq(1).all() for part in result)


def test_a_batch_of_many_small_tensors_is_copied_even_if_it_is_large_altogether() -> None:
    reader = Reader()
    batch = [torch.full((100,), float(k)) for k in range(1000)]
    result = reader.through(batch)
    assert_same(result, batch)
    assert not reader.owners


def test_the_slot_is_asked_for_once_even_if_it_is_refused() -> None:
    for times in (1, 3):
        reader = Reader(lends=False)
        asked = []
        with mock.patch.object(reader, "_lend", lambda asked=asked: asked.append(1)):
            reader.through([torch.zeros(FLOATS), torch.zeros(FLOATS)], times=times)
        assert asked == [1] * times


def sparse_coo() -> torch.Tensor:
    return torch.ones(FLOATS).to_sparse()


def sparse_csr() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ones(4, FLOATS).to_sparse_csr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(FLOATS),
        lambda: torch.zeros(FLOATS, 2).t(),
        lambda: torch.zeros(FLOATS, requires_grad=True),
        lambda: torch.nn.Parameter(torch.zeros(FLOATS)),
        sparse_coo,
        sparse_csr,
    ],
    ids=["dense", "strided", "grad", "parameter", "sparse", "csr"],
)
def test_the_owner_lives_exactly_as_long_as_what_points_into_the_slot(make: Callable[[], Any]) -> None:
    batch = make()
    reader = Reader()
    gc.collect()
    gc.disable()  # by counting references alone: nothing of ours makes a cycle
    try:
        result = reader.through([batch])
        (owner,) = reader.owners
        assert owner() is not None
        del result
        assert owner() is None
    finally:
        gc.enable()


def test_a_part_of_a_lent_tensor_keeps_the_slot() -> None:
    reader = Reader()
    (part,) = (tensor[3:5] for tensor in reader.through([torch.ones(FLOATS)]))
    (owner,) = reader.owners
    assert owner() is not None
    assert part.tolist() == [1, 1]
    del part
    assert owner() is None


def test_batches_may_be_written_into_as_torchs_may_read_only_arrays_too() -> None:
    read_only = np.arange(FLOATS)
    read_only.flags.writeable = False
    tensor, array, frozen, small = Reader().through([torch.zeros(FLOATS), np.zeros(FLOATS), read_only, np.zeros(3)])
    tensor += 1
    array += 1
    small += 1
    frozen += 1
    assert frozen.tolist() == list(range(1, FLOATS + 1))
    assert not read_only.flags.writeable and read_only[0] == 0


def test_bytearrays_and_buffers_of_user_classes_arrive() -> None:
    batch = [bytearray(b"abc"), pickle.PickleBuffer(bytearray(b"x" * LARGE)), b"abc"]
    result = Reader().through(batch)
    assert result[0] == bytearray(b"abc") and type(result[0]) is bytearray
    assert bytes(result[1]) == b"x" * LARGE
    assert result[2] == b"abc"


class Labelled(torch.Tensor):
    """A tensor subclass, with an attribute."""


def test_unusual_tensors_arrive_as_they_are() -> None:
    labelled = torch.arange(5.0).as_subclass(Labelled)
    labelled.label = "five"  # type: ignore[attr-defined]
    sparse = torch.tensor([[0, 1.0], [2, 0]]).to_sparse()
    csr = torch.tensor([[0, 1.0], [2, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        csr = csr.to_sparse_csr()
    conjugated = torch.tensor([1 + 2j]).conj()
    negated = torch.tensor([1 + 2j]).conj().imag
    meta = torch.empty(3, device="meta")
    leaf = torch.arange(3.0, requires_grad=True)
    parameter = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    batch = [labelled, sparse, csr, conjugated, negated, meta, leaf, parameter]
    result = Reader().through(batch)
    assert type(result[0]) is Labelled and result[0].label == "five"
    assert result[0].tolist() == [0, 1, 2, 3, 4]
    assert result[1].is_sparse and result[1].to_dense().tolist() == [[0, 1], [2, 0]]
    assert result[2].layout is torch.sparse_csr and result[2].to_dense().tolist() == [[0, 1], [2, 0]]
    assert result[3].tolist() == [1 - 2j]
    assert result[4].tolist() == [-2]
    assert result[5].device.type == "meta" and result[5].shape == (3,)
    assert result[6].requires_grad and result[6].is_leaf and result[6].tolist() == [0, 1, 2]
    assert isinstance(result[7], torch.nn.Parameter) and not result[7].requires_grad


def test_an_unusual_tensor_and_a_plain_one_over_its_storage_stay_together() -> None:
    plain = torch.zeros(10)
    parameter = torch.nn.Parameter(plain)
    for batch in ([plain, parameter], [parameter, plain], [plain[2:], parameter, plain]):
        result = Reader().through(batch)
        assert_same(result, batch)
        offsets = [part.data_ptr() - result[-1].data_ptr() for part in result]
        assert offsets == [part.data_ptr() - batch[-1].data_ptr() for part in batch]


@pytest.mark.parametrize("lends", [True, False])
def test_views_from_all_over_a_dataset_arrive_as_they_were(lends: bool) -> None:
    dataset = torch.arange(2_000_000.0).reshape(1000, 2000)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0)).tolist()[:40]
    batch = [dataset[i] for i in order] + [
        dataset[order[0], 5:9],
        dataset[order[1], ::3].unsqueeze(1).t(),
        dataset[-1:].half(),
    ]
    result = Reader(lends=lends).through(batch)
    assert_same(result, batch)
    result[40].zero_()
    assert result[0][5:9].eq(0).all()
    assert result[1].untyped_storage().nbytes() < 3 * dataset[0].nbytes


@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])
def test_a_column_of_a_large_matrix_arrives_without_the_matrix(kind: type[torch.Tensor]) -> None:
    matrix = torch.arange(2_000_000.0).reshape(1000, 2000)
    if kind is torch.nn.Parameter:
        matrix.requires_grad_()
    batch = [matrix[:, 5], matrix[:, 900], matrix[:, 5], matrix[:900, 20:22].t()]
    result = Reader().through(batch)
    assert_same([each.detach() for each in result], [each.detach().contiguous() for each in batch])
    assert all(each.untyped_storage().nbytes() < 10_000 and each.is_contiguous() for each in result)
    assert result[0].data_ptr() == result[2].data_ptr()
    assert all(each.requires_grad is matrix.requires_grad for each in result)


def test_a_column_stays_in_its_matrix_if_that_is_in_the_batch_or_is_small() -> None:
    for matrix in (torch.arange(2_000_000.0).reshape(1000, 2000), torch.arange(900.0).reshape(30, 30)):
        result = Reader().through([matrix, matrix[:, 5]])
        assert result[1].stride() == matrix[:, 5].stride()
        result[0].zero_()
        assert result[1].eq(0).all()
    assert Reader().through(matrix[:, 5]).stride() == (30,)


@pytest.mark.parametrize("kind", ["tensor", "storage"])
def test_a_column_stays_in_a_matrix_that_comes_after_it(kind: str) -> None:
    matrix = torch.arange(2_000_000.0).reshape(1000, 2000)
    other = matrix.clone()
    whole: Any = matrix if kind == "tensor" else matrix.untyped_storage()
    result = Reader().through([matrix[:, 5], other[:, 7], whole])
    assert_same(result[:2], [matrix[:, 5], other[:, 7].contiguous()])
    result[2].fill_(0)
    assert result[0].eq(0).all()
    assert result[1].untyped_storage().nbytes() < 10_000


class Marked(torch.Tensor):
    """A subclass of the user's, with an attribute."""

    note: str


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16])
def test_views_of_a_subclass_into_a_large_dataset_do_not_carry_it_along(dtype: torch.dtype) -> None:
    dataset = torch.zeros(1000, 1000).add(torch.arange(1000)).to(dtype).as_subclass(Marked)
    batch = [dataset[i] for i in (900, 3, 500)] + [dataset[3][7:9], dataset[900].as_subclass(torch.Tensor)]
    batch[0].note = "kept"
    result = Reader().through(batch)
    assert [type(each) for each in result] == [type(each) for each in batch]
    assert result[0].note == "kept"
    for one, other in zip(result, batch, strict=True):
        assert one.as_subclass(torch.Tensor).equal(other.as_subclass(torch.Tensor))
        assert one.untyped_storage().nbytes() < 10_000
    assert result[3].data_ptr() == result[1][7:].data_ptr()
    assert result[4].data_ptr() == result[0].data_ptr()
    column = Reader().through(torch.cat([dataset] * 3)[:, 5])
    assert type(column) is Marked and column.tolist() == [5] * 3000
    assert column.untyped_storage().nbytes() < 20_000


def test_a_subclass_that_shows_most_of_its_storage_takes_it_along() -> None:
    whole = torch.arange(100.0).as_subclass(Marked)
    result = Reader().through([whole[20:], whole])
    assert result[1][20:].data_ptr() == result[0].data_ptr()
    assert result[0].storage_offset() == 20


def test_views_of_an_inference_tensor_do_not_carry_the_rest_along() -> None:
    with torch.inference_mode():
        features = torch.arange(1_000_000.0).reshape(1000, 1000)
        batch = [features[900], features[3]]
    result = Reader().through(batch)
    assert_same(result, batch)
    assert result[0].untyped_storage().nbytes() < 10_000


def test_an_inference_tensor_arrives() -> None:
    with torch.inference_mode():
        made = torch.arange(4.0)
    assert Reader().through([made])[0].tolist() == [0, 1, 2, 3]


def test_references_into_the_trainer_are_found() -> None:
    class Pickler(ResultPickler):
        def persistent_id(self, thing: Any) -> Any:
            return 42 if isinstance(thing, Segment) else None

    writer = SlotWriter(Pickler)
    writer.begin(None)
    thing = memory.create(1)
    thing.close_descriptor()
    parcel, _, body, _, _ = writer.write([thing, lambda: None])
    assert body is not None
    found = read_letter(body, parcel, None, find=lambda reference: ("found", reference))
    assert found[0] == ("found", 42)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("floats", [500, 1500, FLOATS - 100, 2 * FLOATS])
def test_what_is_kept_of_a_batch_keeps_memory_in_proportion(floats: int, times: int) -> None:
    batch = {
        "image": torch.ones(floats),
        "label": torch.arange(8),
        "scale": torch.ones(1),
        "box": np.ones((400, 4), "u1"),
    }
    for part in (batch, {key: value for key, value in batch.items() if key != "box"}):
        result = Reader(lends=False).through(part, times=times)
        for value in result.values():
            tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            kept = memory_behind(value)
            assert kept <= max(16 * tensor.nbytes, 2 * 4096), f"{tensor.nbytes} bytes keep {kept}"


def memory_behind(value: torch.Tensor | np.ndarray) -> int:
    """Bytes that live as long as this does."""
    if isinstance(value, torch.Tensor):
        return len(value.untyped_storage()._antifreeze_memory)  # type: ignore[attr-defined]
    base: Any = value
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    return len(base.base.obj) if isinstance(base.base, memoryview) else base.nbytes


@pytest.mark.parametrize("count", [0, 1, 15, 200, 201, 1000, 1001, 70_000])
def test_arrays_own_their_memory_where_torchs_do(count: int) -> None:
    for array in (np.ones(count, "u1"), np.ones((count // 5, 5), "u1", order="F"), np.ones(count // 8)):
        (result,) = Reader().through([array])
        torchs = pickle.loads(pickle.dumps(array, 4))
        assert result.flags.owndata == torchs.flags.owndata
        assert result.flags.f_contiguous == torchs.flags.f_contiguous and result.flags.writeable
        assert np.array_equal(result, array)
        if torchs.flags.owndata:
            result.resize((3, 5), refcheck=False)


def test_a_strided_nested_tensor_is_not_a_view_as_torchs_is_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)])
        (result,) = Reader().through([nested])
    assert not result._is_view()
    assert [part.tolist() for part in result.unbind()] == [part.tolist() for part in nested.unbind()]
