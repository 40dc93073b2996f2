"""What a walk through a dataset sees, in which order, at what cost, and that it runs nothing of the user's."""

import functools
import itertools
import logging
import time
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from torch.utils.data import default_collate

from antifreeze.engine.crossing import walk as walk_module
from antifreeze.engine.crossing.reading import MOST_ELEMENTS
from antifreeze.engine.crossing.walk import MOST_OBJECTS, PATIENCE_S, walk


class Target:
    """What the tests look for."""


TARGET = Target()


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("empty", "target")

    def __init__(self) -> None:
        self.target = TARGET


class Shared:
    target = TARGET


class Child(Shared):
    pass


class WithProperty:
    @property
    def target(self) -> NoReturn:
        pytest.fail("a property was called")


class Method:
    target = None

    def call(self) -> Any:
        return TARGET


def uses_global(samples: Any) -> Any:
    return TARGET


def uses_global_inside(samples: Any) -> Any:
    return sorted(samples, key=lambda _: TARGET)


def uses_attribute(samples: Any) -> Any:
    return samples.TARGET


def has_default(samples: Any, *, target: Any = TARGET) -> Any:
    return target


def closure() -> Any:
    target = TARGET
    return lambda: target


def decorated() -> Any:
    @functools.wraps(uses_attribute)
    def wrapper() -> None:
        pass

    wrapper.note = TARGET  # type: ignore[attr-defined]
    return wrapper


def paths_to(target: Any, **roots: Any) -> list[str]:
    return [path for path, thing in walk(roots) if thing is target]


@pytest.mark.parametrize(
    ("dataset", "path"),
    [
        (TARGET, "dataset"),
        (Holder(transform=Holder(ops=[1, 2, TARGET])), "dataset.transform.ops[2]"),
        (Holder(table={"a": {"b": (TARGET,)}}), "dataset.table['a']['b'][0]"),
        (Holder(table={TARGET: Holder(x=TARGET)}), "dataset.table[<Target>].x"),
        (OrderedDict(a=TARGET), "dataset['a']"),
        ({TARGET}, "dataset{…}"),
        (frozenset({TARGET}), "dataset{…}"),
        (deque([0, TARGET]), "dataset[1]"),
        (Slotted(), "dataset.target"),
        (Shared(), "dataset.target"),
        (Child(), "dataset.target"),
        (Child, "dataset.target"),
        (SimpleNamespace(target=TARGET), "dataset.target"),
        (functools.partial(print, TARGET), "dataset.args[0]"),
        (functools.partial(print, target=TARGET), "dataset.keywords['target']"),
        (Holder(call=Method().call), f"{__name__}.TARGET"),
        (closure(), "dataset.<target>"),
        (Holder(read=[TARGET].pop), "dataset.read.__self__[0]"),
        (has_default, "dataset.__kwdefaults__['target']"),
        (decorated(), "dataset.note"),
        (uses_global, f"{__name__}.TARGET"),
        (uses_global_inside, f"{__name__}.TARGET"),
        (functools.lru_cache(uses_global), f"{__name__}.TARGET"),
        (property(uses_global), f"{__name__}.TARGET"),
        (staticmethod(uses_global), f"{__name__}.TARGET"),
        (torch.utils.data.Subset(Holder(x=TARGET), [0]), "dataset.dataset.x"),  # type: ignore[arg-type]
    ],
)
def test_what_a_dataset_holds_is_found_by_its_path(dataset: Any, path: str) -> None:
    assert paths_to(TARGET, dataset=dataset) == [path]


def test_a_module_that_a_function_names_is_seen_and_what_it_names_of_the_users_modules() -> None:
    assert paths_to(walk_module, dataset=lambda: walk_module.PATIENCE_S) == [f"{__name__}.walk_module"]
    module = types.ModuleType("users_module")
    module.__file__ = "/home/user/users_module.py"
    vars(module).update(client=TARGET, other=Holder())
    dataset = eval("lambda: users_module.client.get()", {"users_module": module, "__name__": "train"})
    found = list(walk({"dataset": dataset}))
    assert ("train.users_module", module) in found
    assert ("train.users_module.client", TARGET) in found
    assert not any(isinstance(thing, Holder) for _, thing in found)


def test_a_module_that_a_function_imports_itself_is_seen() -> None:
    def imports() -> Any:
        import sqlite3

        return sqlite3

    import sqlite3

    assert paths_to(sqlite3, dataset=imports) == ["sqlite3"]


def test_an_attribute_is_not_taken_for_a_global_of_the_same_name() -> None:
    assert paths_to(TARGET, dataset=uses_attribute) == []


def test_what_is_not_held_is_not_seen() -> None:
    logger = logging.getLogger("of the dataset")
    logger.addHandler(handler := logging.NullHandler())
    handler.note = TARGET  # type: ignore[attr-defined]
    try:
        assert paths_to(TARGET, dataset=Holder(log=logger, weak=weakref.ref(TARGET), module=walk_module)) == []
    finally:
        logger.removeHandler(handler)


