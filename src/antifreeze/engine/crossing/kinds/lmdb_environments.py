"""LMDB environments: opened again for reading, with the settings that can be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, NamedFile, Reduced, named_file

# How many databases with names the original may have cannot be asked for; room for one costs some bytes.
MOST_DATABASES = 128


def plan(handle: Any, luggage: Luggage) -> Reduced:
    """Its path and settings; a closed one says so itself."""
    flags, facts = handle.flags(), handle.info()
    options = {name: flags[name] for name in ("subdir", "lock", "readahead", "meminit")}
    options.update(map_size=facts["map_size"], max_readers=facts["max_readers"], max_dbs=MOST_DATABASES)
    path = handle.path()
    file = Path(path, "data.mdb") if flags["subdir"] else Path(path)
    return open_again, (str(Path(path).absolute()), named_file(str(file)), options)


def open_again(path: str, file: NamedFile, options: dict[str, Any], *, readonly: bool = True) -> Any:
    """The other side of `plan`."""
    file.check()
    return lmdb.open(path, readonly=readonly, create=False, **options)


def reopen(environment: Any) -> Any:
    """In a forked process: the same for this one, which may write if its original may."""
    flags = environment.flags()
    _, (path, file, options) = plan(environment, Luggage(0))
    options.update((name, flags[name]) for name in ("sync", "metasync", "map_async", "writemap"))
    environment.close()  # LMDB refuses to open one twice in a process
    return open_again(path, file, options, readonly=flags["readonly"])


def close(handle: Any) -> None:
    """Gives its place in the table of readers back, which nobody else would for a process that has ended."""
    handle.close()


KINDS: dict[type, Kind] = {lmdb.Environment: Kind(plan, close=close)}
