"""What this machine is like, with `/proc` and `/sys` made up."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antifreeze import machine

MB = 1 << 20
PutFiles = Callable[[dict[str, str]], None]


@pytest.fixture
def put_files(monkeypatch: pytest.MonkeyPatch) -> PutFiles:
    """Let these be all the files there are."""

    def put(files: dict[str, str]) -> None:
        class MadeUp(type(Path())):  # type: ignore[misc]
            def read_text(self, *_: object) -> str:
                if str(self) not in files:
                    raise FileNotFoundError(str(self))
                return files[str(self)]

        monkeypatch.setattr(machine, "Path", MadeUp)

    return put


def test_memory_is_what_the_machine_has_where_there_is_no_limit(put_files: PutFiles) -> None:
    put_files({"/proc/meminfo": "MemTotal:  99 kB\nMemAvailable:     2048 kB\n"})
    assert machine.available_memory() == 2 * MB


def test_memory_is_what_the_cgroup_leaves_its_page_cache_included(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/meminfo": "MemAvailable: 8192000 kB",
            "/proc/self/cgroup": "0::/",
            "/sys/fs/cgroup/memory.max": f"{100 * MB}\n",
            "/sys/fs/cgroup/memory.current": f"{70 * MB}\n",
            "/sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {10 * MB}\nactive_file {2 * MB}\nslab_reclaimable {MB}\n",
        }
    )
    assert machine.available_memory() == 43 * MB


def test_the_tightest_cgroup_on_the_way_to_the_root_counts(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/meminfo": "MemAvailable: 8192000 kB",
            "/proc/self/cgroup": "0::/user/me",
            "/sys/fs/cgroup/user/me/memory.max": "max\n",
            "/sys/fs/cgroup/user/me/memory.current": "5\n",
            "/sys/fs/cgroup/user/memory.max": f"{50 * MB}\n",
            "/sys/fs/cgroup/user/memory.current": f"{20 * MB}\n",
            "/sys/fs/cgroup/memory.max": f"{90 * MB}\n",
            "/sys/fs/cgroup/memory.current": f"{10 * MB}\n",
        }
    )
    assert machine.available_memory() == 30 * MB


def test_the_first_generation_of_cgroups_is_understood(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/meminfo": "MemAvailable: 8192000 kB",
            "/proc/self/cgroup": "12:cpu,cpuacct:/docker/a\n9:memory:/docker/a\n0::/system.slice\n",
            "/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": f"{64 * MB}\n",
            "/sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes": f"{60 * MB}\n",
            "/sys/fs/cgroup/memory/docker/a/memory.stat": f"total_inactive_file {MB}\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{999 * MB}\n",
        }
    )
    assert machine.available_memory() == 5 * MB


def test_in_a_container_the_path_of_the_host_may_not_exist(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/meminfo": "MemAvailable: 8192000 kB",
            "/proc/self/cgroup": "9:memory:/docker/of/the/host\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{64 * MB}\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{60 * MB}\n",
        }
    )
    assert machine.available_memory() == 4 * MB


def test_a_cgroup_over_its_limit_leaves_nothing(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/self/cgroup": "0::/",
            "/sys/fs/cgroup/memory.max": "10\n",
            "/sys/fs/cgroup/memory.current": "20\n",
        }
    )
    assert machine.available_memory() == 0


def test_where_nothing_is_known_nothing_is_limited(put_files: PutFiles) -> None:
    put_files({})
    assert machine.available_memory() >= 1 << 60
    assert machine.umask() is None


def test_what_cannot_be_understood_limits_nothing(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/meminfo": "MemAvailable: lots\n",
            "/proc/self/cgroup": "0::/\n",
            "/sys/fs/cgroup/memory.max": "some\n",
            "/sys/fs/cgroup/memory.current": "5\n",
        }
    )
    assert machine.available_memory() >= 1 << 60


def test_this_machine_has_some_memory() -> None:
    assert MB < machine.available_memory() < 1 << 50


def test_the_umask_is_read_without_changing_it() -> None:
    before = os.umask(0o027)
    try:
        assert machine.umask() == 0o027
        assert machine.umask() == 0o027
    finally:
        assert os.umask(before) == 0o027


def test_the_engine_runs_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.is_linux()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not machine.is_linux()


def test_a_file_that_is_opened_again_has_an_offset_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb", buffering=0) as file:
        again = machine.open_again(file.fileno(), os.O_RDONLY)
        os.lseek(again, 5, os.SEEK_SET)
        assert file.read(3) == b"012"
        assert os.read(again, 3) == b"567"
        assert not os.get_inheritable(again)
        os.close(again)


def test_the_end_of_a_pipe_is_opened_again() -> None:
    read, write = os.pipe()
    again = machine.open_again(read, os.O_RDONLY | os.O_NONBLOCK)
    os.close(read)
    os.write(write, b"!")
    assert os.read(again, 1) == b"!"
    os.close(write)
    assert os.read(again, 1) == b""
    os.close(again)


def test_a_forked_child_gets_offsets_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    reader = os.open(path, os.O_RDONLY)
    writer = os.open(path, os.O_RDWR)
    deleted = os.open(tmp_path / "deleted", os.O_RDONLY | os.O_CREAT)
    (tmp_path / "deleted").unlink()
    os.set_inheritable(reader, True)
    os.lseek(reader, 4, os.SEEK_SET)
    os.lseek(writer, 4, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            machine.give_own_offsets()
            is_right = os.read(reader, 2) == b"45" and os.read(writer, 2) == b"45" and os.get_inheritable(reader)
            code = 0 if is_right else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert os.read(reader, 2) == b"45"  # the child has not moved it
    assert os.read(writer, 2) == b"67"  # what can be written is left as it is: its offset is shared on purpose
    for fd in (reader, writer, deleted):
        os.close(fd)
