"""What is live within a loader's reach and does not take a fork well: files, connections, locks, threads, generators.

What our engine would not fork with is found by the engine's own table (`engine/backends/hazards`); the rest is shared, or
lost, in ways that do harm to some programs. Objects are read by the methods of their own libraries, never the user's.
"""

from __future__ import annotations

import io
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from antifreeze.doctor.facts import Held
from antifreeze.engine.backends.hazards.held import held_by_type
from antifreeze.engine.backends.hazards.held import loaded as loaded_type
from antifreeze.engine.backends.hazards.libraries import deadly_libraries
from antifreeze.engine.crossing.reading import attributes_of, is_subclass, module_of, name_of, package_of
from antifreeze.probes.objects.descriptors import kept_descriptors
from antifreeze.probes.objects.reach import Reach

MOST_HELD = 40


class HeldFacts(NamedTuple):
    """What is to be said of one object."""

    what: str
    mode: str | None = None
    shares_position: bool = False


class _Sort(NamedTuple):
    kind: str
    tell: Callable[[Any], HeldFacts | None]
    """None: it is not live, or does no harm."""
    is_users_only: bool = False
    """Whether it is of interest only where an object of the user's holds it: libraries know what they do with theirs."""


class _Known(NamedTuple):
    """What can be said about objects of one class."""

    type: type
    """Kept, so that its number comes to stand for no other class."""
    deadly: list[Any]
    sort: _Sort | None


def find_held(reach: Reach) -> tuple[Held, ...]:
    """All of it, the nearest first; what is part of something that is told is not told again."""
    found: list[Held] = []
    inside: tuple[str, ...] = ()
    libraries = {library.package: library.why for library in deadly_libraries()}
    known: dict[int, _Known] = {}
    for path, thing in reach:
        if len(found) == MOST_HELD:
            break
        if path.startswith(inside):
            continue
        kind = type(thing)
        if id(kind) not in known:
            deadly = [each for each in held_by_type(kind) if each.kind != "connection"]
            known[id(kind)] = _Known(kind, deadly, _sort_of(kind))
        held = _held(path, thing, known[id(kind)], reach)
        if held is None and (why := libraries.pop(package_of(thing), None)) is not None:
            what = f"part of {package_of(thing)}"
            held = Held(path=path, kind="native", what=what, why=why, is_deadly=True, place=reach.place(path))
        if held is not None:
            found.append(held)
            inside = (*inside, f"{path}.", f"{path}[")
        else:
            found += kept_descriptors(path, thing)
    return tuple(found)


def _held(path: str, thing: Any, known: _Known, reach: Reach) -> Held | None:
    try:
        deadly = next((each for each in known.deadly if each.is_live(thing)), None)
        told = known.sort.tell(thing) if known.sort is not None else None
    except Exception:  # noqa: BLE001 - half-made, or closed meanwhile: the others are to be told all the same
        return None
    if deadly is not None:
        told = told or HeldFacts(deadly.what)
    elif told is None or known.sort is None or (known.sort.is_users_only and not reach.is_held_by_the_user(path)):
        return None
    return Held(
        path=path,
        kind=deadly.kind if deadly is not None else known.sort.kind if known.sort is not None else "",
        what=told.what,
        mode=told.mode,
        shares_position=told.shares_position,
        place=reach.place(path),
        is_deadly=deadly is not None,
        why=deadly.why if deadly is not None else "",
    )


def _sort_of(kind: type) -> _Sort | None:
    for name, sort in _SORTS.items():
        known = loaded_type(name)
        if known is not None and is_subclass(kind, known):
            return sort
    return None


def _dotted(thing: Any) -> str:
    return f"{module_of(thing)}.{name_of(type(thing))}"


# --- files and archives

