"""Everything live that a forked worker shares or loses is told, with the line that put it there; and nothing else is."""

import asyncio
import bz2
import contextlib
import ctypes
import gzip
import http.client
import io
import itertools
import lzma
import multiprocessing
import os
import random
import socket
import sqlite3
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import resource_tracker, shared_memory, sharedctypes
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import torch

from antifreeze.doctor.facts import Held
from antifreeze.probes.objects.held import find_held
from antifreeze.probes.objects.reach import Reach

FORK = multiprocessing.get_context("fork")
PATIENCE_S = 10


class Holder:
    def __init__(self, thing: Any) -> None:
        self.thing = thing  # the line that puts it there


def held_in(thing: Any) -> list[Held]:
    return list(find_held(Reach({"dataset": Holder(thing)}, patience_s=PATIENCE_S)))


def a_file(path: Path) -> Any:
    path.write_bytes(b"0123456789")
    return path.open("rb")


def a_text_file(path: Path) -> Any:
    path.write_text("a\nb\n")
    return path.open()


def a_file_to_write(path: Path) -> Any:
    return path.open("wb")


def a_raw_file(path: Path) -> Any:
    path.write_bytes(b"0123456789")
    return path.open("rb", buffering=0)


def a_temporary_file(path: Path) -> Any:
    return tempfile.NamedTemporaryFile(dir=path.parent)


def compressed(module: Any) -> Callable[[Path], Any]:
    def make(path: Path) -> Any:
        with module.open(path, "wb") as file:
            file.write(b"0123456789")
        return module.open(path, "rb")

    return make


def a_zip(path: Path) -> Any:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    return zipfile.ZipFile(path)


def an_npz(path: Path) -> Any:
    np.savez(path.with_suffix(".npz"), a=np.arange(3))
    return np.load(path.with_suffix(".npz"))


def a_tar(path: Path) -> Any:
    with tarfile.open(path, "w"):
        pass
    return tarfile.open(path)


def an_hdf5_file(path: Path) -> Any:
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(3)
    return h5py.File(path, "r")


def an_hdf5_dataset(path: Path) -> Any:
    return an_hdf5_file(path)["a"]


def an_lmdb(path: Path) -> Any:
    return lmdb.open(str(path), readonly=False, lock=True)


def an_lmdb_without_locks(path: Path) -> Any:
    an_lmdb(path).close()
    return lmdb.open(str(path), readonly=True, lock=False)


@pytest.mark.parametrize(
    ("make", "kind", "what", "mode", "shares_position", "is_deadly"),
    [
        (a_file, "file", "an open file '{path}' (mode 'rb')", "rb", True, False),
        (a_raw_file, "file", "an open file '{path}' (mode 'rb')", "rb", True, False),
        (a_text_file, "file", "an open file '{path}' (mode 'r')", "r", True, False),
        (a_file_to_write, "file", "an open file '{path}' (mode 'wb')", "wb", True, False),
        (a_temporary_file, "file", "an open file", "rb+", True, False),
        (compressed(gzip), "file", "an open file '{path}' (mode 'rb')", "rb", True, False),
        (compressed(bz2), "file", "an open file '{path}' (mode 'rb')", "rb", True, False),
        (compressed(lzma), "file", "an open file '{path}' (mode 'rb')", "rb", True, False),
        (a_zip, "archive", "an open zip archive '{path}'", "rb", True, False),
        (an_npz, "archive", "an open npz archive '{path}.npz'", "rb", True, False),
        (a_tar, "archive", "an open tar archive '{path}'", "rb", True, False),
        (an_hdf5_file, "hdf5", "an open HDF5 file '{path}' (mode 'r')", "r", False, False),
        (an_hdf5_dataset, "hdf5", "an open HDF5 file '{path}' (mode 'r')", "r", False, False),
        (an_lmdb, "lmdb", "an open LMDB environment '{path}' (with a lock table)", "r+", False, True),
        (an_lmdb_without_locks, "lmdb", "an open LMDB environment '{path}' (without a lock table)", "r", False, False),
    ],
)
def test_what_is_open_is_told_once_with_its_name_and_mode(
    make: Callable[[Path], Any],
    kind: str,
    what: str,
    mode: str,
    shares_position: bool,
    is_deadly: bool,
    tmp_path: Path,
) -> None:
    path = tmp_path / "opened"
    thing = make(path)
    try:
        (held,) = held_in(thing)
        assert held.path == "dataset.thing"
        assert (held.kind, held.mode, held.shares_position, held.is_deadly) == (kind, mode, shares_position, is_deadly)
        assert held.what.startswith(what.format(path=path))
        assert held.place is not None
        assert (held.place.text, held.place.function) == (
            "self.thing = thing  # the line that puts it there",
            "__init__",
        )
    finally:
        (thing.file if isinstance(thing, h5py.Dataset) else thing).close()
    assert not held_in(thing)


