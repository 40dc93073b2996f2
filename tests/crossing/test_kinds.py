"""Live handles → plans → handles again, in one process: each kind, and what must never happen to the files behind them."""

# ruff: noqa: SIM115 - handles are what these tests are about

import bz2
import csv
import gc
import gzip
import io
import lzma
import mmap
import os
import pickle
import queue
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker, shared_memory
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import torch

from antifreeze import CannotCross, ConfigError, machine, register_kind
from antifreeze.engine.crossing import pickler
from antifreeze.engine.crossing.kinds import mappings
from antifreeze.engine.crossing.kinds.base import OnlyInherited
from antifreeze.engine.crossing.kinds.registry import unregister_kind
from antifreeze.engine.crossing.pickler import Parcel, send

LINES = [f"line {number}: äöü" for number in range(1000)]
TEXT = "\n".join(LINES) + "\n"
CONTENT = TEXT.encode()


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def cross(thing: Any) -> Any:
    return Parcel(send(thing, main_names=frozenset()).detach()).open()[0]


def listing(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and what is in it; but for LMDB's table of readers, which readers write into."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock.mdb")
    return {str(path): path.read_bytes() for path in files}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    resource_tracker.ensure_running()  # which is kept as long as the program lives
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() <= before


# --- files


@pytest.mark.parametrize("buffering", [0, -1], ids=["raw", "buffered"])
def test_a_binary_file_arrives_at_its_position_with_an_offset_of_its_own(path: Path, buffering: int) -> None:
    with open(path, "rb", buffering=buffering) as file:
        file.read(10)
        with cross(file) as copy:
            assert type(copy) is type(file) and (copy.name, copy.mode) == (file.name, file.mode)
            assert copy.tell() == 10
            assert copy.read(7) == CONTENT[10:17]
            assert file.tell() == 10
            assert file.read(7) == CONTENT[10:17]


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"], ids=repr)
@pytest.mark.parametrize(
    "begin",
    [
        lambda file: None,
        lambda file: file.readline(),
        lambda file: file.read(),
        lambda file: (file.readline(), file.seek(0)),
    ],
    ids=["fresh", "after a line", "at the end", "rewound"],
)
def test_a_text_file_arrives_with_encoding_newline_and_position(
    tmp_path: Path, newline: str | None, begin: Callable[[Any], Any]
) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes("eins\r\nzwei\rdrei\nvier ä\n".encode("utf-16"))
    with open(path, encoding="utf-16", errors="replace", newline=newline) as file:
        begin(file)
        with cross(file) as copy:
            assert (copy.name, copy.mode, copy.encoding, copy.errors) == (file.name, "r", "utf-16", "replace")
            assert copy.tell() == file.tell()
            assert copy.read() == file.read()
            assert [copy.seek(0), *copy.readlines()] == [file.seek(0), *file.readlines()]


def test_a_text_file_in_the_middle_of_a_loop_is_inherited_only(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        next(file)
        with pytest.raises(OnlyInherited, match=r"lines.txt is being read by a loop"):
            send(file, main_names=frozenset())


def test_one_handle_that_occurs_twice_is_one_again(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        copies = cross({"a": file, "b": [file], "buffer": file.buffer})
        with copies["a"]:
            assert copies["b"][0] is copies["a"]
            assert copies["buffer"] is copies["a"].buffer


def test_a_file_that_was_renamed_or_deleted_arrives_all_the_same(path: Path) -> None:
    with path.open("rb") as file:
        path.rename(path.with_name("moved.txt"))
        path.write_bytes(b"another file of that name")
        with cross(file) as copy:
            assert copy.read() == CONTENT
        path.with_name("moved.txt").unlink()
        with cross(file) as copy:
            assert copy.read() == CONTENT


def test_more_files_than_a_message_carries_go_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickler, "MOST_FILES", 1)
    other = path.with_name("other.txt")
    other.write_bytes(b"other")
    with path.open("rb") as first, other.open("rb") as second:
        crossing = send([first, second, first], main_names=frozenset())
        assert len(crossing.luggage.descriptors) == 1
        copies, _ = Parcel(crossing.detach()).open()
        assert [copy.read() for copy in copies[:2]] == [CONTENT, b"other"]
        for copy in copies:
            copy.close()


def test_a_file_that_goes_by_name_must_still_be_the_same_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickler, "MOST_FILES", 0)
    with path.open("rb") as file:
        crossing = send(file, main_names=frozenset())
        path.rename(path.with_name("moved.txt"))
        path.write_bytes(b"another file of that name")
        with pytest.raises(CannotCross, match=r"lines.txt is not the file that the program has open"):
            Parcel(crossing.detach()).open()
        path.with_name("moved.txt").unlink()
        with pytest.raises(CannotCross, match="it has been deleted, or replaced by another file"):
            Parcel(send(file, main_names=frozenset()).detach()).open()


def test_a_name_that_stands_for_a_pipe_by_now_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickler, "MOST_FILES", 0)
    with path.open("rb") as file:
        crossing = send(file, main_names=frozenset())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CannotCross, match=r"lines.txt is not the file that the program has open"):
        Parcel(crossing.detach()).open()


