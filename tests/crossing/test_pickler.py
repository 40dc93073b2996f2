"""Objects → a parcel → the objects again, in one process."""

import contextlib
import ctypes
import gc
import os
import pickle
import socket
import sys
import types
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze import CannotCross, machine
from antifreeze.engine.arena.layout import DTYPES
from antifreeze.engine.backends.passing import passed, receive_descriptors
from antifreeze.engine.crossing import pickler
from antifreeze.engine.crossing.pickler import OUT_OF_BAND_FROM, Parcel, send
from antifreeze.machine import Room
from antifreeze.torch_side.tensors import validate_sparse_tensors

LARGE = OUT_OF_BAND_FROM


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def cross(thing: Any, *, main_names: frozenset[str] = frozenset()) -> Any:
    crossing = send(thing, main_names=main_names)
    return Parcel(crossing.detach()).open()[0]


def own(by_value: Sequence[Any]) -> list[Any]:
    """Without the types of the language that cloudpickle needs to build functions."""
    return [each for each in by_value if each.__module__ != "builtins"]


def body_bytes(crossing: pickler.Crossing) -> int:
    return os.fstat(crossing.body).st_size


@pytest.mark.parametrize(
    "thing",
    [None, 5, "text", b"bytes", [1, [2]], {"a": (1, 2)}, {1, 2}, np.arange(3), np.zeros(0), np.arange(LARGE)],
    ids=lambda thing: type(thing).__name__,
)
def test_plain_data_arrives(thing: Any) -> None:
    arrived = cross(thing)
    assert type(arrived) is type(thing)
    np.testing.assert_equal(arrived, thing)


@pytest.mark.parametrize("kind", [ctypes.CDLL, ctypes.PyDLL])
def test_a_library_of_ctypes_is_refused_here_and_not_by_the_other_side(kind: type) -> None:
    with pytest.raises(pickle.PicklingError, match="is a library that this process has loaded"):
        cross({"library": kind(None)})


def test_many_open_files_leave_room_for_tensors_that_stay_shared(tmp_path: Path) -> None:
    for number in range(2 * pickler.MOST_FILES):
        (tmp_path / str(number)).touch()
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(path.open("rb")) for path in tmp_path.iterdir()]
        flag = torch.zeros(1).share_memory_()
        copies, arrived = cross((files, flag))
        for copy in copies:
            copy.close()
    flag += 1
    assert arrived.item() == 1


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(0, 3 * LARGE), max_size=6), kinds=st.data())
def test_arrays_and_tensors_of_any_length_arrive(lengths: list[int], kinds: st.DataObject) -> None:
    things: list[Any] = []
    for number, length in enumerate(lengths):
        array = np.full(length, number, dtype=np.uint8)
        things.append(torch.from_numpy(array) if kinds.draw(st.booleans()) else array)
    arrived = cross(things)
    assert [type(each) for each in arrived] == [type(each) for each in things]
    for each, thing in zip(arrived, things, strict=True):
        assert bytes(np.asarray(each)) == bytes(np.asarray(thing))


def test_big_arrays_and_tensors_are_not_in_the_pickle_and_aligned() -> None:
    things = [np.zeros(1_000_001, np.uint8), torch.zeros(1_000_001), np.asfortranarray(np.zeros((300, 200)))]
    crossing = send(things, main_names=frozenset())
    assert body_bytes(crossing) < 10_000
    arrived, _ = Parcel(crossing.detach()).open()
    assert arrived[1].data_ptr() % 64 == 0
    assert arrived[0].ctypes.data % 64 == 0
    assert arrived[2].flags.f_contiguous


def test_what_arrives_may_be_written_into() -> None:
    array, tensor, small = cross([np.zeros(LARGE), torch.zeros(LARGE), np.zeros(2)])
    array += 1
    tensor += 1
    small += 1
    assert array.sum() == tensor.sum() == LARGE


@pytest.mark.parametrize(
    "array",
    [
        np.frombuffer(bytes(8 * LARGE)),
        np.frombuffer(bytes(80)),
        np.asfortranarray(np.zeros((LARGE, 2))),
        np.zeros(LARGE, "M8[D]"),
        np.zeros(LARGE, [("a", "i4"), ("b", "S3")]),
        np.zeros((0, 3)),
        np.broadcast_to(np.zeros(1), (LARGE,)),
        np.array([None, "text"]),
    ],
    ids=lambda array: f"{array.dtype}, {array.shape}",
)
def test_read_only_arrays_may_be_written_into_as_after_multiprocessings_pickle(array: np.ndarray) -> None:
    array.flags.writeable = False
    arrived, again = cross([array, array])
    assert arrived is again
    assert arrived.dtype == array.dtype
    assert arrived.flags.f_contiguous >= array.flags.f_contiguous
    assert (arrived == array).all()
    arrived[...] = arrived.copy()


