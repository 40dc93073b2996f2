"""`default_collate` into the slot."""

import threading
from collections import OrderedDict, UserDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from antifreeze.engine.worker import collate
from antifreeze.engine.worker.collate import IntoSlot, collate_samples, collate_tensors

LARGE = 8192  # floats in a sample


class Slot:
    """Gives room once, and remembers what it was asked for."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.asked: list[tuple[int, tuple[int, ...], torch.dtype]] = []
        self.given: list[torch.Tensor] = []

    def room(self, count: int, first: torch.Tensor) -> torch.Tensor | None:
        self.asked.append((count, tuple(first.shape), first.dtype))
        if not self.has_room:
            return None
        self.given.append(torch.zeros((count, *first.shape), dtype=first.dtype, device="cpu"))
        return self.given[-1]


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))
    collate.take_over()


def test_large_samples_are_stacked_into_the_slot() -> None:
    slot = Slot()
    batch = collate_tensors([torch.full((LARGE,), 1.0), torch.full((LARGE,), 2.0)], room=slot.room)
    assert slot.asked == [(2, (LARGE,), torch.float32)]
    assert batch.data_ptr() == slot.given[0].data_ptr()
    assert batch[0].eq(1).all() and batch[1].eq(2).all()


def test_empty_samples_are_stacked_where_there_is_no_room() -> None:
    assert collate_tensors([torch.empty(0, 3)] * 2, room=Slot(has_room=False).room).shape == (2, 0, 3)


def test_a_slot_without_room_means_ordinary_memory() -> None:
    slot = Slot(has_room=False)
    batch = collate_tensors([torch.ones(LARGE), torch.ones(LARGE)], room=slot.room)
    assert len(slot.asked) == 1
    assert batch.eq(1).all() and not batch.is_shared()


@pytest.mark.parametrize("has_room", [True, False])
def test_samples_that_are_not_contiguous_make_a_batch_that_is_as_in_torchs_workers(has_room: bool) -> None:
    samples = [torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2)]
    assert not torch.stack(samples).is_contiguous()
    batch = collate_tensors(samples, room=Slot(has_room=has_room).room)
    assert batch.is_contiguous() and torch.equal(batch, torch.stack(samples))


def test_outside_of_the_loaders_own_collating_memory_is_ordinary() -> None:
    batch = collate_tensors([torch.ones(LARGE), torch.ones(LARGE)])
    assert batch.eq(1).all() and not batch.is_shared()


@pytest.mark.parametrize("in_slot", [False, True])
def test_samples_of_different_shape_are_refused_in_torchs_words(in_slot: bool) -> None:
    slot = Slot(has_room=in_slot)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size, but got"):
        collate_tensors([torch.ones(LARGE), torch.ones(LARGE), torch.ones(LARGE + 1)], room=slot.room)


@pytest.mark.parametrize("other", [1, [1.0, 2.0], np.zeros(2)])
def test_what_is_no_tensor_among_tensors_is_refused_as_torchs_workers_do(
    other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.utils.data, "get_worker_info", object)
    errors = []
    for collate_fn in (torch_collate.collate_tensor_fn, collate_tensors):
        with pytest.raises((AttributeError, TypeError)) as caught:
            collate_fn([torch.zeros(2), other])
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("length", [3, LARGE])
@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.float32, torch.float64), (torch.float64, torch.float32), (torch.int32, torch.int64)],
)
def test_the_dtype_is_the_first_samples_as_in_torchs_workers(
    length: int, first: torch.dtype, second: torch.dtype
) -> None:
    batch = collate_tensors([torch.ones(length, dtype=first), torch.ones(length, dtype=second)], room=Slot().room)
    assert batch.dtype is first
    assert batch.eq(1).all()


@pytest.mark.parametrize("length", [3, LARGE])
def test_samples_that_require_grad_are_stacked(length: int) -> None:
    batch = collate_tensors([torch.ones(length, requires_grad=True), torch.ones(length)], room=Slot().room)
    assert batch.shape == (2, length) and batch.requires_grad


class Labelled(torch.Tensor):
    """A tensor subclass."""


def test_tensor_subclasses_are_stacked_their_own_way() -> None:
    slot = Slot()
    batch = collate_tensors([torch.ones(LARGE).as_subclass(Labelled)] * 2, room=slot.room)
    assert type(batch) is Labelled
    assert slot.asked == []


def test_sparse_samples_are_refused_in_torchs_words() -> None:
    with pytest.raises(RuntimeError, match="sparse"):
        collate_tensors([torch.eye(3).to_sparse()] * 2)


def test_the_loaders_own_collating_of_any_structure_uses_the_slot(taken_over: None) -> None:
    slot = Slot()
    samples = [
        {"image": torch.full((LARGE,), float(k)), "label": k, "name": str(k), "pair": Pair(np.zeros(3), torch.ones(2))}
        for k in range(2)
    ]
    batch = IntoSlot(slot.room)(samples)
    stacked = [batch["image"], batch["pair"].left, batch["pair"].right]
    assert [tensor.data_ptr() for tensor in stacked] == [tensor.data_ptr() for tensor in slot.given]
    assert type(batch["pair"]) is Pair
    assert batch["label"].tolist() == [0, 1]
    assert batch["name"] == ["0", "1"]


kept: list[torch.Tensor] = []
"""What user code has kept of what it was given."""


def stack_two() -> Any:
    return default_collate([torch.ones(LARGE), torch.ones(LARGE)])


class Lazy(Mapping[str, Any]):
    """Its field is put together when it is first read."""

    def __iter__(self) -> Iterator[str]:
        return iter(["clip"])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Any:
        kept.append(stack_two())
        return kept[-1]


class Fetching(Lazy):
    """It is put together by a thread, which is waited for."""

    def __getitem__(self, key: str) -> Any:
        thread = threading.Thread(target=lambda: kept.append(stack_two()))
        thread.start()
        thread.join()
        return kept[-1]


class Noting(UserDict[str, Any]):
    """Notes what is put into it."""

    def __setitem__(self, key: str, value: Any) -> None:
        kept.append(value)
        super().__setitem__(key, value)


class Row(NamedTuple("Row", [("field", Any)])):
    """Notes what it is made of."""

    def __new__(cls, field: Any) -> "Row":
        kept.append(field)
        return super().__new__(cls, field)


class Watched(torch.Tensor):
    """Notes what it is stacked into."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept.extend([(kwargs or {}).get("out")] * (function is torch.stack))
        return super().__torch_function__(function, types, args, kwargs or {})


