"""The path to what cannot be pickled, what it is, and what to do."""

import collections
import dataclasses
import functools
import io
import pickle
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from antifreeze.engine.crossing import explain as explain_module
from antifreeze.engine.crossing import pickler
from antifreeze.engine.crossing.explain import Culprit, Deepest, explain, explain_batch, find_culprit
from antifreeze.errors import CannotCross

HERE = Path(__file__).name


class Stubborn:
    """Cannot be pickled, by no pickler of ours."""

    def __reduce__(self) -> Any:
        raise TypeError("I stay here\nand there is more to say")


CULPRIT = Stubborn()


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> None:
        pass


class Slotted:
    __slots__ = ("part",)


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: Any
    y: Any


class Noted(torch.Tensor):
    pass


class Link:
    def __init__(self, after: Any) -> None:
        self.after = after


Point = collections.namedtuple("Point", "x y")


def closure_over(thing: Any) -> Any:
    return lambda: thing


def with_default() -> Any:
    def function(part: Any = CULPRIT) -> Any:
        return part

    return function


def local_class(**attributes: Any) -> Any:
    return type("Local", (), {"__module__": "nowhere", **attributes})


def slotted() -> Slotted:
    thing = Slotted()
    thing.part = CULPRIT
    return thing


def noted() -> torch.Tensor:
    tensor = torch.zeros(3).as_subclass(Noted)
    tensor.note = CULPRIT  # type: ignore[attr-defined]
    return tensor


def array_of_objects() -> np.ndarray:
    array = np.empty(3, dtype=object)
    array[1] = CULPRIT
    return array


def find(parts: Mapping[str, Any]) -> Culprit | Deepest:
    with pickler.asked(main_names=frozenset()) as asked:
        return find_culprit(parts, asked)


def path_to_culprit(thing: Any) -> str:
    found = find({"dataset": thing})
    assert isinstance(found, Culprit), found
    assert found.thing is CULPRIT
    return found.path


def why_not(thing: Any, name: str = "dataset") -> CannotCross:
    """The error for what the crossing's own pickler refuses."""
    with pytest.raises(Exception) as refused:
        pickler.send(thing, main_names=frozenset())
    with pickler.asked(main_names=frozenset()) as asked:
        error = explain({name: thing}, refused.value, asked=asked)
    assert isinstance(error, CannotCross)
    assert error.code == "AF301"
    return error


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        (CULPRIT, "dataset"),
        (Holder(part=CULPRIT), "dataset.part"),
        (Holder(fine=1, transform=Holder(ops=[1, Holder(fn=CULPRIT)])), "dataset.transform.ops[1].fn"),
        ({"a": 1, "b": (1, {2: CULPRIT})}, "dataset['b'][1][2]"),
        ({CULPRIT: 1}, "dataset.keys()[0]"),
        ({("deep", 1): [CULPRIT]}, "dataset[('deep', 1)][0]"),
        ({1: frozenset([CULPRIT])}, "dataset[1][0]"),
        (Holder(transform=closure_over(CULPRIT)), "dataset.transform.<thing>"),
        (SimpleNamespace(x=[closure_over([CULPRIT])]), "dataset.x[0].<thing>[0]"),
        (with_default(), "dataset.__defaults__[0]"),
        (local_class(part=CULPRIT)(), "dataset.__class__.part"),
        (type("Below", (local_class(part=CULPRIT),), {}), "dataset.__bases__[0].part"),
        (slotted(), "dataset.part"),
        (FrozenSlotted(1, CULPRIT), "dataset.y"),
        (functools.partial(print, 1, CULPRIT), "dataset.args[1]"),
        (functools.partial(print, end=CULPRIT), "dataset.keywords['end']"),
        (functools.partial(closure_over(CULPRIT)), "dataset.func.<thing>"),
        (Holder(part=CULPRIT).method, "dataset.__self__.part"),
        (Point(1, CULPRIT), "dataset[1]"),
        (collections.deque([1, CULPRIT]), "dataset[1]"),
        (collections.OrderedDict(a=1, b=CULPRIT), "dataset['b']"),
        (collections.defaultdict(closure_over(CULPRIT)), "dataset.default_factory.<thing>"),
        (ValueError("text", CULPRIT), "dataset.args[1]"),
        ([noted()], "dataset[0].note"),
        (array_of_objects(), "dataset[1]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_path_is_what_one_would_write_to_get_there(thing: Any, path: str) -> None:
    assert path_to_culprit(thing) == path


def uses_a_global() -> Any:
    return CULPRIT


def test_a_global_of_a_function_that_travels_by_value_is_on_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uses_a_global, "__module__", "__main__")
    assert path_to_culprit([uses_a_global]) == "dataset[0].<CULPRIT>"


