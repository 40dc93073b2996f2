"""A fetch under a trace: which exception was swallowed, where, by whom."""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from antifreeze.engine.worker import retrace as retrace_module
from antifreeze.engine.worker.retrace import retrace


def line_of(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def test_it_names_the_exception_and_both_places() -> None:
    def fetch() -> Any:
        try:
            return 1 / 0
        except ZeroDivisionError:
            return None

    here = f"`ZeroDivisionError` (division by zero) at test_retrace.py:{line_of(fetch, 2)}, "
    assert here + f"caught at test_retrace.py:{line_of(fetch, 3)}" in retrace(fetch)


def test_an_exception_of_a_library_is_placed_in_the_users_code() -> None:
    def read() -> Any:
        return json.loads("{")

    def fetch() -> Any:
        try:
            return read()
        except ValueError:
            return None

    said = retrace(fetch)
    assert "`JSONDecodeError` (Expecting property name" in said
    assert f"at test_retrace.py:{line_of(read, 1)}, caught at test_retrace.py:{line_of(fetch, 3)}" in said


def test_what_libraries_catch_among_themselves_is_not_reported_if_the_user_caught_something() -> None:
    def fetch() -> Any:
        try:
            {}["key"]
        except KeyError:
            json.JSONDecoder().decode("1")
            with contextlib.suppress(Exception):
                pass
        return None

    assert "`KeyError`" in retrace(fetch)


def test_of_several_the_last_one_caught_is_named() -> None:
    def fetch() -> Any:
        for error in (KeyError("first"), OSError("second")):
            try:
                raise error
            except Exception:  # as such datasets do
                pass
        return None

    assert "`OSError` (second)" in retrace(fetch)


def test_what_passes_through_finally_and_with_is_caught_further_above() -> None:
    def inner() -> Any:
        with contextlib.ExitStack():
            try:
                raise OSError("deep")
            finally:
                done = True
                assert done

    def fetch() -> Any:
        try:
            return inner()
        except OSError:
            return None

    said = retrace(fetch)
    assert f"at test_retrace.py:{line_of(inner, 3)}, caught at test_retrace.py:{line_of(fetch, 3)}" in said


def test_what_a_context_manager_suppresses_is_caught_there() -> None:
    def fetch() -> Any:
        with contextlib.suppress(OSError):
            raise OSError("suppressed")
        return None

    said = retrace(fetch)
    assert f"(suppressed) at test_retrace.py:{line_of(fetch, 2)}, caught at test_retrace.py:" in said


def test_loops_and_generators_are_no_failures() -> None:
    def fetch() -> Any:
        list(number for number in range(3))  # noqa: C400
        next(iter([]), None)
        for _ in (number for number in range(3)):
            pass

    assert "no exception was caught" in retrace(fetch)


def test_what_does_not_recur_is_called_that() -> None:
    assert "did not recur" in retrace(lambda: 5)


def test_an_exception_that_is_not_swallowed_this_time_is_named() -> None:
    def fetch() -> Any:
        raise OSError("this time")

    assert "it raised `OSError` (this time)" in retrace(fetch)


def test_an_exception_that_cannot_be_shown_is_named_all_the_same() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fetch() -> Any:
        try:
            raise Shy
        except Shy:
            return None

    assert "Shy` at test_retrace.py" in retrace(fetch)


def test_the_trace_ends_with_the_fetch_and_gives_way_to_who_was_there_before() -> None:
    def others(*_: Any) -> None:
        return None

    def fails() -> Any:
        raise OSError

    before = sys.gettrace()
    try:
        sys.settrace(others)
        retrace(lambda: None)
        retrace(fails)
        found = sys.gettrace()
    finally:
        sys.settrace(before)
    assert found is others


def test_a_long_fetch_goes_on_without_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrace_module, "MOST_STEPS", 10)
    traced: list[bool] = []

    def fetch() -> Any:
        for _ in range(100):
            traced.append(sys.gettrace() is not None)

    retrace(fetch)
    assert traced[0] and not traced[-1]