class ByNumber:
    """Holds the numbers of descriptors, and numbers that are none."""

    def __init__(self, file: Any) -> None:
        self.moved = file.fileno()
        self.read_by_place = file.fileno()
        self.count = file.fileno()

    def __getitem__(self, index: int) -> bytes:
        os.lseek(self.moved, index, os.SEEK_SET)
        return os.read(self.moved, self.count) + os.pread(self.read_by_place, 4, index)


def test_a_descriptor_is_told_if_its_class_reads_it_by_position_and_other_numbers_are_not(tmp_path: Path) -> None:
    with a_file(tmp_path / "a") as file:
        found = find_held(Reach({"dataset": ByNumber(file)}, patience_s=PATIENCE_S))
        assert [(held.path, held.kind, held.shares_position) for held in found] == [("dataset.moved", "file", True)]
        assert found[0].what == f"descriptor {file.fileno()} of the open file '{tmp_path / 'a'}'"
        assert found[0].place is not None and found[0].place.text == "self.moved = file.fileno()"
        held = ByNumber(file)
    assert find_held(Reach({"dataset": held}, patience_s=PATIENCE_S)) == ()


def test_hdf5_over_a_python_file_shares_its_position(tmp_path: Path) -> None:
    an_hdf5_file(tmp_path / "a").close()
    with (tmp_path / "a").open("rb") as below, h5py.File(below, "r") as file:
        (held,) = held_in(file)
        assert (held.kind, held.shares_position) == ("hdf5", True)
        assert "through a Python file object" in held.what


def test_an_archive_in_memory_is_nobody_elses() -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("a", "b")
    with zipfile.ZipFile(memory) as archive:
        assert not held_in(archive)


def test_an_sqlite_connection_is_told_until_it_is_closed(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a")
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    (held,) = held_in(connection)
    assert (held.kind, held.what) == ("sqlite", "an open sqlite connection")
    assert not asked
    connection.close()
    assert not held_in(connection)


@contextlib.contextmanager
def connected() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        yield sock


def test_a_socket_is_told_where_the_user_holds_it() -> None:
    connection = http.client.HTTPConnection("localhost")
    with connected() as connection.sock:
        (held,) = held_in(connection)
        assert (held.path, held.kind, held.is_deadly) == ("dataset.thing.sock", "socket", True)
        assert held.what.startswith("an open socket to 127.0.0.1:")
        assert held.place is not None and held.place.text.startswith("self.thing = thing")


def test_a_live_session_of_requests_is_told() -> None:
    import requests

    class Server(threading.Thread):
        def run(self) -> None:
            with listening:
                sock, _ = listening.accept()
                with sock:
                    sock.recv(10_000)
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    sock.recv(10_000)  # until the other side is gone

    listening = socket.create_server(("127.0.0.1", 0))
    server = Server()
    server.start()
    with requests.Session() as session:
        session.trust_env = False
        session.get(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout=PATIENCE_S)
        (held,) = held_in(session)
        assert held.kind == "socket" and held.path.startswith("dataset.thing.adapters")
    server.join(PATIENCE_S)


@contextlib.contextmanager
def used(pool: Any) -> Iterator[Any]:
    with pool:
        pool.submit(int).result(PATIENCE_S)
        yield pool


@contextlib.contextmanager
def running_thread() -> Iterator[threading.Thread]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(PATIENCE_S,))
    thread.start()
    try:
        yield thread
    finally:
        end.set()
        thread.join(PATIENCE_S)


@contextlib.contextmanager
def open_loop() -> Iterator[Any]:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        yield loop


