"""Forks of this process: how many there were, and what is done in the children.

Nothing is registered when modules are imported: a program that only imports antifreeze is as it was.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

_forks = bytearray()
"""One byte for each."""


def count() -> int:
    """How many times this process has forked since `start_counting`."""
    return len(_forks)


@functools.cache
def start_counting() -> None:
    """Count forks from now on.

    What is called before a fork is C code: in a Python function a signal handler may raise, and Python drops what is
    raised there.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=functools.partial(_forks.append, 0))


@functools.cache
def call_in_children(action: Callable[[], None]) -> None:
    """Call this function in every child that is forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
