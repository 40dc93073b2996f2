"""Libraries whose thread pools are lost in a fork: a forked worker that calls them waits forever.

Each test is about this process, now, and costs next to nothing where the library is not loaded.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from antifreeze import machine
from antifreeze.engine.worker import mends

_NO = ("", "0", "f", "false", "n", "no", "off")


class Library(NamedTuple):
    """A library and what is so about it now."""

    package: str
    why: str
    """What a fork does."""
    mend: mends.Mend | None = None
    """What makes it usable again in a forked worker; None: nothing does."""


def deadly_libraries() -> list[Library]:
    """Those that no forked worker of this process can use."""
    return [library for library, has_pool in _LIBRARIES if library.package in sys.modules and has_pool()]


def _polars_has_started() -> bool:
    """Its pool is started by the first query; polars itself gives its threads these names."""
    return any(re.match(r"polars-\d|async-executor", name) for name in machine.thread_names())


def _tokenizers_are_forced() -> bool:
    """They notice a fork and do without threads, unless this is set; whether their pool has started cannot be seen."""
    return os.environ.get("TOKENIZERS_PARALLELISM", "").lower() not in _NO


_LIBRARIES: Iterable[tuple[Library, Callable[[], bool]]] = (
    (Library("polars", "its thread pool has been started, and does not survive a fork"), _polars_has_started),
    (
        Library(
            "tokenizers",
            "TOKENIZERS_PARALLELISM makes it use threads that do not survive a fork",
            mends.do_without_threads,
        ),
        _tokenizers_are_forced,
    ),
)
