"""What is said of a value that cannot work."""

from __future__ import annotations

from typing import Any

from antifreeze.errors import ConfigError


def is_int(value: Any) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(words: tuple[str, ...]) -> str:
    """All that it can be."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def refusal(name: str, value: Any, where: str, why: str, try_: str) -> ConfigError:
    """The error for a value that was given in a program."""
    return ConfigError(f"{name}={value!r} cannot work", where=where, why=why, try_=try_)


def refusal_of_text(text: str, where: str, why: str, example: str) -> ConfigError:
    """The error for a text that was given in the environment or on the command line."""
    try_ = f"{where} {example}" if where.startswith("-") else f"{where.rsplit(maxsplit=1)[-1]}={example}"
    return ConfigError(f"{text!r} cannot work here", where=where, why=why, try_=try_)
