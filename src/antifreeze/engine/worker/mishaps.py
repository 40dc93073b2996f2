"""A failed sample in words, bounded, whatever its exception and its index are made of."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from antifreeze.engine.wire.messages import Mishap, MishapKind

MOST_OF_A_SAMPLE = 200
MOST_OF_AN_EXCEPTION = 2000
MOST_OF_A_TRACEBACK = 8000
MOST_FRAMES = 20


def describe(
    kind: MishapKind, position: int, index: Any, attempt: int, error: BaseException, remark: str = ""
) -> Mishap:
    """The mishap of a sample."""
    kind_of_error = type(error).__qualname__
    message = _text_of(str, error, MOST_OF_AN_EXCEPTION - len(kind_of_error) - 2)
    text = f"{kind_of_error}: {message}" if message else kind_of_error
    return Mishap(kind, position, describe_index(index), attempt, text, _stack_of(error), remark)


def keep_told(mishaps: list[Mishap]) -> None:
    """A batch is made once more: nothing is missing from it so far, and what has been fetched again stays told."""
    mishaps[:] = [each for each in mishaps if not each.is_loss]


def describe_index(index: Any) -> str:
    """What the dataset was asked for."""
    return _text_of(repr, index, MOST_OF_A_SAMPLE)


def _text_of(make: Callable[[Any], str], thing: Any, most: int) -> str:
    try:
        text = make(thing)
    except Exception:  # a class of the user's can do anything
        return f"<{type(thing).__qualname__} that cannot be shown>"
    return text if len(text) <= most else text[: most - 1] + "…"


def _stack_of(error: BaseException) -> str:
    """Where it came from, the innermost last: that is where it happened."""
    return "".join(traceback.format_tb(error.__traceback__, limit=-MOST_FRAMES))[-MOST_OF_A_TRACEBACK:]
