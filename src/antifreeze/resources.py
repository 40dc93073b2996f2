"""`per_worker`: a resource that every process opens for itself, when it first needs it.

A handle that was opened before the workers started is one handle in all of them: they share its offset, its connection, its
locks. So the factory crosses to the worker, and the resource never does. After a fork the child forgets the parent's
resource without closing it: to close it, or to let it be collected, would end what the parent goes on using (a database
client says good-bye to the server on the connection of both). What is open is closed when its process ends, the last
first.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing import util
from types import TracebackType
from typing import Any, Generic, TypeVar

R = TypeVar("R")


def per_worker(factory: Callable[[], R]) -> PerWorker[R]:
    """A resource to be opened by `factory` on first use in each process; call what this returns to have it."""
    if not callable(factory):
        raise TypeError(f"per_worker needs a function that opens the resource, not {factory!r}")
    return PerWorker(factory)


class PerWorker(Generic[R]):
    """What `per_worker` makes: `resource()` gives this process's own, opened by whoever asks first.

    An error of the factory is raised to whoever asked, and the next one to ask tries again.
    """

    __slots__ = ("__weakref__", "_factory", "_lock", "_number", "_opened")

    def __init__(self, factory: Callable[[], R]) -> None:
        self._factory = factory
        self._lock = threading.RLock()
        self._opened: tuple[R] | None = None
        self._number = 0
        _all.add(self)
        _forget_in_children()

    def __call__(self) -> R:
        opened = self._opened
        return opened[0] if opened else self._open()

    def _open(self) -> R:
        with self._lock:
            if self._opened is None:  # nobody was quicker
                self._opened = (self._factory(),)
                self._number = next(_numbers)
                _close_at_exit()
            return self._opened[0]

    def close(self) -> None:
        """Close this process's resource, if it is open and can be closed; the next call opens another."""
        with self._lock:
            opened, self._opened = self._opened, None
        close = getattr(opened[0], "close", None) if opened else None
        if close is not None:
            close()

    def __enter__(self) -> PerWorker[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return PerWorker, (self._factory,)

    def __repr__(self) -> str:
        return f"<per_worker {self._factory!r}, {'open' if self._opened else 'not open'} here>"

    def _forget(self) -> None:
        """In a forked child: what is open is the parent's, and the lock may be held by a thread that is not here."""
        self._lock = threading.RLock()
        if self._opened:
            _leave_to_the_parent(self._opened[0])
            self._opened = None


def _leave_to_the_parent(resource: Any) -> None:
    lmdb = sys.modules.get("lmdb")
    if lmdb is not None and isinstance(resource, lmdb.Environment):
        # LMDB opens nothing twice in a process and takes the copy for open; its close leaves what is the parent's.
        resource.close()
    else:
        # One reference too many: it is never collected, which would close it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


_all: weakref.WeakSet[PerWorker[Any]] = weakref.WeakSet()
_numbers = itertools.count(1)
_exit: util.Finalize | None = None
"""Closes what this process has open; None before it has opened anything."""


def _close_at_exit() -> None:
    """Have everything closed when this process ends; multiprocessing's own processes do not come to `atexit`."""
    global _exit
    if _exit is None:
        _exit = util.Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    for each in sorted(_all, key=lambda each: each._number, reverse=True):
        try:
            each.close()
        except Exception:  # of the resource's own `close`; the others are to be closed as well
            traceback.print_exc()


@functools.cache
def _forget_in_children() -> None:
    """Have children that are forked from now on forget what is open here."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_in_child)


def _forget_in_child() -> None:
    global _exit
    _exit = None
    for each in list(_all):
        each._forget()