USER_CODE = {
    "a field that is read": lambda: [Lazy(), Lazy()],
    "a field that is read later": lambda: [{"clip": torch.ones(2, LARGE)}, Lazy()],
    "a thread": lambda: [Fetching(), Fetching()],
    "a mapping": lambda: [Noting(a=torch.ones(LARGE)), Noting(a=torch.ones(LARGE))],
    "a named tuple": lambda: [Row(torch.ones(LARGE)), Row(torch.ones(LARGE))],
    "a tensor": lambda: [torch.ones(LARGE), torch.ones(LARGE).as_subclass(Watched)],
}


@pytest.mark.parametrize("case", USER_CODE)
@pytest.mark.parametrize("place", ["alone", "in a dict", "in a tuple"])
def test_user_code_that_runs_meanwhile_does_not_meet_the_slot(taken_over: None, case: str, place: str) -> None:
    """What it keeps must not change when the next batch is collated into the same memory."""
    slot = Slot()
    samples = USER_CODE[case]()
    wrapped = {"alone": lambda x: x, "in a dict": lambda x: {"a": x}, "in a tuple": lambda x: (torch.ones(3), x)}[place]
    kept.clear()
    IntoSlot(slot.room)([wrapped(sample) for sample in samples])
    assert kept
    assert_not_in(slot)


def assert_not_in(slot: Slot) -> None:
    addresses = {tensor.data_ptr() for tensor in slot.given}
    assert not [tensor for tensor in kept if isinstance(tensor, torch.Tensor) and tensor.data_ptr() in addresses]