def test_what_is_not_a_regular_file_is_refused() -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as pipe, open(theirs, "wb"), pytest.raises(CannotCross, match="not a regular file"):
        send(pipe, main_names=frozenset())


def test_closed_files_arrive_closed(path: Path) -> None:
    files = [
        path.open("rb", buffering=0),
        path.open("rb"),
        path.open(encoding="utf-8"),
        gzip.open(path),
        lzma.open(path),
    ]
    files += [bz2.open(path), zipfile.ZipFile(io.BytesIO(), "w"), mmap.mmap(-1, 1), sqlite3.connect(":memory:")]
    for file in files:
        file.close()
    *copies, database = cross(files)
    assert [type(copy) for copy in copies] == [type(file) for file in files[:-1]]
    assert all(getattr(copy, "closed", True) for copy in copies)
    assert copies[2].name == str(path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_the_standard_streams_are_those_of_the_other_process() -> None:
    assert cross([sys.stdout, sys.stderr]) == [sys.stdout, sys.stderr]


class Tagged(io.BufferedReader):
    """A user's subclass, with a constructor of its own."""

    def __init__(self, path: Path, tag: str) -> None:
        super().__init__(io.FileIO(path))
        self.tag = tag
        self.holder: Any = None


class SaysItself(Tagged):
    """A user's subclass that sees to it itself."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return str, ("seen to",)


def test_a_subclass_keeps_its_class_and_attributes(path: Path) -> None:
    with Tagged(path, "red") as file:
        file.holder = {"file": file}
        with cross(file) as copy:
            assert type(copy) is Tagged
            assert copy.tag == "red"
            assert copy.holder["file"] is copy
            assert copy.read() == CONTENT
        del file.holder, copy.holder


def test_what_a_class_says_itself_comes_first(path: Path) -> None:
    with SaysItself(path, "red") as file:
        assert cross(file) == "seen to"


# --- compressed files and archives


@pytest.mark.parametrize("module", [gzip, bz2, lzma], ids=lambda module: module.__name__)
def test_a_compressed_file_arrives_at_its_position(tmp_path: Path, module: Any) -> None:
    path = tmp_path / "lines"
    path.write_bytes(module.compress(CONTENT))
    with module.open(path) as file, module.open(path, "rt", encoding="utf-8") as text:
        file.read(100)
        text.readline()
        copy, text_copy = cross([file, text])
        with copy, text_copy:
            assert type(copy) is type(file)
            assert copy.read() == CONTENT[100:]
            assert text_copy.read() == TEXT.partition("\n")[2]
    assert copy.closed


def test_how_an_lzma_file_is_read_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    path.write_bytes(lzma.compress(CONTENT, lzma.FORMAT_RAW, filters=filters))
    with lzma.open(path, format=lzma.FORMAT_RAW, filters=filters) as file, cross(file) as copy:
        assert copy.read() == CONTENT


def make_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", CONTENT)


def test_a_zip_archive_arrives_and_closes_its_own_file(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.setpassword(b"secret")
        with cross(archive) as copy:
            assert copy.read("a.txt") == CONTENT
            assert (copy.filename, copy.pwd) == (archive.filename, b"secret")
        assert copy.fp is None


def test_a_zip_archive_over_a_file_belongs_to_the_copy_of_that_file(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip")
    with (tmp_path / "a.zip").open("rb") as file, zipfile.ZipFile(file) as archive:
        copy, file_copy = cross([archive, file])
        assert copy.fp is file_copy
        copy.close()
        assert not file_copy.closed
        file_copy.close()


def test_a_path_in_a_zip_archive_arrives(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip")
    inside = zipfile.Path(str(tmp_path / "a.zip"), "a.txt")
    copy = cross(inside)
    assert copy.read_bytes() == CONTENT
    for each in (inside, copy):
        each.root.close()


def test_npz_archives_arrive(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(10), y=np.array({"a": 1}))
    with np.load(tmp_path / "a.npz", allow_pickle=True) as archive, cross(archive) as copy:
        assert copy["x"].tolist() == list(range(10))
        assert copy["y"].item() == {"a": 1}
        assert copy.f.x.sum() == 45
    assert copy.zip is None


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_tar_archives_arrive(tmp_path: Path, path: Path, mode: str) -> None:
    with tarfile.open(tmp_path / "a.tar", f"w:{mode}") as archive:
        archive.add(path, "a.txt")
        archive.add(path, "b.txt")
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.next()
        with cross(archive) as copy:
            assert copy.getnames() == ["a.txt", "b.txt"]
            assert copy.extractfile("b.txt").read() == CONTENT
            assert copy.name == archive.name


def test_a_tar_archive_that_is_a_stream_is_inherited_only(tmp_path: Path, path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(path, "a.txt")
    with tarfile.open(tmp_path / "a.tar", "r|") as archive, pytest.raises(OnlyInherited, match="as a stream"):
        send(archive, main_names=frozenset())


# --- temporary files


@pytest.mark.parametrize("mode", ["w+b", "w+"])
def test_the_copy_of_a_temporary_file_reads_and_never_deletes(mode: str) -> None:
    with tempfile.NamedTemporaryFile(mode) as file:
        file.write("text" if mode == "w+" else b"text")
        file.seek(1)
        copy = cross(file)
        assert copy.name == file.name
        assert copy.read() in ("ext", b"ext")
        with pytest.raises(io.UnsupportedOperation):
            copy.write("x" if mode == "w+" else b"x")
        copy.close()
        del copy
        assert Path(file.name).read_text() == "text"


def test_the_copy_of_a_temporary_directory_does_not_delete_it() -> None:
    with tempfile.TemporaryDirectory() as name:
        pass
    directory = tempfile.TemporaryDirectory()
    try:
        copy = cross(directory)
        assert copy.name == directory.name
        del copy
        assert Path(directory.name).is_dir()
    finally:
        directory.cleanup()
    assert name != directory.name


# --- mappings


@pytest.mark.parametrize("access", [mmap.ACCESS_READ, mmap.ACCESS_COPY], ids=["read", "copy"])
def test_an_mmap_is_mapped_again(path: Path, access: int) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
        mapped.seek(5)
        with cross(mapped) as copy:
            assert copy.tell() == 5
            assert copy[:] == CONTENT
            if access == mmap.ACCESS_COPY:
                copy[:4] = b"mine"
    assert path.read_bytes() == CONTENT


def test_an_mmap_of_a_part_of_a_file_is_of_that_part(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    page = mmap.ALLOCATIONGRANULARITY
    path.write_bytes(b"a" * page + b"b" * page)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 9, access=mmap.ACCESS_READ, offset=page) as mapped:
        copy = cross(mapped)
        assert copy[:] == b"b" * 9
        copy.close()


def test_an_mmap_that_writes_into_its_file_is_refused(path: Path) -> None:
    refused = pytest.raises(CannotCross, match=r"the mmap of '.*lines.txt' is open for writing")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped, refused:
        send(mapped, main_names=frozenset())


def test_an_mmap_that_was_written_to_is_refused(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        mapped[0] = 0
        with pytest.raises(CannotCross, match="cannot be mapped again"):
            send(mapped, main_names=frozenset())


def test_an_mmap_whose_file_was_replaced_is_refused(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        path.unlink()
        with pytest.raises(OnlyInherited, match="no name any more"):
            send(mapped, main_names=frozenset())


def test_an_mmap_without_a_file_is_inherited_only() -> None:
    with mmap.mmap(-1, 100) as mapped, pytest.raises(OnlyInherited, match="an mmap of no file"):
        send(mapped, main_names=frozenset())


def test_a_mapping_is_known_by_another_of_the_same_file_where_stat_shows_other_numbers(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(CONTENT)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), other.open("rb") as stranger:
        (mapped,) = (each for each in machine.mapped_files() if each.path == str(path))
        assert mappings._maps_alike(file.fileno(), mapped)
        assert not mappings._maps_alike(stranger.fileno(), mapped)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.bin"
    np.arange(100_000, dtype=np.int64).tofile(path)
    return path


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_memmap_is_mapped_again_and_never_written(numbers: Path, mode: Any) -> None:
    array = np.memmap(numbers, np.int64, mode, offset=80, shape=(1000, 90))
    crossing = send(array, main_names=frozenset())
    assert os.fstat(crossing.body).st_size + os.fstat(crossing.buffers).st_size < 10_000
    copy, _ = Parcel(crossing.detach()).open()
    assert type(copy) is np.memmap
    assert (copy.mode, copy.offset, copy.filename, copy.shape) == ("c", 80, array.filename, array.shape)
    assert (copy == array).all()
    before = numbers.read_bytes()
    copy[:] = -1
    assert numbers.read_bytes() == before


def test_a_file_that_is_larger_than_memory_is_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.touch()
    os.truncate(path, 1 << 42)
    copy = cross(np.memmap(path, np.uint8, "r"))
    copy[-1] = 1
    assert (len(copy), copy[-1], copy[-2]) == (1 << 42, 1, 0)


def test_an_array_in_shared_memory_arrives_as_it_is_now() -> None:
    memory = shared_memory.SharedMemory(create=True, size=80_000)
    try:
        array = np.ndarray((10_000,), "f8", memory.buf)
        array[:] = 1
        copies = cross([array, array[5:], torch.from_numpy(array)])
        array[:] = 2
        assert all((copy == 1).all() for copy in copies)
        del array
    finally:
        memory.unlink()


def test_views_of_a_memmap_keep_their_place_and_their_common_memory(numbers: Path) -> None:
    array = np.memmap(numbers, np.int64, "c").reshape(1000, 100)
    views = [array[::-2, 3:50:7], np.asarray(array)[5:], array.T, array[0, 0:1], array[:0]]
    copies = cross(views)
    for copy, view in zip(copies, views, strict=True):
        assert type(copy) is type(view)
        assert copy.strides == view.strides
        assert (copy == view).all()
    copies[3][0] = -7
    assert copies[2][0, 0] == -7
    assert array[0, 0] == 0


def test_a_memmap_that_was_written_to_goes_as_it_is(numbers: Path) -> None:
    array = np.memmap(numbers, np.int64, "c")
    array[5] = -5
    assert cross(array)[5] == -5


def test_a_memmap_without_its_file_goes_as_it_is(numbers: Path) -> None:
    array = np.memmap(numbers, np.int64, "r")
    numbers.unlink()
    np.zeros(100_000, np.int64).tofile(numbers)
    assert (cross(array) == np.arange(100_000)).all()


def test_a_tensor_over_a_file_is_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    np.arange(400_000, dtype=np.int64).tofile(path)
    tensor = torch.from_file(str(path), shared=False, size=400_000, dtype=torch.int64)
    crossing = send([tensor, tensor[10:]], main_names=frozenset())
    assert os.fstat(crossing.buffers).st_size < 10_000
    (copy, part), _ = Parcel(crossing.detach()).open()
    assert copy.equal(tensor)
    part.fill_(-1)
    assert copy[10] == -1 and tensor[10] == 10
    tensor[0] = 7
    assert cross(tensor)[0] == 7  # not in the file any more


def test_tensors_that_were_loaded_from_a_mapped_file_are_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.arange(300_000), "b": torch.ones(300_000)}, path)
    weights = torch.load(path, mmap=True)
    crossing = send(weights, main_names=frozenset())
    assert os.fstat(crossing.buffers).st_size < 10_000
    copy, _ = Parcel(crossing.detach()).open()
    assert copy["a"].equal(weights["a"]) and copy["b"].equal(weights["b"])


def test_small_tensors_over_a_file_arrive(numbers: Path) -> None:
    tensor = torch.from_file(str(numbers), shared=False, size=100, dtype=torch.int64)
    assert cross(tensor).equal(tensor)


def test_a_tensor_that_writes_into_its_file_is_refused(numbers: Path) -> None:
    tensor = torch.from_file(str(numbers), shared=True, size=100, dtype=torch.int64)
    with pytest.raises(CannotCross, match=r"the tensor over '.*numbers.bin' is open for writing"):
        send(tensor, main_names=frozenset())


# --- h5py


@pytest.fixture
def hdf5(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["group/x"] = np.arange(10)
        file["group/x"].attrs["unit"] = "mm"
    return path


def test_an_hdf5_file_arrives_and_its_members_belong_to_its_copy(hdf5: Path) -> None:
    with h5py.File(hdf5, "r", rdcc_nbytes=1 << 22) as file:
        things = {"dataset": file["group/x"], "file": file, "group": file["group"], "again": file["group/x"]}
        copies = cross(things)
        with copies["file"] as copy:
            assert copy.filename == file.filename
            assert copy.id.get_access_plist().get_cache()[2] == 1 << 22
            assert copies["dataset"][:].tolist() == list(range(10))
            assert copies["group"]["x"].attrs["unit"] == "mm"
            assert copies["again"].name == "/group/x"
        assert not copies["dataset"] and not copies["group"] and not copies["again"]


def test_members_of_an_hdf5_file_arrive_without_it(hdf5: Path) -> None:
    with h5py.File(hdf5, "r") as file:
        first, second = cross([file["group/x"], file["group/x"]])
        assert first.file == second.file
        assert first.file.mode == "r"
        first.file.close()
        assert not second


def test_an_hdf5_file_is_read_as_it_was(hdf5: Path) -> None:
    with h5py.File(hdf5, "r", swmr=True, libver="latest", locking=False) as file, cross(file) as copy:
        assert copy.swmr_mode
        assert not copy.id.get_access_plist().get_file_locking()[0]
    with h5py.File(hdf5, "r", driver="core") as file, cross(file) as copy:
        assert copy.driver == "core"
        assert copy["group/x"][3] == 3


def test_a_closed_hdf5_file_arrives_closed(hdf5: Path) -> None:
    with h5py.File(hdf5, "r") as file:
        things = [file, file["group"], file["group/x"]]
    copies = cross(things)
    assert [type(copy) for copy in copies] == [h5py.File, h5py.Group, h5py.Dataset]
    assert not any(map(bool, copies))


def test_an_hdf5_file_over_a_file_object_is_refused(hdf5: Path) -> None:
    with hdf5.open("rb") as below, h5py.File(below, "r") as file, pytest.raises(CannotCross, match=r"h5py\.File"):
        send(file, main_names=frozenset())


def test_an_hdf5_file_that_was_replaced_is_refused(hdf5: Path) -> None:
    with h5py.File(hdf5, "r") as file:
        shutil.copy(hdf5, hdf5.with_name("b.h5"))
        hdf5.with_name("b.h5").rename(hdf5)
        with pytest.raises(CannotCross, match=r"a.h5 cannot be opened again"):
            send(file, main_names=frozenset())


# --- sqlite3 and lmdb


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a b?.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (number INTEGER, day date)")
        connection.executemany("INSERT INTO t VALUES (?, '2024-02-29')", [(number,) for number in range(10)])
    connection.close()
    return path


class Connection(sqlite3.Connection):
    """A user's subclass, with a constructor of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tag = "red"


def test_a_connection_to_a_sqlite_file_arrives_read_only_with_its_settings(database: Path) -> None:
    types = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
    connection = sqlite3.connect(
        database, timeout=7, detect_types=types, isolation_level=None, factory=Connection, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    connection.execute("ATTACH ? AS other", (str(database),))
    copy = cross(connection)
    try:
        assert type(copy) is Connection and copy.tag == "red"
        assert copy.isolation_level is None
        row = copy.execute('SELECT number, day, day AS "d [date]" FROM other.t WHERE number = 3').fetchone()
        assert (row["number"], row["day"].year, row["d"].day) == (3, 2024, 29)
        assert copy.execute("PRAGMA busy_timeout").fetchone()[0] == 7000
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            copy.execute("DELETE FROM t")
    finally:
        copy.close()
        connection.close()


def test_types_are_not_detected_where_they_were_not(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.text_factory = bytes
    copy = cross(connection)
    assert copy.execute("SELECT day FROM t").fetchone() == (b"2024-02-29",)
    copy.close()
    connection.close()


def test_a_connection_with_uncommitted_changes_is_refused(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("DELETE FROM t")
    with pytest.raises(CannotCross, match="in the middle of a transaction"):
        send(connection, main_names=frozenset())
    connection.close()


def test_a_database_in_memory_is_inherited_only() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(OnlyInherited, match="in memory"):
        send(connection, main_names=frozenset())
    connection.close()


def test_a_deleted_database_is_refused_and_not_made_anew(database: Path) -> None:
    connection = sqlite3.connect(database)
    crossing = send(connection, main_names=frozenset())
    database.unlink()
    with pytest.raises(CannotCross, match="cannot be opened again"):
        send(connection, main_names=frozenset())
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        Parcel(crossing.detach()).open()
    assert not database.exists()
    connection.close()


@pytest.mark.parametrize(
    "options", [{"readonly": True, "lock": False}, {"map_size": 1 << 21, "max_readers": 5}], ids=repr
)
def test_an_lmdb_environment_arrives_for_reading(tmp_path: Path, options: dict[str, Any]) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 20, max_dbs=1) as environment:
        named = environment.open_db(b"named")
        with environment.begin(write=True) as transaction:
            transaction.put(b"a", b"1")
            transaction.put(b"a", b"2", db=named)
    with lmdb.open(str(tmp_path / "db"), **options) as environment:
        crossing = send(environment, main_names=frozenset())
        expected = environment.flags(), environment.info()["map_size"], environment.max_readers()
    copy, _ = Parcel(crossing.detach()).open()  # one process must not open it twice
    with copy:
        assert (copy.flags(), copy.info()["map_size"], copy.max_readers()) == (
            {**expected[0], "readonly": True},
            *expected[1:],
        )
        named = copy.open_db(b"named", create=False)
        with copy.begin() as transaction:
            assert (transaction.get(b"a"), transaction.get(b"a", db=named)) == (b"1", b"2")
        with pytest.raises(lmdb.ReadonlyError):
            copy.begin(write=True)


# --- what threads wait for


def test_locks_arrive_unlocked() -> None:
    lock, rlock = threading.Lock(), threading.RLock()
    with lock, rlock:
        copies = cross([lock, rlock, lock])
    assert copies[0] is copies[2]
    for copy in copies[:2]:
        assert copy.acquire(blocking=False)


def test_conditions_events_semaphores_and_barriers_arrive() -> None:
    lock = threading.Lock()
    bounded = threading.BoundedSemaphore(2)
    event = threading.Event()
    event.set()
    bounded.acquire()
    condition, same_lock, event, semaphore, bounded, barrier = cross(
        [threading.Condition(lock), lock, event, threading.Semaphore(3), bounded, threading.Barrier(1)]
    )
    with condition:
        condition.notify_all()
        assert same_lock.locked()
    assert event.is_set()
    assert [semaphore.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]
    assert [bounded.acquire(blocking=False) for _ in range(3)] == [True, True, False]
    assert barrier.wait(1) == 0


def test_thread_locals_arrive_empty() -> None:
    local = threading.local()
    local.connection = object()
    assert vars(cross(local)) == {}


def test_queues_arrive_with_what_is_in_them() -> None:
    waiting: queue.Queue[int] = queue.Queue(2)
    waiting.put(5)
    copy, empty = cross([waiting, queue.SimpleQueue()])
    copy.put(6, block=False)
    assert copy.full()
    assert [copy.get(timeout=1), copy.get(timeout=1)] == [5, 6]
    assert empty.empty()
    full: queue.SimpleQueue[int] = queue.SimpleQueue()
    full.put(1)
    with pytest.raises(OnlyInherited, match="SimpleQueue that is not empty"):
        send(full, main_names=frozenset())


@pytest.mark.parametrize("thing", [(x for x in "abc"), csv.reader(["a"])], ids=["generator", "csv reader"])
def test_what_is_half_way_through_its_code_is_inherited_only(thing: Any) -> None:
    with pytest.raises(OnlyInherited, match="half-way through its code"):
        send(thing, main_names=frozenset())


# --- what must never happen to a file


def open_tar(path: Path, mode: str) -> Any:
    return tarfile.open(path, {"r+b": "a", "wb": "w", "ab": "a"}[mode])


WRITERS: dict[str, Callable[[Path, str], Any]] = {
    "raw": lambda path, mode: path.open(mode, buffering=0),
    "buffered": lambda path, mode: path.open(mode),
    "text": lambda path, mode: path.open(mode.replace("b", ""), encoding="utf-8"),
    "gzip": lambda path, mode: gzip.open(path, mode.replace("r+", "a")),
    "bz2": lambda path, mode: bz2.open(path, mode.replace("r+", "a")),
    "lzma": lambda path, mode: lzma.open(path, mode.replace("r+", "a")),
    "zip": lambda path, mode: zipfile.ZipFile(path, mode.replace("r+", "a")[0]),
    "tar": open_tar,
    "h5py": lambda path, mode: h5py.File(path, mode.replace("b", "")),
}


def make(kind: str, path: Path) -> None:
    """A file that this kind can be opened for writing over."""
    if kind == "tar":
        with tarfile.open(path, "w"):
            pass
    elif kind == "h5py":
        with h5py.File(path, "w") as file:
            file["x"] = [1]
    else:
        path.write_bytes(CONTENT)


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_handle_that_writes_is_refused_and_its_file_is_not_touched(tmp_path: Path, kind: str, mode: str) -> None:
    path = tmp_path / "file"
    make(kind, path)
    with WRITERS[kind](path, mode) as handle:
        before = listing(tmp_path)
        with pytest.raises(CannotCross, match="is open for writing") as caught:
            send({"handle": handle}, main_names=frozenset())
        assert listing(tmp_path) == before
    assert "multiprocessing_context='fork'" in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_read_are_the_same_afterwards(tmp_path: Path, hdf5: Path, database: Path, path: Path) -> None:
    make_zip(tmp_path / "a.zip")
    connection = sqlite3.connect(database)
    with path.open("rb") as file, zipfile.ZipFile(tmp_path / "a.zip") as archive, h5py.File(hdf5, "r") as table:
        before = listing(tmp_path)
        copies = cross([file, archive, table, connection])
        copies[3].execute("SELECT * FROM t").fetchall()
        for copy in copies:
            copy.close()
        assert listing(tmp_path) == before
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.open("rb"),
        gzip.open,
        lambda path: threading.Lock(),
        lambda path: (x for x in "abc"),
        sqlite3.connect,
        lambda path: h5py.File(io.BytesIO(), "w"),
        lambda path: zipfile.ZipFile(io.BytesIO(), "w"),
        lambda path: mmap.mmap(-1, 1),
    ],
)
def test_with_torchs_own_spawn_none_of_these_reaches_a_worker(path: Path, make: Callable[[Path], Any]) -> None:
    handle = make(path)
    try:
        with pytest.raises((TypeError, pickle.PicklingError, RuntimeError)):
            ForkingPickler.dumps(handle)
    finally:
        if hasattr(handle, "close"):
            handle.close()


def test_a_parcel_that_was_opened_in_a_child_can_be_opened_in_another(path: Path) -> None:
    """As the workers of a stem do."""
    array = np.arange(10_000)
    with path.open("rb") as file:
        parcel = Parcel(send([file, array], main_names=frozenset()).detach())
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                (copy, numbers), _ = parcel.open()
                code = 0 if copy.read() == CONTENT and numbers.sum() == array.sum() else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    parcel.open()[0][0].close()


# --- kinds of users


class Client:
    """A handle of a user's own; its connection cannot be pickled."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connection = (letter for letter in address)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class PoliteClient(Client):
    """One that needs more to be made, and says nothing of pickling."""


def plan_client(client: Client) -> tuple[Any, tuple[Any, ...]]:
    return type(client), (client.address,)


@pytest.fixture
def client_kind() -> Iterator[None]:
    yield
    unregister_kind(Client)


@pytest.mark.usefixtures("client_kind")
def test_a_kind_of_a_users_own_is_opened_by_its_plan() -> None:
    with pytest.raises(OnlyInherited):
        send(Client("a"), main_names=frozenset())
    register_kind(Client, plan_client)
    client = Client("abc")
    first, second, polite = cross([client, client, PoliteClient("d")])
    assert first is second
    assert next(first.connection) == "a"
    assert type(polite) is PoliteClient


@pytest.mark.usefixtures("client_kind")
def test_a_plan_that_is_none_is_a_mistake_that_is_told() -> None:
    register_kind(Client, lambda client: client.address)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"the plan for Client must be \(function, arguments\), not 'abc'"):
        send(Client("abc"), main_names=frozenset())


def test_a_mistake_of_registering_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match="is not a class"):
        register_kind("Client", plan_client)  # type: ignore[arg-type]
