"""All kinds: ours, each imported only when a handle of it can exist, and those that users add."""

from __future__ import annotations

import copyreg
import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from antifreeze.engine.crossing.kinds.base import Kind, Luggage
from antifreeze.errors import ConfigError

# By the module whose handles a file of ours is for. If that has not been imported, there are no handles of it.
_FILES = {
    "io": "files",
    "gzip": "compressed",
    "bz2": "compressed_bz2",
    "lzma": "compressed_lzma",
    "zipfile": "archives",
    "tarfile": "archives",
    "tempfile": "temporary",
    "mmap": "mappings",
    "numpy": "arrays",
    "h5py": "hdf5",
    "sqlite3": "sqlite",
    "lmdb": "lmdb_environments",
    "http.client": "connections",
    "threading": "threads",
    "concurrent.futures": "executors",
    "multiprocessing.pool": "executors",
    "types": "iterators",
}
_users: dict[type, Kind] = {}
# By these a class says itself how it is to be pickled.
_WAYS_TO_PICKLE = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__", "__setstate__")

Handle = TypeVar("Handle")


def register_kind(
    handle_type: type[Handle],
    plan: Callable[[Handle], tuple[Callable[..., Handle], tuple[Any, ...]]],
    *,
    close: Callable[[Handle], object] | None = None,
) -> None:
    """Say how handles of a type are opened again in a worker that did not inherit them.

    `plan(handle)` is called in the trainer and returns a function and its arguments; the function is called with them in
    the worker, and what it returns takes the place of the handle. It must not change what the handle stands for.

    A handle is opened in every worker. `close` is called with the copy when its worker leaves.
    """
    if not isinstance(handle_type, type):
        raise ConfigError(f"register_kind: {handle_type!r} is not a class")

    def checked(handle: Handle, luggage: Luggage) -> Any:
        reduced: Any = plan(handle)
        if not (
            isinstance(reduced, tuple) and len(reduced) == 2 and callable(reduced[0]) and type(reduced[1]) is tuple
        ):
            raise ConfigError(
                f"the plan for {handle_type.__qualname__} must be (function, arguments), not {reduced!r:.80}",
                try_="for a function of one argument: return open_it, (path,)",
            )
        return reduced

    _users[handle_type] = Kind(checked, close=close)


def unregister_kind(handle_type: type) -> None:
    """Take back what `register_kind` did for this type."""
    _users.pop(handle_type, None)


class Kinds(dict[type, Kind | None]):
    """How handles of a type are opened again; None if they are not handles, or see to it themselves.

    As all kinds are at one moment; a dict, for a pickler asks for every object.
    """

    def __init__(self) -> None:
        super().__init__(_users)
        self._known: dict[type, Kind] = {}
        for module, file in _FILES.items():
            if module in sys.modules:
                self._known.update(importlib.import_module(f"{__package__}.{file}").KINDS)
        self._known.update(_users)

    def __missing__(self, handle_type: type) -> Kind | None:
        kind = self[handle_type] = self._look_for(handle_type)
        return kind

    def _look_for(self, handle_type: type) -> Kind | None:
        if handle_type in copyreg.dispatch_table:  # somebody has said how
            return None
        for base in handle_type.__mro__:
            kind = self._known.get(base)
            if kind is not None:
                return kind if _pickles_like(handle_type, base) else None
        return None


def _pickles_like(handle_type: type, base: type) -> bool:
    return all(getattr(handle_type, way, None) is getattr(base, way, None) for way in _WAYS_TO_PICKLE)