class Log(TorchFunctionMode):
    """Notes what is stacked into."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept.extend([(kwargs or {}).get("out")] * (function is torch.stack))
        return function(*args, **(kwargs or {}))


def test_a_mode_that_sees_what_torch_is_told_does_not_meet_the_slot(taken_over: None) -> None:
    slot = Slot()
    kept.clear()
    with Log():
        IntoSlot(slot.room)([torch.ones(LARGE), torch.ones(LARGE)])
    assert kept
    assert_not_in(slot)


def test_nothing_is_stacked_into_the_slot_under_a_mode_of_the_dispatcher(
    taken_over: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collate.tensors, "count_dispatch_modes", lambda: 1)  # a real one would load the compiler
    slot = Slot()
    assert IntoSlot(slot.room)([torch.ones(LARGE), torch.ones(LARGE)]).eq(1).all()
    assert slot.asked == []


def test_a_function_that_is_put_into_torchs_table_later_is_asked_and_does_not_meet_the_slot(taken_over: None) -> None:
    slot = Slot()
    into_slot = IntoSlot(slot.room)
    kept.clear()

    def keep(batch: Any, *, collate_fn_map: Any = None) -> Any:
        kept.append(torch_collate.collate([torch.ones(LARGE) for _ in batch], collate_fn_map=collate_fn_map))
        return kept[-1]

    torch_collate.default_collate_fn_map[set] = keep
    into_slot([(torch.ones(3), {1}), (torch.ones(3), {2})])
    assert kept
    assert_not_in(slot)


LEAVES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.none(),
    st.sampled_from([torch.zeros(2), torch.ones(3, dtype=torch.int32)]),
    st.sampled_from([np.zeros(2), np.float32(1), np.bool_(True)]),
)
SAMPLES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=2),
        st.lists(inner, max_size=2),
        st.tuples(inner, inner),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2).map(OrderedDict),
    ),
    max_leaves=5,
)


class Pair(NamedTuple):
    left: Any
    right: Any


def outcome_of(collate_fn: Any, batch: Any) -> str:
    """Types and values of what comes out, or the type of the error."""
    try:
        return described(collate_fn(batch))
    except Exception as error:
        return repr(type(error))


def described(thing: Any) -> str:
    kind = type(thing).__name__
    if isinstance(thing, torch.Tensor):
        return f"{kind} {thing.dtype} {thing.tolist()}"
    if isinstance(thing, dict):
        return f"{kind} {[(key, described(part)) for key, part in thing.items()]}"
    if isinstance(thing, list | tuple):
        return f"{kind} {[described(part) for part in thing]}"
    return f"{kind} {thing!r}"


@given(st.one_of(st.lists(SAMPLES, max_size=3), SAMPLES.map(lambda sample: [sample] * 3)))
def test_the_short_way_gives_what_default_collate_gives(samples: list[Any]) -> None:
    ours = outcome_of(IntoSlot(Slot().room), samples)
    expected = outcome_of(default_collate, samples)
    assert ours == expected or ("Error" in ours and "Error" in expected)  # of several errors, either may come first


NUMBERS: list[list[Any]] = [
    [1, 2, 3],
    [-(2**63), 2**63 - 1],
    [1, True],
    [True, False],
    [True, 1],
    [1, 2.5],
    [1.5, 2],
    [1.5, float("nan"), float("inf"), -0.0],
    [1e308, 5e-324],
    [1.0, True],
    [1, torch.tensor(2)],
    [1.5, np.float32(0.1)],
    [1, np.int8(3)],
    [2**63, 1],
    [1, None],
    [1.5, "a"],
    [1.0, 1j],
]


@pytest.mark.parametrize("batch", NUMBERS, ids=repr)
def test_numbers_become_what_torch_makes_of_them(batch: list[Any]) -> None:
    expected: Any
    torchs = torch_collate.collate_float_fn if isinstance(batch[0], float) else torch_collate.collate_int_fn
    try:
        expected = torchs(batch)
    except Exception as error:
        with pytest.raises(type(error)):
            collate_samples(batch, Slot().room)
        return
    result = collate_samples(batch, Slot().room)
    assert result.dtype is expected.dtype and result.shape == expected.shape
    assert result.view(torch.uint8).equal(expected.view(torch.uint8))


def test_numbers_are_torchs_own_memory_when_user_code_collates(taken_over: None) -> None:
    assert default_collate([1, 2]).resize_(100).shape == (100,)  # memory of others cannot be resized


def test_numbers_go_where_the_default_device_says(taken_over: None) -> None:
    with torch.device("meta"):
        assert IntoSlot(Slot().room)([1, 2]).is_meta
        assert IntoSlot(Slot().room)([1.5, 2.5]).is_meta


@pytest.mark.parametrize("has_room", [True, False])
def test_tensors_are_stacked_where_they_are_whatever_the_default_device(taken_over: None, has_room: bool) -> None:
    samples = [torch.ones(LARGE), torch.ones(LARGE)]
    slot = Slot(has_room=has_room)
    with torch.device("meta"):
        batch = IntoSlot(slot.room)(samples)
    assert batch.is_cpu and batch.eq(1).all()
    assert len(slot.asked) == 1


def test_the_table_is_ours_until_somebody_adds_to_it(taken_over: None) -> None:
    assert collate.is_ours()
    torch_collate.default_collate_fn_map[set] = lambda batch, *, collate_fn_map=None: batch
    assert not collate.is_ours()


def test_what_the_user_has_put_into_torchs_table_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "own"

    monkeypatch.setattr(torch_collate, "default_collate_fn_map", {torch.Tensor: own})
    collate.take_over()
    assert torch_collate.default_collate_fn_map == {torch.Tensor: own}