@pytest.mark.parametrize("dtype", [">i4", ">U3", [("a", ">i4"), ("b", "S3")]], ids=str)
@pytest.mark.parametrize("length", [3, LARGE])
def test_arrays_of_another_machine_arrive_as_multiprocessings_pickle_sends_them(dtype: Any, length: int) -> None:
    array = np.ones(length, dtype)
    array.flags.writeable = False
    expected = pickle.loads(ForkingPickler.dumps(array))
    arrived = cross(array)
    assert arrived.dtype == expected.dtype
    assert (arrived == array).all()
    arrived[...] = arrived.copy()


def test_a_large_array_is_not_in_the_pickle_because_it_is_read_only() -> None:
    crossing = send(np.frombuffer(bytes(8 * LARGE)), main_names=frozenset())
    assert body_bytes(crossing) < LARGE
    Parcel(crossing.detach()).open()


def test_arrays_that_are_not_contiguous_arrive() -> None:
    whole = np.arange(4 * LARGE).reshape(-1, 4)
    assert (cross(whole[:, ::2]) == whole[:, ::2]).all()
    assert cross(torch.from_numpy(whole)[:, ::2]).equal(torch.from_numpy(whole)[:, ::2])


def test_tensors_over_one_storage_stay_together() -> None:
    whole = torch.arange(float(LARGE))
    parameter = torch.nn.Parameter(whole)
    arrived = cross({"part": whole[10:20], "whole": whole, "parameter": parameter})
    arrived["part"].fill_(-1)
    assert arrived["whole"][10:20].eq(-1).all()
    assert arrived["parameter"][10:20].eq(-1).all()
    assert isinstance(arrived["parameter"], torch.nn.Parameter)


def test_one_storage_travels_once() -> None:
    whole = torch.zeros(1_000_000)
    crossing = send([whole, whole[5:], whole.view(1000, 1000)], main_names=frozenset())
    assert os.fstat(crossing.buffers).st_size < 4_100_000
    crossing.close()


def test_an_object_that_occurs_twice_arrives_once() -> None:
    array = np.zeros(LARGE)
    arrived = cross([array, array])
    assert arrived[0] is arrived[1]


def test_tensors_in_shared_memory_stay_shared_in_both_directions() -> None:
    shared = torch.zeros(10).share_memory_()
    arrived = cross({"x": shared, "part": shared[2:]})
    assert arrived["x"].is_shared()
    shared[3] = 7
    arrived["x"][4] = 8
    assert arrived["part"].tolist()[:3] == [0, 7, 8]
    assert shared[4] == 8


def test_tensors_become_shared_in_place_where_torch_would_share_them() -> None:
    whole = torch.arange(10.0)
    part, grown = whole[2:5], torch.nn.Parameter(torch.ones(3))
    arrived = cross({"whole": whole, "part": part, "grown": grown, "empty": torch.empty(0)})
    part.fill_(-1)
    arrived["whole"][9] = 99
    with torch.no_grad():
        grown += 1
    assert whole.tolist() == arrived["whole"].tolist() == [0, 1, -1, -1, -1, 5, 6, 7, 8, 99]
    assert arrived["part"].tolist() == [-1, -1, -1]
    assert arrived["grown"].requires_grad and arrived["grown"].tolist() == [2, 2, 2]
    assert whole.is_shared() and part.is_shared() and grown.is_shared()


@pytest.mark.parametrize("room", [None, Room(64 << 20, 0)], ids=["no /dev/shm", "full"])
def test_tensors_are_shared_without_room_in_dev_shm(monkeypatch: pytest.MonkeyPatch, room: Room | None) -> None:
    monkeypatch.setattr(machine, "shared_memory_room", lambda: room)
    tensor = torch.arange(10_000)
    view = tensor[5:]
    arrived = cross(tensor)
    view[0] = -5
    assert arrived[5] == -5
    arrived[6] = -6
    assert view[1] == -6
    assert tensor.is_shared() and arrived.is_shared()


