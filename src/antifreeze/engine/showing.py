"""Objects of the user's in words: `repr` and `str` of their classes may raise, which must not hide what is to be said."""

from __future__ import annotations


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