# The attribute that leads to what lies below, down to the file.
_BELOW = {
    "_io:TextIOWrapper": "buffer",
    "_io:BufferedReader": "raw",
    "_io:BufferedWriter": "raw",
    "_io:BufferedRandom": "raw",
    "tempfile:_TemporaryFileWrapper": "file",
    "gzip:GzipFile": "fileobj",
    "bz2:BZ2File": "_fp",
    "lzma:LZMAFile": "_fp",
    "zipfile:ZipFile": "fp",
    "tarfile:TarFile": "fileobj",
    "numpy.lib.npyio:NpzFile": "zip",
}
_ARCHIVES = {"zipfile:ZipFile": "zip", "tarfile:TarFile": "tar", "numpy.lib.npyio:NpzFile": "npz"}


def _file_below(thing: Any) -> io.FileIO | None:
    """The open file of the system's at the bottom, if that is what is there."""
    for _ in range(len(_BELOW)):
        if type(thing) is io.FileIO:
            return None if thing.closed else thing
        kind = type(thing)
        step = next((step for name, step in _BELOW.items() if (t := loaded_type(name)) and is_subclass(kind, t)), None)
        if step is None:
            return None
        thing = attributes_of(thing).get(step)
    return None


def _tell_file(thing: Any) -> HeldFacts | None:
    file = _file_below(thing)
    if file is None or file.fileno() <= 2:
        return None
    said = attributes_of(thing).get("mode")  # of text, what `open` was told
    mode = said if isinstance(said, str) else file.mode
    return HeldFacts(f"an open file {file.name!r} (mode {mode!r})", mode, _shares_position(file))


def _tell_archive(thing: Any) -> HeldFacts | None:
    """A file over memory is not shared with other processes."""
    file = _file_below(thing)
    if file is None:
        return None
    format_ = next(word for name, word in _ARCHIVES.items() if (t := loaded_type(name)) and is_subclass(type(thing), t))
    return HeldFacts(f"an open {format_} archive {file.name!r}", file.mode, _shares_position(file))


def _shares_position(file: io.FileIO) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


# --- databases


def _tell_hdf5(thing: Any) -> HeldFacts | None:
    h5py = sys.modules["h5py"]
    number = attributes_of(thing).get("_id")
    if not number:
        return None
    file = h5py.h5i.get_file_id(number)
    driver = file.get_access_plist().get_driver()
    through = driver == h5py.h5fd.fileobj_driver
    mode = "r" if file.get_intent() in (h5py.h5f.ACC_RDONLY, h5py.h5f.ACC_SWMR_READ) else "r+"
    name = h5py.h5f.get_name(number).decode(errors="replace")
    what = f"an open HDF5 file {name!r} (mode {mode!r}{', through a Python file object' if through else ''})"
    return HeldFacts(what, mode, through)


def _tell_lmdb(thing: Any) -> HeldFacts | None:
    environment = loaded_type("lmdb:Environment")
    try:
        path, flags = environment.path(thing), environment.flags(thing)
    except Exception:  # noqa: BLE001 - it is closed, and whatever LMDB says to that
        return None
    lock = "with a lock table" if flags["lock"] else "without a lock table"
    return HeldFacts(f"an open LMDB environment {path!r} ({lock})", "r" if flags["readonly"] else "r+")


def _tell_sqlite(thing: Any) -> HeldFacts | None:
    sqlite3 = sys.modules["sqlite3"]
    try:
        sqlite3.Connection.total_changes.__get__(thing)
    except sqlite3.ProgrammingError:  # it is closed
        return None
    return HeldFacts("an open sqlite connection")


# --- connections


