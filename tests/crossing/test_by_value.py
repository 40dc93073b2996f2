"""What is made anew on the other side: names that lead nowhere there, shared globals, classes, weak references.

In one process cloudpickle gives back the very classes that were sent; what a fresh process makes of them is in
`drop_in/test_by_value.py`.
"""

import functools
import gc
import pickle
import sys
import types
import typing
import weakref
from typing import Any

import pytest

from antifreeze.engine.crossing import by_value
from antifreeze.engine.crossing.by_value import find_by_name, is_in_main
from antifreeze.engine.crossing.pickler import Parcel, send

SOURCE = """
import functools, typing
count = 1

@functools.lru_cache(maxsize=3)
def cached(x): return x + count

class Single:
    def __reduce__(self): return "THE_ONE"

THE_ONE = Single()
THE_ONE.note = "kept"
Metres = typing.NewType("Metres", float)

class Outer:
    class Inner: pass

def by_name(): return count
by_value = lambda: count
"""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("__main__")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def cross(thing: Any, *names: str) -> Any:
    return Parcel(send(thing, main_names=frozenset(names)).detach()).open()[0]


def test_a_singleton_that_goes_by_its_name_goes_by_value_once_if_the_name_leads_nowhere(main: types.ModuleType) -> None:
    crossing = send([main.THE_ONE, {"again": main.THE_ONE}], main_names=frozenset())
    assert main.THE_ONE in crossing.by_value
    (one, again), listed = Parcel(crossing.detach()).open()
    assert one is again["again"] is not main.THE_ONE
    assert type(one) is main.Single and one.note == "kept"
    assert one in listed  # so that it goes back as the trainer's own


def test_a_name_that_the_other_side_has_is_enough(main: types.ModuleType) -> None:
    assert cross(main.THE_ONE, "THE_ONE", "Single") is main.THE_ONE
    assert cross(main.Outer.Inner, "Outer") is main.Outer.Inner
    assert cross(main.cached, "cached") is main.cached


def test_a_function_with_a_cache_keeps_its_parameters_and_not_its_cache(main: types.ModuleType) -> None:
    main.cached(1)
    arrived = cross(main.cached)
    assert arrived is not main.cached
    assert arrived.cache_parameters() == {"maxsize": 3, "typed": False}
    assert arrived.cache_info().currsize == 0
    assert arrived(1) == 2 and arrived.__name__ == "cached"


def test_a_new_type_of_the_main_module_arrives(main: types.ModuleType) -> None:
    arrived = cross(main.Metres)
    assert isinstance(arrived, typing.NewType) and arrived.__supertype__ is float
    assert cross(main.Metres, "Metres") is main.Metres


def test_reductions_of_other_modules_are_left_alone() -> None:
    assert not by_value.goes_by_name(print)
    assert not by_value.goes_by_name(functools.partial(print))


def test_functions_by_value_share_the_globals_of_the_main_module_that_the_other_side_imports(
    main: types.ModuleType,
) -> None:
    arrived = cross(main.by_value, "by_name", "count")
    assert arrived.__globals__ is vars(main)
    main.count = 7  # type: ignore[attr-defined]
    assert arrived() == main.by_name() == 7
    assert cross(main.by_value).__globals__ is not vars(main)


def test_what_a_name_stands_for() -> None:
    assert find_by_name("collections", "OrderedDict.fromkeys") is not None
    assert find_by_name("no_such_module", "a") is None
    assert find_by_name("os", "no.such.name") is None
    assert not is_in_main(print, "print", frozenset({"print"}))


def test_a_class_that_its_base_knows_is_made_once() -> None:
    made = []

    def make(name: str, number: str, extra: None) -> type:
        made.append(name)
        return type(name, (), {})

    first = by_value._make_once(make, "A", "a number that nobody else has", None)
    again = by_value._make_once(make, "A", "a number that nobody else has", None)
    assert first is again and made == ["A"]


class Weak:
    pass


def test_weak_references_lead_to_the_same_object_and_keep_what_nobody_else_does() -> None:
    here, elsewhere = Weak(), Weak()
    reference, strong, other, gone = cross([weakref.ref(here), here, weakref.ref(elsewhere), weakref.ref(Weak())])
    gc.collect()
    assert reference() is strong
    assert isinstance(other(), Weak)
    assert gone() is None


def test_weak_collections_keep_their_entries() -> None:
    key, value = Weak(), Weak()
    keyed, valued, held = cross(
        [weakref.WeakKeyDictionary({key: 1}), weakref.WeakValueDictionary(a=value), weakref.WeakSet([key])]
    )
    gc.collect()
    assert list(keyed.values()) == [1]
    assert isinstance(valued["a"], Weak)
    assert list(held) == list(keyed)


def test_plain_pickle_is_not_changed() -> None:
    with pytest.raises(TypeError, match="weakref"):
        pickle.dumps(weakref.ref(Weak))


GIVEN = """
class Base: pass
class Token:
    def __reduce__(self): return self.name
for name in ("Cat", "Dog"):
    globals()[name] = type(name, (Base,), {"__module__": __name__, "speak": lambda self: name})
exec("def plus(x): return x + 1")
def define():
    global Bird
    class Bird(Base):
        wings = 2
define()
globals()["PAD"] = Token()
PAD.name = "PAD"
"""


@pytest.mark.parametrize("is_given_there", [True, False])
def test_what_was_given_its_name_at_run_time_is_that_of_the_other_side_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, is_given_there: bool
) -> None:
    here, there = (types.ModuleType("__main__") for _ in range(2))
    exec(GIVEN, vars(here))
    exec(GIVEN, vars(there))
    if not is_given_there:
        for name in ("Cat", "Dog", "Bird", "plus", "PAD"):
            delattr(there, name)
    monkeypatch.setitem(sys.modules, "__main__", here)
    here.Bird.wings = 3
    sent = here.Cat, here.Dog, here.Bird, here.plus, here.PAD
    crossing = send([sent, here.Cat()], main_names=frozenset({"Base", "Token", "define", "name"}))
    assert set(sent) <= set(crossing.by_value)
    monkeypatch.setitem(sys.modules, "__main__", there)
    (arrived, animal), listed = Parcel(crossing.detach()).open()
    assert set(arrived) <= set(listed)  # so that they go back as the trainer's own
    assert type(animal) is arrived[0]
    cat, _, bird, plus, pad = arrived
    assert plus(1) == 2 and pad.name == "PAD"
    if is_given_there:
        assert arrived == (there.Cat, there.Dog, there.Bird, there.plus, there.PAD)
        assert bird.wings == 2
    else:
        assert bird.wings == 3 and cat.__name__ == "Cat"