def test_more_tensors_are_shared_than_one_message_carries() -> None:
    tensors = [torch.full((3,), float(k)) for k in range(600)]
    crossing = send(tensors, main_names=frozenset())
    with passed(crossing.descriptors) as one:
        arrived, _ = Parcel(receive_descriptors(os.dup(one))).open()
    crossing.close()
    for tensor in tensors:
        tensor.add_(1)
    assert [each[0].item() for each in arrived] == [k + 1 for k in range(600)]
    assert crossing.copied == 0


def test_tensors_beyond_the_limit_on_open_files_are_copied_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "descriptors_left", lambda: pickler.SPARE_DESCRIPTORS + 2)
    things = [torch.full((3,), float(k)) for k in range(2)] + [
        torch.full((3,), 2.0).share_memory_(),
        torch.full((3,), 3.0),
    ]
    crossing = send(things, main_names=frozenset())
    assert len(crossing.luggage.descriptors) == 3, "one of them was open before"
    assert crossing.copied == 1
    arrived, _ = Parcel(crossing.detach()).open()
    assert [each[0].item() for each in arrived] == [0, 1, 2, 3]
    assert [each.is_shared() for each in arrived] == [True, True, True, False]


def test_tensors_that_are_shared_already_stay_so_when_descriptors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "descriptors_left", lambda: 0)
    things = [torch.zeros(3).share_memory_() for _ in range(3)]
    assert [each.is_shared() for each in cross(things)] == [True] * 3


@pytest.mark.parametrize("is_shared", [True, False])
def test_no_more_tensors_are_shared_than_a_worker_may_have_open(
    monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    spare = pickler.SPARE_DESCRIPTORS + 2 * pickler.DESCRIPTORS_PER_WORKER
    monkeypatch.setattr(machine, "descriptor_limit", lambda: spare + 2)
    things = [torch.zeros(3).share_memory_() if is_shared else torch.zeros(3) for _ in range(3)]
    crossing = send(things, main_names=frozenset(), workers=2)
    arrived, _ = Parcel(crossing.detach()).open()
    assert [each.is_shared() for each in arrived] == [True, True, False]


class Plain:
    pass


class Rebuilt(Plain):
    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)


class Reduced(Plain):
    def __reduce__(self) -> Any:
        return Plain, ()


def test_a_socket_crosses_as_it_does_to_a_spawned_process() -> None:
    left, right = socket.socketpair()
    arrived = cross(right)
    with left, right, arrived:
        left.sendall(b"x")
        assert arrived.recv(1) == b"x"


def test_a_tensor_that_is_gone_before_it_is_sent_keeps_its_descriptor() -> None:
    class Passing:
        def __reduce__(self) -> Any:
            return list, ([torch.full((3,), 7.0)],)

    crossing = send(Passing(), main_names=frozenset())
    gc.collect()
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]  # which would get its number
    arrived, _ = Parcel(crossing.detach()).open()
    for fd in others:
        os.close(fd)
    assert arrived[0].tolist() == [7, 7, 7]


def test_unusual_tensors_arrive() -> None:
    leaf = torch.ones(3, requires_grad=True)
    sparse = torch.eye(3).to_sparse()
    arrived = cross([leaf, sparse, torch.empty(0), torch.tensor(5)])
    assert arrived[0].requires_grad and arrived[0].is_leaf
    assert arrived[1].is_sparse and arrived[1].to_dense().equal(torch.eye(3))
    assert arrived[2].shape == (0,)
    assert arrived[3].item() == 5
    validate_sparse_tensors()  # until then, torch keeps them


