"""Objects of the user's in words: `repr` and `str` of their classes may raise, which must not hide what is to be said."""

from __future__ import annotations

import contextlib


def show(thing: object) -> str:
    """As `repr`."""
    try:
        return repr(thing)
    except Exception:  # a class of the user's can do anything
        return f"<{type(thing).__qualname__} that cannot be shown>"


def text_of(error: BaseException) -> str:
    """As `str`."""
    try:
        return str(error)
    except Exception:  # likewise
        return f"<{type(error).__qualname__} that cannot be shown>"


def add_note(error: BaseException, note: str) -> None:
    """As `error.add_note`, also where a class refuses attributes, as frozen dataclasses do."""
    try:
        BaseException.add_note(error, note)
    except Exception:  # likewise
        with contextlib.suppress(Exception):
            notes = getattr(error, "__notes__", [])
            if isinstance(notes, list):
                object.__setattr__(error, "__notes__", [*notes, note])
