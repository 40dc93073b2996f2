"""Anonymous shared memory."""

import ctypes
import errno
import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from antifreeze import machine
from antifreeze.engine.arena import segment
from antifreeze.engine.arena.segment import CHUNK, Segment
from antifreeze.errors import ArenaError
from user_scripts import Ended


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def is_mapped(address: int) -> bool:
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(low, 16) <= address < int(high, 16) for low, high in spans)


MFD_NOEXEC_SEAL = 8


def assert_works(made: Segment) -> None:
    made.view[10:20] = b"some bytes"
    again = Segment(made.fd, made.size)
    made.close_descriptor()
    assert again.view[10:20] == b"some bytes"


def test_memory_is_made_of_whole_chunks() -> None:
    for asked, expected in [(0, 1), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (10 * CHUNK - 1, 10)]:
        made = segment.create(asked)
        assert made.size == expected * CHUNK
        assert os.fstat(made.fd).st_size == made.size
        made.close_descriptor()


def test_memory_is_reserved_when_it_is_made() -> None:
    made = segment.create(4 * CHUNK)
    assert os.fstat(made.fd).st_blocks * 512 >= 4 * CHUNK
    made.close_descriptor()


def test_what_is_written_is_read_through_any_mapping() -> None:
    assert_works(segment.create(CHUNK))


def test_a_descriptor_is_not_inherited_by_programs() -> None:
    made = segment.create(1)
    assert not os.get_inheritable(made.fd)
    made.close_descriptor()


def test_closing_the_descriptor_twice_is_harmless_and_leaves_the_memory() -> None:
    made = segment.create(1)
    made.view[:4] = b"kept"
    made.close_descriptor()
    made.close_descriptor()
    assert made.fd == -1
    assert made.view[:4] == b"kept"


def test_a_mapping_holds_no_descriptor() -> None:
    before = descriptors()
    made = segment.create(1)
    made.close_descriptor()
    assert descriptors() == before


def test_memory_is_unmapped_when_the_last_object_that_points_into_it_dies() -> None:
    made = segment.create(1)
    address = made.address
    made.close_descriptor()
    tensor = torch.frombuffer(made.owner(), dtype=torch.uint8)
    view = memoryview(made.owner())
    del made
    gc.collect()
    assert is_mapped(address)
    part = tensor[5:]
    del tensor
    assert is_mapped(address)
    del part
    assert is_mapped(address)
    view.release()
    del view
    assert not is_mapped(address)


def test_at_the_end_of_the_program_nothing_is_unmapped_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """To unmap lets other threads run, and a daemon thread that is ended within torch's code aborts the program."""
    monkeypatch.setattr(segment, "_kept", None)
    made = [segment.create(1), segment.in_private(1)]
    segment.keep_all()
    made.append(segment.create(1))  # by a thread that has not heard of it
    addresses = [each.address for each in made]
    for each in made:
        each.close_descriptor()
    del made, each
    assert all(map(is_mapped, addresses))


def test_without_memfd_create_in_the_os_module_the_c_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    made = segment.create(1)
    assert "antifreeze-slot" in os.readlink(f"/proc/self/fd/{made.fd}")
    assert not os.get_inheritable(made.fd)
    assert_works(made)


def test_an_error_of_the_c_librarys_memfd_create_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        def memfd_create(self, name: bytes, flags: int) -> int:
            ctypes.set_errno(errno.EMFILE)
            return -1

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(segment, "_libc", Libc)
    with pytest.raises(OSError) as caught:
        segment.anonymous_file("x")
    assert caught.value.errno == errno.EMFILE


def test_without_memfd_create_in_the_c_library_an_unlinked_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        @property
        def memfd_create(self) -> None:
            raise AttributeError("no such symbol")

    monkeypatch.delattr(os, "memfd_create")
    with monkeypatch.context() as inner:
        inner.setattr(segment, "_libc", Libc)
        fd = segment.anonymous_file("antifreeze-slot")
    assert os.readlink(f"/proc/self/fd/{fd}").endswith("(deleted)")
    os.close(fd)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOSYS])