@pytest.mark.parametrize(
    ("make", "kind", "what"),
    [
        (lambda: used(ThreadPoolExecutor(1)), "executor", "a thread pool in use"),
        (lambda: used(ProcessPoolExecutor(1, mp_context=FORK)), "executor", "a process pool"),
        (lambda: ThreadPool(1), "executor", "a running pool"),
        (running_thread, "thread", "a running thread"),
        (open_loop, "loop", "an event loop"),
    ],
)
def test_what_needs_threads_is_deadly_and_its_parts_are_not_told(make: Callable[[], Any], kind: str, what: str) -> None:
    with make() as thing:
        (held,) = held_in(thing)
        assert (held.path, held.kind, held.what, held.is_deadly) == ("dataset.thing", kind, what, True)
        assert held.why


def test_a_lock_is_told_and_deadly_only_while_it_is_held() -> None:
    lock = threading.Lock()
    (held,) = held_in(lock)
    assert (held.kind, held.what, held.is_deadly) == ("lock", "a threading.Lock", False)
    with lock:
        (held,) = held_in(lock)
    assert (held.what, held.is_deadly) == ("a threading.Lock that is held now", True)


def test_locks_inside_objects_of_libraries_are_not_told() -> None:
    assert not held_in([threading.Event(), threading.Condition(), ThreadPoolExecutor(1)])


def test_a_lock_of_multiprocessing_is_told() -> None:
    lock = FORK.Lock()
    (held,) = held_in(lock)
    assert (held.kind, held.what, held.is_deadly) == ("process-lock", "a multiprocessing.Lock", False)
    with lock:
        (held,) = held_in(lock)
        assert held.what.endswith("that is held now")
    (held,) = held_in(sharedctypes.synchronized(ctypes.c_int(1), lock=FORK.RLock()))
    assert (held.path, held.kind) == ("dataset.thing._lock", "process-lock")
    assert not held_in(FORK.Event())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: np.random.default_rng(0), "Generator"),
        (lambda: np.random.RandomState(0), "RandomState"),
        (lambda: random.Random(0), "random.Random"),
        (torch.Generator, "Generator"),
    ],
)
def test_generators_of_random_numbers_are_told(make: Callable[[], Any], what: str) -> None:
    (held,) = held_in(make())
    assert held.kind == "generator" and held.what.endswith(what)


def test_global_generators_are_not_told() -> None:
    assert not held_in([random._inst, np.random.mtrand._rand, torch.default_generator, random.SystemRandom()])  # type: ignore[attr-defined]


def lines() -> Iterator[str]:
    yield "a"


def test_generators_and_iterators_are_told() -> None:
    (held,) = held_in(lines())
    assert (held.kind, held.what) == ("iterator", "a generator of lines, half-way through its code")
    (held,) = held_in(itertools.islice([1], 1))
    assert held.kind == "iterator"


def test_shared_memory_is_told_while_it_is_mapped() -> None:
    segment = shared_memory.SharedMemory(create=True, size=3 << 20)
    try:
        (held,) = held_in(segment)
        assert held.kind == "shared-memory" and "3 MB" in held.what
    finally:
        segment.close()
        segment.unlink()
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # a process of Python's own
    assert not held_in(segment)


client = threading.Lock()


def collate(samples: list[Any]) -> Any:
    with client:
        return samples


def test_what_a_collate_function_finds_among_its_globals_is_told_with_its_line() -> None:
    (held,) = find_held(Reach({"dataset": None, "collate_fn": collate}, patience_s=PATIENCE_S))
    assert held.path == f"{__name__}.client" and held.kind == "lock"
    assert held.place is not None and held.place.text == "client = threading.Lock()"


def test_what_a_closure_holds_is_told_with_its_line() -> None:
    rng = random.Random(0)

    def collate_with_it(samples: list[Any]) -> Any:
        return rng.choice(samples)

    (held,) = find_held(Reach({"collate_fn": collate_with_it}, patience_s=PATIENCE_S))
    assert held.path == "collate_fn.<rng>"
    assert held.place is not None and held.place.text == "rng = random.Random(0)"


def test_plain_data_holds_nothing() -> None:
    assert not held_in({"a": [1, "b", np.arange(3), torch.arange(3), Path("/")], "b": {"c": (None, 1.0)}})
