"""A failed sample in words."""

from typing import Any

from antifreeze.engine.worker.mishaps import MOST_OF_A_SAMPLE, MOST_OF_A_TRACEBACK, MOST_OF_AN_EXCEPTION, describe


def raised(error: Exception, depth: int = 0) -> Exception:
    def fail(levels: int) -> Any:
        if levels:
            return fail(levels - 1)
        raise error

    try:
        fail(depth)
    except Exception as caught:
        return caught
    raise AssertionError


def test_type_message_and_stack_are_kept() -> None:
    mishap = describe("skipped", 2, 17, 1, raised(OSError("no such file")))
    assert mishap.exception == "OSError: no such file"
    assert mishap.sample == "17"
    assert mishap.traceback.rstrip().endswith("raise error")


def test_an_exception_without_a_message_is_its_type() -> None:
    assert describe("skipped", 0, 0, 1, KeyError()).exception == "KeyError"


def test_every_text_is_bounded_and_the_end_of_the_stack_is_kept() -> None:
    mishap = describe("retried", 0, "x" * 10_000, 1, raised(ValueError("y" * 100_000), depth=500))
    assert len(mishap.sample) <= MOST_OF_A_SAMPLE
    assert len(mishap.exception) <= MOST_OF_AN_EXCEPTION
    assert len(mishap.traceback) <= MOST_OF_A_TRACEBACK
    assert "raise error" in mishap.traceback


class Shy(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


def test_what_cannot_be_shown_is_named_by_its_type() -> None:
    mishap = describe("retried", 0, Shy(), 1, Shy())
    assert mishap.exception == "Shy: <Shy that cannot be shown>"
    assert mishap.sample == "<Shy that cannot be shown>"