def _tell_socket(thing: Any) -> HeldFacts | None:
    kind = loaded_type("_socket:socket")
    if kind.fileno(thing) < 0:
        return None
    try:
        peer = kind.getpeername(thing)
    except OSError:
        return HeldFacts("an open socket")
    return HeldFacts(f"an open socket to {peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "an open socket")


def _tell_connection(thing: Any) -> HeldFacts | None:
    return HeldFacts(f"a {_dotted(thing)}") if attributes_of(thing).get("_handle") is not None else None


# --- locks


def _tell_lock(thing: Any) -> HeldFacts | None:
    kind = "RLock" if is_subclass(type(thing), loaded_type("_thread:RLock")) else "Lock"
    is_held = loaded_type(f"_thread:{'RLock' if kind == 'RLock' else 'LockType'}").__repr__(thing).startswith("<locked")
    return HeldFacts(f"a threading.{kind}{' that is held now' if is_held else ''}")


def _tell_process_lock(thing: Any) -> HeldFacts | None:
    """Reads its value, which waits for nothing."""
    inner = attributes_of(thing).get("_semlock")
    if inner is None:
        return None
    is_held = loaded_type("_multiprocessing:SemLock")._is_zero(inner)
    return HeldFacts(f"a multiprocessing.{name_of(type(thing))}{' that is held now' if is_held else ''}")


# --- generators and iterators


def _tell_randomness(thing: Any) -> HeldFacts | None:
    """The global ones are seeded by torch in every worker; one of the system's has no state."""
    system = loaded_type("random:SystemRandom")
    if system is not None and is_subclass(type(thing), system):
        return None
    of_all = (
        loaded_type("random:_inst"),
        loaded_type("numpy.random.mtrand:_rand"),
        loaded_type("torch:default_generator"),
    )
    return None if any(thing is each for each in of_all) else HeldFacts(f"a {_dotted(thing)}")


def _tell_generator(thing: Any) -> HeldFacts:
    return HeldFacts(f"a generator of {thing.__qualname__}, half-way through its code")


def _tell_iterator(thing: Any) -> HeldFacts:
    return HeldFacts(f"a {name_of(type(thing))}, half-way through what it goes over")


def _tell_segment(thing: Any) -> HeldFacts | None:
    found = attributes_of(thing)
    if found.get("_buf") is None:
        return None
    return HeldFacts(f"shared memory {found.get('_name')!r} of {found.get('_size', 0) >> 20} MB")


def _iterators() -> Iterator[str]:
    for kind in (map, filter, zip, enumerate, reversed):
        yield f"builtins:{kind.__name__}"
    for name, kind in vars(itertools).items():
        if isinstance(kind, type) and name != "count":  # which numbers things, and has no end to come to
            yield f"itertools:{name}"


_FILE = _Sort("file", _tell_file)
_ARCHIVE = _Sort("archive", _tell_archive)
_LOCK = _Sort("lock", _tell_lock, is_users_only=True)
_RANDOMNESS = _Sort("generator", _tell_randomness)
_GENERATOR = _Sort("iterator", _tell_generator)
_ITERATOR = _Sort("iterator", _tell_iterator, is_users_only=True)
_SORTS: dict[str, _Sort] = {
    **dict.fromkeys([*_BELOW, "_io:FileIO"], _FILE),
    **dict.fromkeys(_ARCHIVES, _ARCHIVE),
    "h5py._hl.base:HLObject": _Sort("hdf5", _tell_hdf5),
    "lmdb:Environment": _Sort("lmdb", _tell_lmdb),
    "sqlite3:Connection": _Sort("sqlite", _tell_sqlite),
    "_socket:socket": _Sort("socket", _tell_socket),
    "multiprocessing.connection:_ConnectionBase": _Sort("socket", _tell_connection),
    "_thread:LockType": _LOCK,
    "_thread:RLock": _LOCK,
    "multiprocessing.synchronize:SemLock": _Sort("process-lock", _tell_process_lock, is_users_only=True),
    "random:Random": _RANDOMNESS,
    "numpy.random:Generator": _RANDOMNESS,
    "numpy.random:RandomState": _RANDOMNESS,
    "torch:Generator": _RANDOMNESS,
    "types:GeneratorType": _GENERATOR,
    "types:CoroutineType": _GENERATOR,
    "types:AsyncGeneratorType": _GENERATOR,
    **dict.fromkeys(_iterators(), _ITERATOR),
    "multiprocessing.shared_memory:SharedMemory": _Sort("shared-memory", _tell_segment),
}
