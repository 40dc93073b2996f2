"""Looks torch's private names up. If one is missing, no import fails: that is noted, or something else is used."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

missing: list[str] = []
"""The names that the engine needs and this torch does not have."""


def required(path: str) -> Any:
    """The object at a path such as `torch._utils:_rebuild`, or the module if no name follows.

    If there is none, that is noted, and the result is a function that raises when it is called.
    """
    found = optional(path, None)
    if found is not None:
        return found
    note_missing(path)

    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AttributeError(f"this torch has no {path}")

    return refuse


def optional(path: str, otherwise: Any) -> Any:
    """The object at a path; if there is none, what is to be used then."""
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in filter(None, names.split(".")):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return otherwise
    return found


def note_missing(path: str) -> None:
    """Note that this torch does not have a name that the engine needs."""
    missing.append(path.replace(":", "."))
