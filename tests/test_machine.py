"""What this machine and its processes are like, with `/proc` and `/sys` made up, and with real processes."""

import ast
import contextlib
import ctypes
import fcntl
import io
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import pytest

from antifreeze import machine
from antifreeze.machine import families, memory, own, processes, reading
from leftovers import wait_until

MB = 1 << 20
PutFiles = Callable[[dict[str, str]], None]
Start = Callable[[Callable[[], object]], int]


@pytest.fixture
def put_files(monkeypatch: pytest.MonkeyPatch) -> PutFiles:
    """Let these be all the files there are."""

    def put(files: dict[str, str]) -> None:
        class MadeUp(type(Path())):  # type: ignore[misc]
            def read_text(self, *_: object, **__: object) -> str:
                if str(self) not in files:
                    raise FileNotFoundError(str(self))
                return files[str(self)]

        for module in (reading, memory, processes):
            monkeypatch.setattr(module, "Path", MadeUp)

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


def is_right_in_child(check: Callable[[], bool]) -> bool:
    """Whether this is true in a forked child that has been given offsets of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            machine.give_own_offsets()
            code = 0 if check() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_a_file_that_is_locked_stays_locked_by_the_child_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open(tmp_path / "file") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert is_right_in_child(lambda: fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB) is None)


def read_text(file: Any) -> bytes:
    file.seek(0)
    return file.read().encode()  # type: ignore[no-any-return]


def read_bytes(file: Any) -> bytes:
    file.seek(0)
    return file.read()  # type: ignore[no-any-return]


CONTENT = b"0123456789" * 1000


def write_plain(path: Path) -> None:
    path.write_bytes(CONTENT)


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content", CONTENT)


def write_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, content=np.frombuffer(CONTENT, np.uint8))


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["content"] = np.frombuffer(CONTENT, np.uint8)


@pytest.mark.parametrize(
    ("write", "wrap", "read"),
    [
        (write_plain, lambda file: file, read_bytes),
        (write_plain, io.TextIOWrapper, read_text),
        (write_zip, zipfile.ZipFile, lambda archive: archive.read("content")),
        (write_npz, np.load, lambda archive: archive["content"].tobytes()),
        (write_hdf5, h5py.File, lambda file: file["content"][()].tobytes()),
    ],
    ids=["binary", "text", "zip", "npz", "h5py over a file object"],
)
def test_what_a_child_reads_through_an_inherited_handle_moves_nobody_elses_place(
    write: Callable[[Path], None], wrap: Callable[[Any], Any], read: Callable[[Any], bytes], tmp_path: Path
) -> None:
    write(tmp_path / "file")
    with (tmp_path / "file").open("rb") as file:
        handle = wrap(file)
        place = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        assert is_right_in_child(lambda: read(handle) == CONTENT)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == place
        assert read(handle) == CONTENT
        if handle is not file:
            handle.close()


def test_what_is_appended_by_a_child_is_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as log:
        log.write(b"one ")
        assert is_right_in_child(lambda: log.write(b"two ") == 4)
        log.write(b"three")
    assert path.read_bytes() == b"one two three"


def test_what_is_mapped_stays_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    array = np.memmap(path, np.uint8, "r")
    shared = np.memmap(path, np.uint8, "r+")

    def change() -> bool:
        shared[0] = ord("x")
        return array.tobytes() == b"x" + CONTENT[1:]

    assert is_right_in_child(change)
    assert path.read_bytes() == b"x" + CONTENT[1:]


@pytest.mark.parametrize("where", ["Anonymous", "Swap"])
def test_what_was_written_into_a_copy_of_a_file_is_seen_also_if_it_was_swapped_out(
    put_files: PutFiles, where: str
) -> None:
    facts = {"Rss": 8, "Anonymous": 0, "Swap": 0, "SwapPss": 0, where: 4}
    lines = "".join(f"{name}:  {size} kB\n" for name, size in facts.items())
    put_files({"/proc/self/smaps": f"1000-3000 rw-p 00000000 08:01 7  /data/file\n{lines}VmFlags: rd wr\n"})
    assert machine.own_bytes(0x1000, 0x3000) == 4096
    assert machine.own_bytes(0x3000, 0x4000) is None


def test_a_thousand_open_files_cost_little(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with contextlib.ExitStack() as files:
        for _ in range(1000):
            files.enter_context((tmp_path / "file").open())
        assert is_right_in_child(lambda: time.process_time() < 0.5)  # of the child's own; it takes 0.02 s


def test_threads_of_native_libraries_have_names() -> None:
    before = len(machine.thread_names())
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(10,))
    thread.start()
    try:
        assert len(machine.thread_names()) == before + 1
    finally:
        end.set()
        thread.join(10)


@pytest.mark.skipif(not machine.is_linux(), reason="the kernel tells on Linux only")
def test_a_thread_that_waits_is_found_in_the_library_that_waits() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(10,))
    before = sum("libc" in Path(path).name for path in machine.files_waited_in())
    thread.start()
    try:
        assert wait_until(
            lambda: sum("libc" in Path(path).name for path in machine.files_waited_in()) == before + 1, 10
        )
    finally:
        end.set()
        thread.join(10)


def test_where_there_is_no_proc_no_thread_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any) -> NoReturn:
        raise FileNotFoundError(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        assert machine.thread_names() == []
        assert machine.files_waited_in() == []


def test_kills_are_those_of_the_nearest_cgroup(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/self/cgroup": "0::/user/me",
            "/sys/fs/cgroup/user/me/memory.events": "low 0\nhigh 0\nmax 5\noom 4\noom_kill 3\noom_group_kill 9\n",
            "/sys/fs/cgroup/user/memory.events": "oom_kill 70\n",
            "/proc/vmstat": "oom_kill 90\n",
        }
    )
    assert machine.oom_kills() == 3


def test_kills_are_counted_in_the_first_generation_of_cgroups(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/self/cgroup": "9:memory:/docker/of/the/host\n0::/\n",
            "/sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            "/proc/vmstat": "oom_kill 90\n",
        }
    )
    assert machine.oom_kills() == 2


def test_where_cgroups_do_not_count_the_machine_does(put_files: PutFiles) -> None:
    put_files({"/proc/self/cgroup": "0::/", "/proc/vmstat": "nr_free_pages 7\noom_kill 90\n"})
    assert machine.oom_kills() == 90


def test_where_nobody_counts_nothing_is_said(put_files: PutFiles) -> None:
    put_files({"/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.events": "oom_kill many\n"})
    assert machine.oom_kills() is None
    assert machine.memory_facts() == ""


def test_this_machine_counts_kills() -> None:
    kills = machine.oom_kills()
    assert kills is None or kills >= 0


def test_memory_is_told_by_the_tightest_limit(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/self/cgroup": "0::/user/me",
            "/sys/fs/cgroup/user/me/memory.max": f"{64 * MB}\n",
            "/sys/fs/cgroup/user/me/memory.current": f"{60 * MB}\n",
            "/sys/fs/cgroup/user/memory.max": f"{90 * MB}\n",
            "/sys/fs/cgroup/user/memory.current": f"{61 * MB}\n",
        }
    )
    assert machine.memory_facts() == "memory limit of this cgroup 64 MB, in use 60 MB"


def test_without_a_limit_memory_is_the_machines(put_files: PutFiles) -> None:
    put_files({"/proc/meminfo": "MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n"})
    assert machine.memory_facts() == "memory of this machine 4000 MB, in use 3000 MB"


STAT = "7 (a) S (b) {state} 5 7 7 0 -1 4194560 9 8 0 6 150 50 3 4 20 0 1 0 99 1 2 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0\n"


def test_a_process_with_an_odd_name_is_read(put_files: PutFiles) -> None:
    put_files(
        {
            "/proc/7/stat": STAT.format(state="R"),
            "/proc/7/status": "Name:\ta\nTracerPid:\t12\n",
            "/proc/7/io": "rchar: 30\nwchar: 12\nsyscr: 99\nread_bytes: 99\n",
        }
    )
    ticks = os.sysconf("SC_CLK_TCK")
    assert machine.process_facts(7) == machine.ProcessFacts("R", 200 / ticks, 42, 12, None)


def test_what_may_not_be_read_is_the_harmless_answer(put_files: PutFiles) -> None:
    put_files({"/proc/7/stat": STAT.format(state="S")})
    facts = machine.process_facts(7)
    assert facts is not None and (facts.io_bytes, facts.tracer_pid, facts.waits_in) == (0, 0, None)


@pytest.mark.parametrize(
    ("state", "files", "waits_in"),
    [
        ("S", {"wchan": "futex_wait_queue"}, "lock"),
        ("S", {"wchan": "pipe_read"}, "pipe"),
        ("S", {"wchan": "sk_wait_data"}, "socket"),
        ("S", {"wchan": "do_poll.constprop.0"}, "poll"),
        ("S", {"wchan": "hrtimer_nanosleep"}, "sleep"),
        ("D", {"wchan": "folio_wait_bit_common"}, "disk"),
        ("D", {"wchan": "0"}, "disk"),
        ("S", {"wchan": "do_wait"}, "child"),
        ("S", {"wchan": "0"}, None),
        ("S", {"syscall": "-1 0x7f 0x7f", "wchan": "futex_do_wait"}, "lock"),
        ("R", {"syscall": "running", "wchan": "0"}, None),
        ("T", {"wchan": "pipe_read"}, None),
    ],
)
def test_without_a_system_call_the_kernels_function_tells(
    put_files: PutFiles, state: str, files: dict[str, str], waits_in: str | None
) -> None:
    put_files({"/proc/7/stat": STAT.format(state=state), **{f"/proc/7/{name}": text for name, text in files.items()}})
    facts = machine.process_facts(7)
    assert facts is not None and facts.waits_in == waits_in


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that does this, and leads a group; it and its group are killed after the test."""
    started: list[int] = []

    def fork(act: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                act()
            finally:
                os._exit(1)
        with contextlib.suppress(PermissionError):
            os.setpgid(pid, 0)
        started.append(pid)
        return pid

    yield fork
    for pid in started:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


COPYING = """
import ctypes, os
from antifreeze import machine

MB = 1 << 20
inherited = bytearray(b"x") * (16 * MB)
place = ctypes.addressof(ctypes.c_char.from_buffer(inherited))
mappings = [mapping for mapping in machine.private_mappings() if mapping.start <= place < mapping.end]
assert len(mappings) == 1
if os.fork() == 0:
    before = machine.memory_since(mappings)
    inherited[: 8 * MB] = b"y" * (8 * MB)
    own = bytearray(b"z") * (128 * MB)
    after = machine.memory_since(mappings)
    print([new - old for old, new in zip(before, after, strict=True)], flush=True)
    os._exit(0)
os.wait()
"""


def test_what_a_forked_process_has_copied_is_told_from_what_it_has_got_since() -> None:
    # In a program of its own: what else this process holds and frees is not its business.
    ended = subprocess.run([sys.executable, "-c", COPYING], capture_output=True, text=True, timeout=150, check=True)
    grown, copied, own_bytes = ast.literal_eval(ended.stdout)
    assert abs(grown) < MB
    assert 8 * MB <= copied < 9 * MB
    assert own_bytes > 64 * MB


def test_pages_that_are_written_are_counted_as_faults() -> None:
    before = machine.faulted_bytes()
    written = bytearray(b"x") * (64 * MB)
    assert machine.faulted_bytes() - before > MB  # huge pages come in one go
    del written


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hear_nothing() -> None:
    here, there = socket.socketpair()
    here.recv(1)
    there.close()


def read_a_socket_as_a_file() -> None:
    here, there = socket.socketpair()
    os.read(here.fileno(), 1)
    there.close()


def read_nothing() -> None:
    read, _ = os.pipe()
    os.read(read, 1)


def poll_for_ever() -> None:
    select.poll().poll()


def sleep_on() -> None:
    time.sleep(600)


def burn() -> None:
    while True:
        pass


WAITS = {
    lock_twice: "lock",
    hear_nothing: "socket",
    read_a_socket_as_a_file: "socket",
    read_nothing: "pipe",
    poll_for_ever: "poll",
    sleep_on: "sleep",
}


def facts_of(pid: int) -> machine.ProcessFacts:
    facts = machine.process_facts(pid)
    assert facts is not None
    return facts


@pytest.mark.parametrize("by", ["system call", "wait channel"])
@pytest.mark.parametrize("act", WAITS, ids=lambda act: act.__name__)
def test_what_a_process_waits_for_is_seen(
    start: Start, act: Callable[[], None], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "wait channel":
        monkeypatch.setattr(platform, "machine", lambda: "an unknown processor")
    pid = start(act)
    if by == "wait channel" and not wait_until(lambda: Path(f"/proc/{pid}/wchan").read_text() != "0", 2):
        pytest.skip("this kernel does not tell")
    assert wait_until(lambda: facts_of(pid).waits_in == WAITS[act], 5), facts_of(pid)
    assert facts_of(pid).state == "S"
    before = machine.facts_of_groups([pid]).get(pid)
    assert before is not None and machine.facts_of_groups([pid]).get(pid) == before


def test_a_process_that_works_uses_time(start: Start) -> None:
    pid = start(burn)
    before = facts_of(pid).cpu_s
    assert wait_until(lambda: facts_of(pid).cpu_s > before + 0.03, 10)
    assert facts_of(pid).waits_in is None


def test_a_process_that_is_stopped_is_seen(start: Start) -> None:
    pid = start(sleep_on)
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: facts_of(pid).state == "T", 5)
    assert facts_of(pid).waits_in is None


def test_a_process_that_is_debugged_is_seen(start: Start) -> None:
    def be_traced() -> None:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = start(be_traced)
    assert wait_until(lambda: facts_of(pid).tracer_pid == os.getpid(), 5)


def test_reading_and_writing_is_counted(start: Start) -> None:
    read, write = os.pipe()

    def echo() -> None:
        os.read(read, 1000)
        signal.pause()

    pid = start(echo)
    assert wait_until(lambda: facts_of(pid).waits_in == "pipe", 5)
    before = facts_of(pid).io_bytes
    os.write(write, b"x" * 1000)
    assert wait_until(lambda: facts_of(pid).io_bytes == before + 1000, 5)
    os.close(read)
    os.close(write)


def test_bytes_over_a_connection_are_counted(start: Start) -> None:
    """By `recv`, which the kernel's own count leaves out."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def download() -> None:
            with socket.create_connection(server.getsockname()) as connection:
                while True:
                    connection.recv(1000)

        pid = start(download)
        with server.accept()[0] as upload:
            assert wait_until(lambda: facts_of(pid).waits_in == "socket", 5)
            before = facts_of(pid).io_bytes
            upload.sendall(b"x" * 1000)
            assert wait_until(lambda: facts_of(pid).io_bytes == before + 1000, 5)


def test_what_the_trainer_sends_over_a_connection_that_a_worker_inherited_is_no_work_of_the_worker(
    start: Start,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0] as theirs,
    ):
        pid = start(sleep_on)
        assert wait_until(lambda: facts_of(pid).waits_in == "sleep", 5)
        before = facts_of(pid).io_bytes
        ours.sendall(b"x" * 1000)
        assert theirs.recv(1000) and facts_of(pid).io_bytes == before


def test_pages_of_mapped_files_are_counted() -> None:
    seen = processes.facts_in_stat(os.getpid())
    assert seen is not None
    read = seen._replace(major_faults=seen.major_faults + 3)
    assert processes.io_bytes(1 << 30, read) - processes.io_bytes(1 << 30, seen) == 3 * os.sysconf("SC_PAGE_SIZE")


def test_all_processes_of_the_machine_are_looked_at_rarely_if_there_are_many(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [], processes.numbers_in_proc

    def take_long() -> list[int]:
        looks.append("look")
        time.sleep(0.05)
        return look()

    monkeypatch.setattr(families, "numbers_in_proc", take_long)
    monkeypatch.setattr(families, "SCAN_PAUSES", 1000)
    followed = machine.Families()
    assert followed.facts_of([os.getpid()])
    child = start(burn)  # since then
    (before,) = followed.facts_of([os.getpid()]).values()
    assert before.is_running
    assert wait_until(lambda: followed.facts_of([os.getpid()])[os.getpid()].cpu_s > before.cpu_s + 0.03, 10)
    assert child in followed._members(os.getpid())
    assert looks == ["look"]


def test_the_work_of_a_child_counts_for_the_group_only(start: Start) -> None:
    def have_a_busy_child() -> None:
        if os.fork() == 0:
            burn()
        sleep_on()

    pid = start(have_a_busy_child)
    assert wait_until(lambda: facts_of(pid).waits_in == "sleep", 5)
    alone, together = facts_of(pid).cpu_s, machine.facts_of_groups([pid]).get(pid)
    assert together is not None

    def group_got_on() -> bool:
        now = machine.facts_of_groups([pid]).get(pid)
        return now is not None and now.cpu_s > together.cpu_s + 0.03

    assert wait_until(group_got_on, 10)
    assert facts_of(pid).cpu_s == alone


def test_a_child_that_left_the_group_still_counts(start: Start) -> None:
    read, write = os.pipe()

    def have_a_distant_child() -> None:
        if (child := os.fork()) == 0:
            os.setsid()
            burn_for(0.1)
            os.write(write, b".")
            sleep_on()
        os.write(write, b"%d\n" % child)
        sleep_on()

    pid = start(have_a_distant_child)
    text = os.read(read, 20)
    while b"." not in text or b"\n" not in text:
        text += os.read(read, 20)
    group = machine.facts_of_groups([pid]).get(pid)
    os.kill(int(text.replace(b".", b"")), signal.SIGKILL)
    assert group is not None and group.cpu_s >= 0.08
    os.close(read)
    os.close(write)


def burn_for(cpu_s: float) -> None:
    while time.process_time() < cpu_s:
        pass


def test_the_work_of_a_child_that_has_ended_is_not_taken_back(start: Start) -> None:
    read, write = os.pipe()

    def have_children_that_end() -> None:
        if (child := os.fork()) == 0:
            burn_for(0.1)
            os._exit(0)
        os.waitpid(child, 0)
        os.write(write, b".")
        sleep_on()

    pid = start(have_children_that_end)
    os.read(read, 1)
    group = machine.facts_of_groups([pid]).get(pid)
    assert group is not None and group.cpu_s >= 0.08 > facts_of(pid).cpu_s
    os.close(read)
    os.close(write)


def test_there_are_no_facts_about_a_process_that_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert machine.process_facts(pid) is None
    assert machine.facts_of_groups([pid]) == {}


def test_a_variable_is_told_as_it_was_when_this_process_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "changed since")
    monkeypatch.setenv("ANTIFREEZE_SET_SINCE", "yes")
    assert machine.started_with("PATH") not in (None, "changed since")
    assert machine.started_with("ANTIFREEZE_SET_SINCE") is None


def test_the_limit_on_processes_that_is_reached_is_named(put_files: PutFiles, tmp_path: Path) -> None:
    root = "/sys/fs/cgroup/pids"
    put_files(
        {
            "/proc/self/cgroup": "8:pids:/job/step\n",
            f"{root}/job/step/pids.max": "max\n",
            f"{root}/job/step/pids.current": "9\n",
            f"{root}/job/pids.max": "12\n",
            f"{root}/job/pids.current": "12\n",
            f"{root}/pids.max": "1000\n",
            f"{root}/pids.current": "20\n",
        }
    )
    assert machine.process_limits() == [f"the cgroup {root}/job allows 12 processes and threads (pids.max), and has 12"]


@pytest.mark.parametrize(
    ("error", "word"), [(FileNotFoundError, "not mounted"), (PermissionError, "not dumpable"), (None, None)]
)
def test_why_a_process_cannot_open_its_files_again(
    error: type[OSError] | None, word: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise error

    if error is not None:
        monkeypatch.setattr(own, "open_again", refuse)
    why = machine.why_not_again()
    assert why is None if word is None else word in (why or "")
