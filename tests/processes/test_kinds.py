"""Live handles in workers that did not inherit them: right data from four at once, and files as they were before."""

# ruff: noqa: SIM115 - a dataset holds its handles for as long as it lives

import gzip
import io
import mmap
import multiprocessing
import os
import queue
import signal
import sqlite3
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import torch

from antifreeze import CannotCross, register_kind
from antifreeze.engine.crossing.kinds.registry import unregister_kind
from crossing.test_kinds import listing
from drop_in.harness import our_way
from processes import datasets
from processes.datasets import Numbers
from user_scripts import RunScript

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 40
WIDTH = 64
"""Bytes of a record."""

scale = 1
"""Of the program's state; the trainer sets another value."""


def record(index: int) -> bytes:
    return f"{index:>{WIDTH - 1}}\n".encode()


CONTENT = b"".join(map(record, range(LENGTH)))


def load(make: Callable[..., Any], dataset: Any, **options: Any) -> list[Any]:
    return [batch[0] for batch in make(dataset, num_workers=4, collate_fn=datasets.as_is, **options)]


# --- what survives a fork: opened once, in the stem


class Shelf(Numbers):
    """Reads the same record through every handle that it holds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LENGTH)
        path = folder / "records"
        self.raw = path.open("rb", buffering=0)
        self.buffered = path.open("rb")
        self.text = path.open(encoding="ascii")
        self.zipped = gzip.open(folder / "records.gz")
        self.archive = zipfile.ZipFile(folder / "records.zip")
        self.tar = tarfile.open(folder / "records.tar")
        self.npz = np.load(folder / "records.npz")
        self.mapped = mmap.mmap(self.raw.fileno(), 0, access=mmap.ACCESS_READ)
        self.memmap = np.memmap(path, np.uint8, "r").reshape(-1, WIDTH)
        self.tensor = torch.from_file(str(path), shared=False, size=len(CONTENT), dtype=torch.uint8)
        self.temporary = tempfile.NamedTemporaryFile(dir=folder)
        self.temporary.write(CONTENT)
        self.lock = threading.Lock()
        self.lock.acquire()  # nobody in a worker will ever let go of it
        self.queue: queue.Queue[int] = queue.Queue()

    def __getitem__(self, index: int) -> tuple[int, set[bytes]]:
        place = index * WIDTH
        seekable = [self.raw, self.buffered, self.zipped, self.temporary]
        with self.lock:
            self.queue.put(index)
            found = [(file.seek(place), file.read(WIDTH))[1] for file in seekable]
            self.text.seek(place)
            found.append(self.text.readline().encode())
            member = self.tar.extractfile("records")
            assert member is not None
            with self.archive.open("records") as unzipped:
                for stream in (unzipped, member):
                    stream.seek(place)
                    found.append(stream.read(WIDTH))
            found.append(self.npz["records"][place : place + WIDTH].tobytes())
            found.append(self.mapped[place : place + WIDTH])
            found.append(self.memmap[index].tobytes())
            found.append(bytes(self.tensor[place : place + WIDTH].tolist()))
        assert len(found) == 11
        return self.queue.get(timeout=1), set(found)

    def close(self) -> None:
        handles = (self.raw, self.buffered, self.text, self.zipped, self.archive, self.tar, self.npz, self.temporary)
        for handle in (*handles, self.mapped):
            handle.close()
        del self.memmap


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    path = tmp_path / "records"
    path.write_bytes(CONTENT)
    (tmp_path / "records.gz").write_bytes(gzip.compress(CONTENT))
    with zipfile.ZipFile(tmp_path / "records.zip", "w") as archive:
        archive.write(path, "records")
    with tarfile.open(tmp_path / "records.tar", "w") as tar:
        tar.add(path, "records")
    np.savez(tmp_path / "records.npz", records=np.frombuffer(CONTENT, np.uint8))
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.close()


def test_four_workers_read_through_files_and_archives_of_the_dataset(shelf: Shelf, tmp_path: Path) -> None:
    shelf.temporary.flush()
    before = listing(tmp_path)
    found = load(our_way("clean").make, shelf)
    assert found == [(index, {record(index)}) for index in range(LENGTH)]
    assert listing(tmp_path) == before


# --- what does not: opened by every worker


class Client:
    """A handle of a user's own, that knows which process has opened it, and tells when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.connection = (letter for letter in "abc")

    def close(self) -> None:
        (self.folder / f"closed-{self.pid}-{os.getpid()}").touch()


@pytest.fixture
def client_kind() -> Iterator[None]:
    register_kind(Client, lambda client: (Client, (client.folder,)), close=Client.close)
    yield
    unregister_kind(Client)