def test_functions_and_classes_that_can_be_imported_are_not_looked_into() -> None:
    found = find({"dataset": [uses_a_global, Stubborn, threading.Lock, print, np.add]})
    assert isinstance(found, Deepest)


def test_the_first_part_to_blame_is_named_with_its_own_root() -> None:
    found = find({"dataset": [1], "collate_fn": closure_over(CULPRIT), "worker_init_fn": CULPRIT})
    assert isinstance(found, Culprit) and found.path == "collate_fn.<thing>"


class Counted:
    """Tells how often it was pickled."""

    asked = 0

    def __reduce__(self) -> Any:
        type(self).asked += 1
        return Counted, ()


def test_every_object_is_asked_once_however_often_and_deep_it_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "asked", 0)
    shared = [Counted() for _ in range(10)]
    nested: Any = shared
    for _ in range(30):
        nested = [nested, nested, shared]
    find({"dataset": [nested, CULPRIT]})
    assert Counted.asked == 10


def test_the_effort_grows_with_the_number_of_objects_and_no_faster() -> None:
    def calls(length: int) -> int:
        made = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal made
            made += event == "call"

        things = [{"boxes": [Holder(x=1)]} for _ in range(length)]
        sys.setprofile(count)
        try:
            find({"dataset": [*things, CULPRIT]})
        finally:
            sys.setprofile(None)
        return made

    assert calls(2000) < 2.2 * calls(1000)


@pytest.mark.parametrize("thing", [{"a": 1}, [np.zeros(3), torch.zeros(3)], torch.nn.Linear(2, 2), io.BytesIO(b"x")])
def test_what_can_be_pickled_has_no_culprit_inside(thing: Any) -> None:
    assert isinstance(find({"dataset": thing}), Deepest)


def test_tensors_in_shared_memory_are_looked_at_and_nothing_stays_open() -> None:
    shared = torch.zeros(3).share_memory_()
    pickler.send(shared, main_names=frozenset()).close()  # the storage has a descriptor of its own from now on
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert path_to_culprit([shared, CULPRIT]) == "dataset[1]"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_error_of_a_part_that_is_not_among_these_has_no_explanation() -> None:
    with pickler.asked(main_names=frozenset()) as asked:
        assert explain({"dataset": [1]}, TypeError("something else"), asked=asked) is None


def test_the_message_names_path_type_reason_and_code() -> None:
    error = why_not(Holder(part=CULPRIT))
    line = Stubborn.__reduce__.__code__.co_firstlineno + 1
    assert str(error).splitlines() == [
        "dataset.part cannot be sent to a worker",
        f"  where  dataset.part is a crossing.test_explain.Stubborn; __reduce__ raised at {HERE}:{line}",
        "  why    AF301 cannot-cross: TypeError: I stay here",
        "  try    make it in the worker (in __getitem__ or worker_init_fn), or use multiprocessing_context='fork'",
    ]


def test_the_function_that_brings_it_along_is_named_with_its_place() -> None:
    line = closure_over.__code__.co_firstlineno + 1
    where = f"dataset.fn.<thing> is a generator of lines at {HERE}:{lines.__code__.co_firstlineno}"
    error = why_not(Holder(fn=closure_over(lines())))
    assert error.where == f"{where}, used by closure_over.<locals>.<lambda> at {HERE}:{line}"
    assert error.try_ and "keep what it is made from" in error.try_


def lines() -> Iterator[int]:
    yield 1


def test_the_class_that_brings_it_along_is_named() -> None:
    class Local:
        source = lines()

    error = why_not(Local())
    assert error.where and error.where.endswith(f"used by {Local.__qualname__} at {HERE}:{class_line(Local)}")


def class_line(kind: type) -> int:
    source = Path(__file__).read_text().splitlines()
    return source.index(f"    class {kind.__name__}:") + 1


def test_code_without_a_file_is_named_without_its_place() -> None:
    namespace: dict[str, Any] = {"culprit": CULPRIT, "__name__": "__main__"}
    exec("class Notebook:\n    part = culprit\n", namespace)
    error = why_not(namespace["Notebook"]())
    assert error.where and ", used by Notebook;" in error.where


