"""The way back: references instead of copies."""

import gc
import io
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.results import Inherited, ResultPickler, dump, find_inherited, load
from antifreeze.errors import SampleFailed


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_numbers", None)
    monkeypatch.setattr(results, "_kept", [])
    monkeypatch.setattr(results, "_inherited", {})


def make_class() -> Any:
    class Local:
        colour = "red"

        def __init__(self, value: int = 0) -> None:
            self.value = value

    return Local


def make_function(offset: int) -> Any:
    def add(x: int) -> int:
        return x + offset

    return add


def nothing(reference: Any) -> Any:
    raise AssertionError(f"a reference: {reference}")


def nothing_but_builtins(reference: Any) -> Any:
    """cloudpickle needs types such as `code`, which has no name in any module."""
    assert reference.module == "builtins"
    return find_inherited(reference)


def dump_by_reference(thing: Any) -> bytes:
    stream = io.BytesIO()
    ResultPickler(stream).dump(thing)
    return stream.getvalue()


@pytest.mark.parametrize("thing", [5, [1, "a"], ValueError("x", 1), KeyError], ids=repr)
def test_plain_things_need_no_reference(thing: Any) -> None:
    assert repr(load(dump(thing), nothing)) == repr(thing)


def test_what_came_by_value_goes_back_as_its_number() -> None:
    theirs, ours = [make_class(), make_function(1)], [make_class(), make_function(1)]
    results.remember(theirs)
    arrived = load(dump([theirs[0](7), theirs[1], theirs[0]]), ours.__getitem__)
    assert type(arrived[0]) is ours[0] is arrived[2]
    assert arrived[0].value == 7
    assert arrived[1] is ours[1]


def test_an_object_that_came_by_value_goes_back_as_its_number_too() -> None:
    theirs, ours = object(), object()
    results.remember([theirs])
    stream = io.BytesIO()
    ResultPickler(stream).dump([theirs, 5])
    assert load(stream.getvalue(), [ours].__getitem__)[0] is ours


def test_a_class_of_the_trainer_is_never_given_the_workers_state() -> None:
    theirs, ours = make_class(), make_class()
    results.remember([theirs])
    theirs.colour = "changed in the worker"
    load(dump(theirs()), [ours].__getitem__)
    assert ours.colour == "red"


def test_in_a_clean_worker_what_did_not_come_from_the_trainer_goes_by_value() -> None:
    results.remember([])
    arrived = load(dump([make_function(5), make_class()(3)]), nothing)
    assert arrived[0](1) == 6
    assert arrived[1].value == 3


@pytest.fixture
def frozen() -> Iterator[Callable[[], None]]:
    """A stem freezes all that it has before it forks."""
    gc.collect()
    yield gc.freeze
    gc.unfreeze()


def test_in_a_grown_worker_what_was_inherited_goes_back_as_its_address(frozen: Callable[[], None]) -> None:
    local, function = make_class(), make_function(1)
    frozen()
    raw = dump([local(7), function])
    gc.unfreeze()  # the trainer's collector is not frozen
    arrived = load(raw, find_inherited)
    assert type(arrived[0]) is local
    assert arrived[0].value == 7
    assert arrived[1] is function


def test_in_a_grown_worker_what_was_made_there_goes_by_value(frozen: Callable[[], None]) -> None:
    frozen()
    arrived = load(dump([make_function(5), make_class()(3)]), nothing_but_builtins)
    assert arrived[0](1) == 6
    assert arrived[1].value == 3


def test_what_a_worker_made_is_not_kept_once_it_is_sent(frozen: Callable[[], None]) -> None:
    frozen()
    gone = []
    for number in range(5):
        function = make_function(number)
        gone.append(weakref.ref(function))
        dump(function)
        del function
    gc.collect()
    assert [reference() for reference in gone] == [None] * 5


def test_what_can_be_imported_goes_by_name() -> None:
    assert load(dump_by_reference([ResultPickler, make_class, OSError]), nothing) == [
        ResultPickler,
        make_class,
        OSError,
    ]


def test_what_is_no_longer_at_its_address_says_so() -> None:
    function, other = make_function(5), make_class()
    for address in (1, id(other)):
        with pytest.raises(SampleFailed, match="no longer in this program"):
            find_inherited(Inherited(address, "function", function.__module__, function.__qualname__))


def test_a_class_that_a_frozen_collector_does_not_show_is_found(frozen: Callable[[], None]) -> None:
    local = make_class()
    frozen()
    reference = Inherited(id(local), "type", local.__module__, local.__qualname__)
    assert find_inherited(reference) is local


def test_what_cannot_be_pickled_at_all_says_so() -> None:
    with pytest.raises((TypeError, pickle.PicklingError)):
        dump(x for x in "ab")