class Tables(Numbers):
    """Reads the same number through every connection that it holds."""

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(LENGTH)
        self.file = h5py.File(folder / "a.h5", "r")
        self.numbers = self.file["numbers"]
        self.database = sqlite3.connect(folder / "a.db")
        self.environment = lmdb.open(str(folder / "lmdb"), readonly=True)
        self.client = Client(log)
        self.text = (folder / "records").open(encoding="ascii")
        self.large = np.arange(100_000)

    def __getitem__(self, index: int) -> Any:
        ((by_sql,),) = self.database.execute("SELECT number FROM t WHERE number = ?", (index,)).fetchall()
        with self.environment.begin() as transaction:
            by_key = int(transaction.get(b"%d" % index))
        self.text.seek(index * WIDTH)
        found = {int(self.numbers[index]), by_sql, by_key, int(self.text.readline()), int(self.large[index])}
        assert self.numbers.file == self.file
        return found, scale, self.client.pid == os.getpid()

    def close(self) -> None:
        for handle in (self.file, self.database, self.environment, self.text):
            handle.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "records").write_bytes(CONTENT)
    with h5py.File(folder / "a.h5", "w") as file:
        file["numbers"] = np.arange(LENGTH)
    connection = sqlite3.connect(folder / "a.db")
    with connection:
        connection.execute("CREATE TABLE t (number INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(LENGTH)])
    connection.close()
    with lmdb.open(str(folder / "lmdb"), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for index in range(LENGTH):
            transaction.put(b"%d" % index, b"%d" % index)
    return folder


@pytest.fixture
def tables(folder: Path, tmp_path: Path, client_kind: None) -> Iterator[Tables]:
    tables = Tables(folder, tmp_path)
    yield tables
    tables.close()


def test_four_workers_read_through_databases_that_each_opens_for_itself(
    tables: Tables, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.scale", 3)  # a spawned worker imports this module, as with torch
    before = listing(folder)
    pids: set[int] = set()
    batches = iter(our_way("clean").make(tables, num_workers=4, collate_fn=datasets.as_is))
    found = []
    for batch in batches:
        pids.update(worker.pid for worker in batches._workers)
        found += batch
    assert found == [({index}, 1, True) for index in range(LENGTH)]
    assert {path.name for path in tmp_path.glob("closed-*")} == {f"closed-{pid}-{pid}" for pid in pids}
    assert listing(folder) == before


def test_a_replacement_opens_them_again(tables: Tables) -> None:
    batches = iter(our_way("clean").make(tables, num_workers=2, collate_fn=datasets.as_is))
    found = [next(batches)[0]]
    os.kill(batches._workers[1].pid, signal.SIGKILL)
    found += [batch[0] for batch in batches]
    assert found == [({index}, 1, True) for index in range(LENGTH)]


class Moody:
    """A handle that cannot be opened by anybody else."""

    def __init__(self) -> None:
        self.connection = (letter for letter in "abc")


def refuse(reason: str) -> Any:
    raise ConnectionRefusedError(reason)


class Holding(Numbers):
    """Holds something, and does nothing with it."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


def test_what_a_worker_says_when_it_cannot_open_a_handle_is_raised() -> None:
    register_kind(Moody, lambda handle: (refuse, ("out of order",)))
    try:
        with pytest.raises(ConnectionRefusedError, match=r"(?s)while the dataset was being rebuilt.*out of order"):
            list(our_way("clean").make(Holding(Moody())))
    finally:
        unregister_kind(Moody)


# --- what writes, and what only a fork can carry


@pytest.mark.parametrize("mode", ["w", "a", "r+"])
def test_a_handle_that_writes_is_refused_with_its_path_in_the_dataset(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "log"
    path.write_text("first\n")
    with path.open(mode, encoding="ascii") as log:
        before = listing(tmp_path)
        with pytest.raises(CannotCross, match=r"dataset\.held\['logs'\]\[0\]") as caught:
            list(our_way("clean").make(Holding({"logs": [log]})))
        assert listing(tmp_path) == before
    assert f"the file '{path}' is open for writing (mode '{mode}')" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (letter for letter in "abc"),
        multiprocessing.Lock,
        lambda: mmap.mmap(-1, 10),
        lambda: io.StringIO("text"),
    ],
    ids=["generator", "mp.Lock", "mmap", "StringIO"],
)
def test_what_only_a_fork_can_carry_is_carried_by_a_fork(
    usage: Callable[[], list[dict[str, Any]]], make: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    list(our_way("clean").make(Holding(make())))
    assert usage()[0]["stem"] == ("clean" if "StringIO" in request.node.name else "grown")


# --- a kind of the user's own, in a script without a main guard

SCRIPT = """
import os, sys
import antifreeze
from antifreeze import DataLoader

class Reader:
    def __init__(self, path):
        self.path, self.file = path, os.open(path, os.O_RDONLY)
        self.position = (place for place in range(3))  # which nobody can send
    def read(self, index):
        return os.pread(self.file, 1, index).decode()

class Sample:
    def __init__(self, text):
        self.text = text

class Letters:
    def __init__(self, reader):
        self.reader = reader
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return Sample(self.reader.read(index))

antifreeze.register_kind(Reader, lambda reader: (Reader, (reader.path,)))
loader = DataLoader(Letters(Reader(sys.argv[1])), num_workers=2, multiprocessing_context="spawn", collate_fn=lambda x: x[0])
samples = list(loader)
assert all(type(sample) is Sample for sample in samples)
print("".join(sample.text for sample in samples))
"""


@pytest.mark.long
def test_a_kind_of_a_script_without_a_main_guard(tmp_path: Path, run_script: RunScript) -> None:
    (tmp_path / "letters").write_text("abcdef")
    assert run_script(SCRIPT, str(tmp_path / "letters")).check().stdout == "abcdef\n"
