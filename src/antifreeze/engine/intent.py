"""Which error was raised on purpose: of the user's code, or one that the user may meet and go on. Any other tears."""

from __future__ import annotations


class Intent:
    """Remembers the last one by its `id`; the error itself has a traceback, which would hold all that it went through."""

    def __init__(self) -> None:
        self._meant = 0

    def forget(self) -> None:
        """Nothing has been raised on purpose."""
        self._meant = 0

    def raising(self, error: Exception) -> Exception:
        """This one is about to be raised on purpose."""
        self._meant = id(error)
        return error

    def is_meant(self, error: BaseException) -> bool:
        """Whether this one was; the end of an epoch always is."""
        return isinstance(error, StopIteration) or id(error) == self._meant
