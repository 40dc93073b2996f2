"""The kinds of values that options have, as a program gives them, and as the environment or a command line does."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from antifreeze.errors import ConfigError
from antifreeze.policy import THENS, OnError, Retry, is_int, is_number, one_of

FIXES = ("rng", "shard", "stale")
Seeding = Literal["torch", "ticket"]
SEEDINGS: tuple[str, ...] = get_args(Seeding)


@dataclass(frozen=True, slots=True)
class Values:
    """What an option can be, as a value in a program and as a text in the environment or on the command line.

    `check` and `parse` give the value, or raise ValueError or TypeError.
    """

    check: Callable[[Any], Any]
    rule: str
    """What `check` asks for, in words."""
    example: Any
    parse: Callable[[str], Any] = str
    rule_of_text: str = ""
    """What `parse` asks for, in words; the same as `rule` if it is empty."""
    example_of_text: str = ""

    def given(self, value: Any, *, name: str) -> Any:
        """The value that was given to this argument, checked."""
        try:
            return self.check(value)
        except (ValueError, TypeError):
            what, try_ = f"{name}={value!r} cannot work", f"{name}={self.example!r}"
            raise ConfigError(what, where=name, why=self.rule, try_=try_) from None

    def read(self, text: str, *, where: str) -> Any:
        """The value that this text has; `where` it was given: a flag, or `environment variable NAME`."""
        try:
            return self.parse(text)
        except (ValueError, TypeError):
            example = self.example_of_text
            try_ = f"{where} {example}" if where.startswith("-") else f"{where.rsplit(maxsplit=1)[-1]}={example}"
            why = self.rule_of_text or self.rule
            raise ConfigError(f"{text!r} cannot work here", where=where, why=why, try_=try_) from None


def _choices(words: tuple[str, ...], example: str) -> Values:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError

    return Values(check, f"it can be {one_of(words)}", example, check, "", example)


def _check_on_error(value: Any) -> OnError:
    if isinstance(value, Retry):
        return value
    return ON_ERROR_WORDS.check(value)  # type: ignore[no-any-return]


def _check_count(value: Any) -> int:
    if is_int(value) and value >= 0:
        return int(value)
    raise ValueError


def _parse_count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ValueError


def _check_limit(value: Any) -> int | float:
    if is_int(value):
        return _check_count(value)
    if is_number(value) and 0 < value <= 1:
        return float(value)
    raise ValueError


def _parse_limit(text: str) -> int | float:
    if text.isdecimal():
        return int(text)
    return _check_limit(float(text[:-1]) / 100 if text.endswith("%") else float(text))


def _check_span(value: Any) -> float:
    if is_number(value) and 0 < value < math.inf:
        return float(value)
    raise ValueError


_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def _parse_span(text: str) -> float:
    number, unit_s = (text[:-1], _UNITS_S[text[-1]]) if text[-1:] in _UNITS_S else (text, 1)
    return _check_span(float(number) * unit_s)


def _check_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


_FLAG_WORDS = {"0": False, "off": False, "1": True, "on": True}


def _parse_flag(text: str) -> bool:
    if text in _FLAG_WORDS:
        return _FLAG_WORDS[text]
    raise ValueError


def _check_fix(value: Any) -> frozenset[str]:
    names = frozenset((value,) if isinstance(value, str) else value)
    if names <= set(FIXES):
        return names
    raise ValueError


def _parse_fix(text: str) -> frozenset[str]:
    return _check_fix(text.split(","))


def _check_file(value: Any) -> Path:
    if isinstance(value, str | os.PathLike) and os.fspath(value):
        return Path(value)
    raise ValueError


def _parse_file(text: str) -> Path:
    if text and not text.endswith("/"):
        return Path(text)
    raise ValueError


def _check_threads(value: Any) -> int | None:
    if value is None or (is_int(value) and value >= 1):
        return None if value is None else int(value)
    raise ValueError


ON_ERROR_WORDS = _choices(THENS, "skip")
ON_ERROR = Values(
    _check_on_error, f"it can be {one_of(THENS)}, or Retry()", "skip", ON_ERROR_WORDS.parse, ON_ERROR_WORDS.rule, "skip"
)
SEEDING = _choices(SEEDINGS, "ticket")
COUNT = Values(
    _check_count, "it is a count", 3, _parse_count, "it says how often a sample that failed is fetched again", "3"
)
LIMIT = Values(
    _check_limit,
    "it is a count (an int) or a fraction (a float from 0 to 1)",
    20,
    _parse_limit,
    "it is a count (20) or a share (1% or 0.01)",
    "1%",
)
SPAN = Values(
    _check_span,
    "it is a number of seconds greater than 0",
    60,
    _parse_span,
    "it is a span of time: 10, 10s or 2m",
    "10s",
)
FLAG = Values(_check_flag, "it is True or False", False, _parse_flag, "it can be 1 or on, 0 or off", "1")
FIX = Values(
    _check_fix,
    f"it is any of {', '.join(map(repr, FIXES))}",
    FIXES,
    _parse_fix,
    f"it is a list of {', '.join(FIXES)}",
    ",".join(FIXES),
)
FILE = Values(_check_file, "it is the name of a file", "ledger.jsonl", _parse_file, "", "ledger.jsonl")
THREADS = Values(_check_threads, "a worker needs at least one thread; None lifts the limit", 1)