def test_where_the_kernel_refuses_memfd_an_unlinked_file_is_used(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    made = segment.create(CHUNK)
    assert os.readlink(f"/proc/self/fd/{made.fd}").startswith(tempfile.gettempdir())
    assert os.fstat(made.fd).st_nlink == 0
    assert not os.listdir(tempfile.gettempdir())
    assert_works(made)


def test_memory_is_asked_for_that_cannot_be_executed_and_old_kernels_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, create = [], os.memfd_create

    def strict(name: str, flags: int) -> int:
        """As with vm.memfd_noexec=2."""
        asked.append(flags)
        if not flags & MFD_NOEXEC_SEAL:
            raise OSError(errno.EACCES, "executable memory")
        return create(name, os.MFD_CLOEXEC)

    def old(name: str, flags: int) -> int:
        asked.append(flags)
        if flags & MFD_NOEXEC_SEAL:
            raise OSError(errno.EINVAL, "no such flag")
        return create(name, flags)

    for kernel, flags in ((strict, [9]), (old, [9, 1])):
        monkeypatch.setattr(os, "memfd_create", kernel)
        made = segment.create(CHUNK)
        assert "memfd:" in os.readlink(f"/proc/self/fd/{made.fd}")
        assert_works(made)
        assert asked == flags
        asked.clear()


def test_a_limit_on_the_size_of_files_is_named(run_script: Callable[..., Ended]) -> None:
    ended = run_script(LIMITED)
    assert ended.check().stdout.splitlines() == ["no shared memory of 1024 KiB", "no shared memory of 700 KiB"]
    assert ended.stderr.count("files may not become larger than 512 KiB (ulimit -f, RLIMIT_FSIZE)") == 2


LIMITED = """
import resource, sys
from antifreeze.engine.arena import segment
from antifreeze.errors import ArenaError

resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 10, 512 << 10))
for make in (lambda: segment.create(1 << 20), lambda: segment.copy_of([bytes(700 << 10)], "bytes")):
    try:
        make()
    except ArenaError as error:
        print(error.what)
        print(error.why, file=sys.stderr)
"""


def test_any_other_refusal_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "memfd_create", too_many)
    with pytest.raises(OSError, match="too many"):
        segment.create(1)


def test_a_machine_without_memory_says_so_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 5 << 20)
    with pytest.raises(ArenaError, match="no shared memory for a batch of 64 MB") as caught:
        segment.create(64 << 20)
    assert caught.value.why == "5 MB are available to this process"
    assert caught.value.try_


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_a_file_system_without_memory_says_so_and_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = descriptors()
    with pytest.raises(ArenaError, match="no shared memory"):
        segment.create(1)
    assert descriptors() == before


def test_memory_that_cannot_be_mapped_is_an_os_error_and_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)
    monkeypatch.setattr(segment, "anonymous_file", lambda _: os.open("/", os.O_RDONLY))
    with pytest.raises(OSError) as caught:
        segment.create(1)
    assert caught.value.errno in (errno.ENODEV, errno.EACCES)
    assert descriptors() == before


def test_pieces_are_copied_one_after_the_other_and_read_back_once() -> None:
    before = descriptors()
    fd = segment.copy_of([b"one", memoryview(b"two"), b"", memoryview(bytearray(8)).cast("d")], "letter")
    assert segment.read_all(fd) == b"onetwo" + bytes(8)
    assert descriptors() == before


def test_a_failing_copy_leaves_no_descriptor() -> None:
    def pieces() -> object:
        yield b"one"
        raise ZeroDivisionError

    before = descriptors()
    with pytest.raises(ZeroDivisionError):
        segment.copy_of(pieces(), "letter")  # type: ignore[arg-type]
    assert descriptors() == before


def test_a_private_mapping_is_writable_and_changes_nothing_for_others() -> None:
    fd = segment.copy_of([b"shared until written"], "buffers")
    second = segment.map_private(os.dup(fd))
    first = segment.map_private(fd)
    first[:6] = b"SHARED"
    assert bytes(first).rstrip(b"\0") == b"SHARED until written"
    assert bytes(second).rstrip(b"\0") == b"shared until written"


CYCLES = """
import gc
from antifreeze.engine.arena import segment

class Reader:
    def __del__(self):
        seen.append(bytes(self.view[:3]))

def make():
    memory = segment.create(1)
    memory.view[:3] = b"abc"
    memory.close_descriptor()
    gc.collect()
    reader = Reader()
    reader.view, reader.itself = memory.view, reader
    return reader

def mappings():
    return open("/proc/self/maps").read().count("antifreeze-slot")

seen = []
make()
assert mappings() == 1
gc.collect()
assert (seen, mappings()) == ([b"abc"], 0)
last = make()
"""


def test_memory_can_be_read_by_whatever_the_collector_ends_together_with_it(run_script: Callable[..., Ended]) -> None:
    run_script(CYCLES).check()