def test_code_that_is_installed_is_not_read() -> None:
    assert [path for path, _ in walk({"collate_fn": default_collate})] == ["collate_fn"]


def test_types_that_are_closed_are_seen_and_not_looked_into() -> None:
    holder = Holder(x=TARGET)
    assert list(walk({"dataset": holder}, closed=[Holder])) == [("dataset", holder)]


def test_the_nearest_comes_first() -> None:
    deep = Holder(a=Holder(b=Holder(c=[Holder()])), z=Holder())
    lengths = [path.count(".") + path.count("[") for path, _ in walk({"dataset": deep})]
    assert lengths == sorted(lengths)


def test_each_object_is_seen_once_and_cycles_end() -> None:
    one, other = Holder(), [TARGET]
    one.self = one
    one.other = other
    other.extend([one, other, TARGET])  # type: ignore[list-item]
    things = [thing for _, thing in walk({"dataset": one})]
    assert len({id(thing) for thing in things}) == len(things)
    assert TARGET in things


def make_hostile() -> Any:
    """An object that fails the test if anything is asked of it or of its class."""

    def fail(*_: Any) -> NoReturn:
        pytest.fail("somebody was asked")

    refusals = dict.fromkeys(("__getattribute__", "__eq__", "__hash__", "__repr__"), fail)
    angry = type("Angry", (type,), {**refusals, "__instancecheck__": fail})
    more = dict.fromkeys(("__getattr__", "__len__", "__iter__", "__bool__"), fail)
    properties = {"__class__": property(fail), "__dict__": property(fail)}
    return object.__new__(type.__new__(angry, "Hostile", (), {**refusals, **more, **properties}))


class HostileList(list[Any]):
    def __iter__(self) -> NoReturn:
        pytest.fail("a list was iterated over")

    __len__ = __getitem__ = __bool__ = __iter__  # type: ignore[assignment]


class HostileDict(dict[Any, Any]):
    def items(self) -> NoReturn:
        pytest.fail("a dict was asked for its items")

    __iter__ = __len__ = __getitem__ = keys = __bool__ = items  # type: ignore[assignment]


class HostileName(str):
    __slots__ = ()

    def __repr__(self) -> NoReturn:
        pytest.fail("a key was asked for its text")

    __str__ = __format__ = __repr__  # type: ignore[assignment]


def test_no_code_of_the_users_is_run() -> None:
    hostile = make_hostile()
    things = [hostile, WithProperty(), HostileList([Holder(x=1)]), HostileDict(a={HostileName("k"): TARGET})]
    found = [path for path, thing in walk({"dataset": things}) if thing is TARGET or thing is hostile]
    assert found == ["dataset[0]", "dataset[3]['a'][<HostileName>]"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ["x"] * 1_000_000,
        lambda: tuple(range(1_000_000)),
        lambda: dict.fromkeys(range(1_000_000), 1.5),
        lambda: set(range(1_000_000)),
        lambda: deque(["x"] * 1_000_000),
    ],
    ids=["list", "tuple", "dict", "set", "deque"],
)
def test_plain_data_costs_nothing(make: Callable[[], Any]) -> None:
    assert [path for path, _ in walk({"dataset": make()})] == ["dataset"]


def test_a_long_list_is_looked_at_from_end_to_end() -> None:
    holders = [Holder() for _ in range(10 * MOST_ELEMENTS)]
    places = [int(path[8:-1]) for path, thing in walk({"dataset": holders}) if isinstance(thing, Holder)]
    assert places == list(range(0, 10 * MOST_ELEMENTS, 10))


class Ticking:
    """A clock that goes on by itself whenever somebody looks at it."""

    def __init__(self, step_s: float) -> None:
        self._times = itertools.count(0.0, step_s)

    def __call__(self) -> float:
        return next(self._times)


def test_time_in_which_this_thread_does_not_run_does_not_count() -> None:
    """On a busy machine, hazards of a fork would be overlooked."""
    steps = 0
    for _ in walk({"dataset": [[[]]]}):
        time.sleep(2 * PATIENCE_S)
        steps += 1
    assert steps == 3


def test_the_walk_ends_when_its_time_is_up() -> None:
    steps = list(walk({"dataset": [Holder() for _ in range(100)]}, clock=Ticking(0.01)))
    assert len(steps) == 5


def endless() -> Iterator[Any]:
    while True:
        yield Holder()


def test_the_walk_ends_after_so_many_objects() -> None:
    wide = [[list(itertools.islice(endless(), 100)) for _ in range(100)] for _ in range(3)]
    assert sum(1 for _ in walk({"dataset": wide}, clock=lambda: 0.0)) == MOST_OBJECTS


def test_a_chain_is_not_followed_to_its_end() -> None:
    chain: Any = TARGET
    for _ in range(10_000):
        chain = [chain]
    steps = list(walk({"dataset": chain}, clock=lambda: 0.0))
    assert 100 < len(steps) < 1000
