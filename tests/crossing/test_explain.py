"""The path to what cannot be pickled."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from antifreeze.engine.crossing import explain as explain_module
from antifreeze.engine.crossing.explain import explain, find_culprit
from antifreeze.errors import CannotCross

LOCK = threading.Lock()


class Dataset:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def closure_over(thing: Any) -> Any:
    return lambda: thing


def test_the_path_leads_through_attributes_keys_places_and_closures_to_the_innermost_culprit() -> None:
    for thing, path in [
        (LOCK, "dataset"),
        (Dataset(lock=LOCK), "dataset.lock"),
        (Dataset(fine=1, transform=Dataset(ops=[1, Dataset(fn=LOCK)])), "dataset.transform.ops[1].fn"),
        ({"a": 1, "b": (1, {2: LOCK})}, "dataset['b'][1][2]"),
        (Dataset(transform=closure_over(LOCK)), "dataset.transform.<thing>"),
        (SimpleNamespace(x=[closure_over([LOCK])]), "dataset.x[0].<thing>[0]"),
    ]:
        assert find_culprit(thing, "dataset") == (path, LOCK)


def test_what_can_be_pickled_has_no_culprit_inside() -> None:
    thing = {"a": 1}
    assert find_culprit(thing, "batch") == ("batch", thing)


def test_the_message_names_path_type_and_reason() -> None:
    error = explain(Dataset(lock=LOCK), "dataset", TypeError("cannot pickle '_thread.lock' object\nand more"))
    assert isinstance(error, CannotCross)
    assert error.what == "dataset.lock cannot be sent to a worker"
    assert error.where == "dataset.lock is a _thread.lock"
    assert error.why == "TypeError: cannot pickle '_thread.lock' object"
    assert error.try_ and "worker_init_fn" in error.try_


def test_a_batch_that_a_worker_made_is_told_so() -> None:
    error = explain([1, LOCK], "batch", ValueError(), made_by=3)
    assert error.what == "worker 3 made a batch that cannot be sent: batch[1] cannot be pickled"
    assert error.why == "ValueError"
    assert error.try_ and "plain data" in error.try_


def test_types_of_the_language_are_named_without_their_module() -> None:
    error = explain((x for x in "ab"), "batch", TypeError("no"))
    assert error.where == "batch is a generator"


def test_a_closure_over_a_variable_that_has_no_value_does_not_hide_the_reason() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return absent, lock

        lock = LOCK
        if not lock:
            absent = None  # the variable is there, and never gets a value
        return inner

    error = explain(Dataset(fn=outer()), "dataset", TypeError("cannot pickle"))
    assert error.what.startswith("dataset.fn")


def test_a_thing_that_contains_itself_ends_the_search() -> None:
    loop: list[Any] = [LOCK]
    loop.insert(0, loop)
    path, _ = find_culprit(loop, "batch")
    assert path.startswith("batch[0]")


def test_the_search_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "PATIENCE_S", -1.0)
    thing = Dataset(lock=LOCK)
    assert find_culprit(thing, "dataset") == ("dataset", thing)
