"""The way back: references instead of copies."""

import io
import pickle
from typing import Any

import cloudpickle
import pytest

from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.results import Inherited, ResultPickler, dump, find_inherited, load


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


def test_in_a_grown_worker_what_was_inherited_goes_back_as_its_address() -> None:
    local, function = make_class(), make_function(1)
    arrived = load(dump([local(7), function]), find_inherited)
    assert type(arrived[0]) is local
    assert arrived[0].value == 7
    assert arrived[1] is function


def test_what_can_be_imported_goes_by_name() -> None:
    assert load(dump_by_reference([ResultPickler, make_class, OSError]), nothing) == [
        ResultPickler,
        make_class,
        OSError,
    ]


def test_what_is_not_at_its_address_is_made_from_its_value() -> None:
    function = make_function(5)
    reference = Inherited(1, "function", __name__, "nobody", cloudpickle.dumps(function))
    found = find_inherited(reference)
    assert found is not function
    assert found(1) == 6


def test_another_object_at_the_address_is_not_mistaken_for_it() -> None:
    function, other = make_function(5), make_class()
    reference = Inherited(
        id(other), "function", function.__module__, function.__qualname__, cloudpickle.dumps(function)
    )
    assert find_inherited(reference)(1) == 6


def test_what_cannot_be_pickled_at_all_says_so() -> None:
    with pytest.raises((TypeError, pickle.PicklingError)):
        dump(x for x in "ab")