def test_a_file_is_named_with_its_name_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with path.open("w") as file:
        error = explain_batch({"log": file}, TypeError("no"), worker=0)
    assert error.where == f"batch['log'] is a _io.TextIOWrapper of {str(path)!r}, mode 'w'"
    assert "that is closed" in str(explain_batch(file, TypeError("no"), worker=0).where)


def test_a_batch_that_a_worker_made_is_told_so() -> None:
    error = explain_batch([1, threading.Lock()], ValueError(), worker=3)
    assert error.what == "worker 3 made a batch that cannot be sent: batch[1] cannot be pickled"
    assert error.where == "batch[1] is a _thread.lock"
    assert error.why == "TypeError: cannot pickle '_thread.lock' object"
    assert error.code == "AF305"
    assert error.try_ and "plain data" in error.try_


def test_a_batch_whose_culprit_is_not_found_is_told_with_the_error_alone() -> None:
    error = explain_batch([1], ValueError(), worker=3)
    assert error.what == "worker 3 made a batch that cannot be sent: batch cannot be pickled"
    assert (error.where, error.why) == ("batch is a list", "ValueError")


def chain(length: int) -> Any:
    first = None
    for _ in range(length):
        first = Link(first)
    return first


def test_what_is_nested_too_deeply_is_told_so() -> None:
    error = why_not(Holder(head=chain(10_000)))
    assert error.what == "dataset is nested too deeply to be sent to a worker"
    assert error.where == f"dataset.head{'.after' * 4} … {'.after' * 6} is 10,001 levels down"
    assert error.try_ and "in a list" in error.try_
    back = explain_batch(chain(3000), RecursionError(), worker=1)
    assert back.what == "worker 1 made a batch that cannot be sent: it is nested too deeply"
    assert back.where and back.where.endswith("is 3,000 levels down")


def test_a_closure_over_a_variable_that_has_no_value_does_not_hide_the_reason() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return absent, culprit

        culprit = CULPRIT
        if not culprit:
            absent = None  # the variable is there, and never gets a value
        return inner

    assert path_to_culprit(Holder(fn=outer())) == "dataset.fn.<culprit>"


def test_a_thing_that_contains_itself_does_not_hide_what_comes_after() -> None:
    loop: list[Any] = [CULPRIT]
    loop.insert(0, loop)
    assert path_to_culprit(loop) == "dataset[1]"


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no name")

    def __hash__(self) -> int:
        return 1


def test_a_key_that_cannot_be_shown_does_not_hide_the_reason() -> None:
    assert "Unspeakable" in path_to_culprit({Unspeakable(): CULPRIT})


@pytest.mark.parametrize("answer", [5, (1,), tuple(range(7))], ids=str)
def test_a_reduction_that_pickle_does_not_take_is_the_culprits_own_fault(answer: Any) -> None:
    class Wrong:
        def __reduce__(self) -> Any:
            return answer

    error = why_not([Wrong()])
    assert error.what.startswith("dataset[0] ")
    assert error.why and "must return a string or a tuple" in error.why


def test_a_name_that_leads_elsewhere_is_the_culprits_own_fault() -> None:
    class Misnamed:
        __module__ = "os"

        def __reduce__(self) -> Any:
            return "nowhere"

    assert "os.nowhere" in str(why_not([Misnamed()]).why)


class OutOfMemory:
    def __reduce__(self) -> Any:
        raise MemoryError


class Interrupted:
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("thing", "error"), [(OutOfMemory(), MemoryError), (Interrupted(), KeyboardInterrupt)])
def test_what_is_no_fault_of_the_object_passes_through(thing: Any, error: type[BaseException]) -> None:
    with pytest.raises(error):
        find({"dataset": [thing]})


def test_the_search_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "PATIENCE_S", -1.0)
    assert isinstance(find({"dataset": CULPRIT}), Deepest)


def test_a_pickler_without_hooks_of_its_own_can_be_asked() -> None:
    plain = pickle.Pickler(io.BytesIO())
    plain.dispatch_table = cloudpickle.Pickler.dispatch_table
    found = find_culprit({"x": [uses_a_global, closure_over(1)]}, plain)
    assert isinstance(found, Culprit) and found.path == "x[1]"