@pytest.mark.parametrize("dtype", [each for each in DTYPES if not str(each).startswith("torch.q")], ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_tensors_of_every_dtype_arrive(dtype: torch.dtype) -> None:
    try:
        tensor = torch.tensor(range(32), dtype=torch.uint8).view(dtype)
        pickle.dumps(tensor)
    except (RuntimeError, NotImplementedError, KeyError):
        pytest.skip("torch has no way to make one of bytes, or to pickle it")
    arrived = cross(tensor)
    assert arrived.dtype is dtype
    assert arrived.view(torch.uint8).tolist() == list(range(32))


def test_nothing_is_left_open() -> None:
    things = [np.zeros(LARGE), torch.zeros(LARGE), torch.zeros(3).share_memory_()]
    before = descriptors()
    send(things, main_names=frozenset()).close()
    assert len(descriptors() - before) <= 1  # the shared storage's own
    before = descriptors()
    gc.collect()
    gc.disable()  # by counting references alone: the stem freezes what the collector has not taken
    try:
        arrived = cross(things)
        del arrived
        assert descriptors() == before
    finally:
        gc.enable()


def test_nothing_is_left_open_after_a_failure() -> None:
    shared = torch.zeros(3).share_memory_()
    send(shared, main_names=frozenset()).close()
    before = descriptors()
    with open(os.devnull, "rb") as file, pytest.raises(CannotCross, match="not a regular file"):
        send([shared, file], main_names=frozenset())
    assert descriptors() == before


# --- what travels by value


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A main module with a function, a class, and a global that both use."""
    module = types.ModuleType("__main__")
    code = """
scale = 3
def times(x): return scale * x
def set_scale(x):
    global scale
    scale = x
class Dataset:
    size = 5
    def __getitem__(self, index): return times(index)
"""
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_functions_of_the_main_module_travel_by_value_and_are_listed(main: types.ModuleType) -> None:
    crossing = send([main.Dataset(), main.times], main_names=frozenset())
    assert {main.Dataset, main.times} <= set(crossing.by_value)
    (dataset, times), by_value = Parcel(crossing.detach()).open()
    assert times is not main.times
    assert dataset[2] == 6
    assert [each.__qualname__ for each in by_value] == [each.__qualname__ for each in crossing.by_value]
    assert times in by_value and type(dataset) in by_value


def test_names_that_the_other_side_imports_travel_by_name(main: types.ModuleType) -> None:
    crossing = send([main.Dataset(), main.times], main_names=frozenset({"Dataset", "times"}))
    assert crossing.by_value == ()
    (dataset, times), by_value = Parcel(crossing.detach()).open()
    assert type(dataset) is main.Dataset and times is main.times
    assert by_value == []


def test_a_name_that_means_something_else_by_now_travels_by_value(main: types.ModuleType) -> None:
    old = main.times
    main.times = lambda x: -x  # type: ignore[attr-defined]
    crossing = send(old, main_names=frozenset({"times"}))
    assert own(crossing.by_value) == [old]
    crossing.close()


def test_functions_that_share_globals_share_them_on_the_other_side(main: types.ModuleType) -> None:
    times, set_scale = cross([main.times, main.set_scale])
    set_scale(10)
    assert times(2) == 20
    assert main.times(2) == 6


def test_what_can_be_imported_travels_by_name() -> None:
    crossing = send([np.mean, torch.nn.Linear, Callable, os.path.join], main_names=frozenset())
    assert crossing.by_value == ()
    assert Parcel(crossing.detach()).open()[0] == [np.mean, torch.nn.Linear, Callable, os.path.join]


def test_closures_and_lambdas_travel_by_value() -> None:
    offset = np.full(LARGE, 2)

    def add(x: int) -> Any:
        return offset + x

    crossing = send([add, lambda x: x + 1], main_names=frozenset())
    assert len(own(crossing.by_value)) == 2
    assert body_bytes(crossing) < OUT_OF_BAND_FROM
    (arrived, plus_one), _ = Parcel(crossing.detach()).open()
    assert arrived(1).sum() == 3 * LARGE
    assert plus_one(1) == 2


def test_cloudpickles_own_settings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_up_module")
    exec("def f(): return 5", vars(module))
    monkeypatch.setitem(sys.modules, "made_up_module", module)
    by_name = send(module.f, main_names=frozenset())
    assert by_name.by_value == ()
    by_name.close()
    cloudpickle.register_pickle_by_value(module)
    try:
        crossing = send(module.f, main_names=frozenset())
        assert own(crossing.by_value) == [module.f]
        crossing.close()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize("array_first", [False, True])
def test_arrays_over_tensors_that_move_to_shared_memory_keep_their_values(array_first: bool) -> None:
    tensor, plain = torch.arange(4), torch.from_numpy(np.arange(4))
    array = tensor.numpy()[:]
    things = {"array": array, "tensor": tensor} if array_first else {"tensor": tensor, "array": array}
    arrived = cross({**things, "plain": plain})
    gc.collect()
    others = [torch.full((4,), 7) for _ in range(100)]  # which take what memory was freed
    assert tensor.is_shared() and arrived["tensor"].is_shared() and plain.is_shared() and others
    assert array.tolist() == arrived["array"].tolist() == [0, 1, 2, 3]
    tensor += 1
    assert arrived["tensor"].tolist() == [1, 2, 3, 4]
    assert array.tolist() == [0, 1, 2, 3]  # it stays where it was, as with torch
