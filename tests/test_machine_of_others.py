"""What the kernel tells about other processes: who belongs together, and what a sleeping one waits for."""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antifreeze import machine

HEAD = (
    "import fcntl, multiprocessing, os, select, signal, socket, sys, threading, time\nprint(os.getpid(), flush=True)\n"
)


@contextmanager
def asleep_in(code: str, *descriptors: int) -> Iterator[int]:
    """A process that sleeps in this code, by its number."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE, text=True, pass_fds=descriptors
    )
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_until(lambda: machine.wait_of(pid).kind is not None)
        yield pid
        process.kill()


def wait_until(is_so: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lock_of_threads_is_told_from_any_other() -> None:
    code = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
    with asleep_in(code) as one, asleep_in(code) as other:
        waits = machine.wait_of(one), machine.wait_of(other)
    assert [wait.kind for wait in waits] == ["lock", "lock"]
    assert waits[0].lock.endswith(f" of {one}")
    assert waits[0].lock != waits[1].lock


def test_two_who_wait_for_the_same_lock_of_processes_are_seen_to() -> None:
    code = "lock = multiprocessing.Lock(); lock.acquire(); os.fork(); lock.acquire()"
    with asleep_in(code) as parent:
        wait_until(lambda: len(machine.descendants_of(parent)) == 2)
        child = machine.descendants_of(parent)[1].pid
        wait_until(lambda: machine.wait_of(child).kind == "lock")
        locks = {machine.wait_of(parent).lock, machine.wait_of(child).lock}
        os.kill(child, 9)
    (lock,) = locks
    assert lock.startswith("shared lock ")


def test_who_holds_a_locked_file_is_known(tmp_path: Path) -> None:
    path = tmp_path / "cache.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with asleep_in(f"fcntl.flock(open({str(path)!r}), fcntl.LOCK_EX)") as pid:
            wait = machine.wait_of(pid)
    assert (wait.kind, wait.lock, wait.holders) == ("file lock", str(path), (os.getpid(),))


def test_the_other_end_of_a_socket_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with asleep_in(f"socket.create_connection(('127.0.0.1', {port})).recv(1)") as pid:
            wait = machine.wait_of(pid)
            assert wait.kind == "socket"
            assert [machine.peer_of(pid, name) for name in wait.files] == [f"127.0.0.1:{port}"]


def test_whoever_could_write_into_a_pipe_that_is_polled_is_found() -> None:
    read, write = os.pipe()
    code = f"os.close({write}); poll = select.poll(); poll.register({read}, select.POLLIN); poll.poll()"
    try:
        with asleep_in(code, read, write) as pid:
            wait = machine.wait_of(pid)
            assert wait.kind == "poll"
            (name,) = wait.files
            assert machine.holds_open(os.getpid(), name, for_writing=True)
            assert not machine.holds_open(pid, name, for_writing=True)
    finally:
        os.close(read)
        os.close(write)


def test_the_opening_of_a_fifo_waits_for_somebody_and_not_for_a_disk(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with asleep_in(f"open({str(tmp_path / 'fifo')!r})") as pid:
        assert machine.wait_of(pid).kind == "pipe"


def test_waiting_for_a_child_to_end_is_seen() -> None:
    with asleep_in("pid = os.fork() or signal.pause(); os.waitpid(pid, 0)") as pid:
        assert machine.wait_of(pid).kind == "child"
        os.kill(machine.descendants_of(pid)[1].pid, 9)


def test_how_long_a_process_has_slept_is_known_to_the_kernel() -> None:
    with asleep_in("time.sleep(60)") as pid:
        first = machine.asleep_s([pid])
        if not first:
            pytest.skip("this kernel does not tell")
        wait_until(lambda: machine.asleep_s([pid])[pid] > first[pid] + 0.2)
        assert machine.asleep_s([os.getpid()]) == {}


def test_a_signal_that_nobody_catches_is_told_from_one_that_is_caught() -> None:
    with asleep_in("signal.signal(signal.SIGUSR1, print); time.sleep(60)") as pid:
        assert machine.catches(pid, 10)
        assert not machine.catches(pid, 12)
