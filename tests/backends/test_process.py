"""Processes: forking, watching and killing them. Real children, each of which does nothing."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from antifreeze.engine.backends import process

Fork = Callable[[Callable[[], None]], int]


@pytest.fixture
def fork_child() -> Iterator[Fork]:
    """Fork a child that does this and ends; it is killed and reaped after the test."""
    children: list[int] = []

    def fork(act: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                act()
            finally:
                os._exit(3)
        children.append(pid)
        return pid

    yield fork
    for pid in children:
        with contextlib.suppress(ChildProcessError):  # the test has reaped it
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def end_of(pid: int) -> int | None:
    """How a child ends; waits for it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return process.reap(pid)


def sleep_on() -> None:
    signal.pause()


@pytest.fixture(params=["python", "ctypes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python builds that lack pidfd_open and pidfd_send_signal call the kernel themselves."""
    if request.param == "ctypes":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)


@pytest.mark.usefixtures("way")
def test_a_process_is_watched_and_killed_through_its_pidfd(fork_child: Fork) -> None:
    pid = fork_child(sleep_on)
    pidfd = process.open_pidfd(pid)
    assert not os.get_inheritable(pidfd)
    assert not process.has_ended(pidfd)
    process.kill(pidfd)
    assert process.wait_ended([pidfd], deadline=time.monotonic() + 5) == []
    assert process.has_ended(pidfd)
    assert end_of(pid) == -signal.SIGKILL
    process.kill(pidfd)  # it has ended and been reaped: nothing happens
    os.close(pidfd)


@pytest.mark.usefixtures("way")
def test_any_signal_can_be_sent(fork_child: Fork) -> None:
    pid = fork_child(sleep_on)
    pidfd = process.open_pidfd(pid)
    process.kill(pidfd, signal.SIGTERM)
    assert process.wait_ended([pidfd], deadline=time.monotonic() + 5) == []
    assert end_of(pid) == -signal.SIGTERM
    os.close(pidfd)


@pytest.mark.usefixtures("way")
def test_there_is_no_pidfd_of_a_process_that_is_gone(fork_child: Fork) -> None:
    pid = fork_child(lambda: None)
    assert end_of(pid) == 3
    with pytest.raises(ProcessLookupError):
        process.open_pidfd(pid)


def test_a_child_that_cannot_be_watched_is_ended_whether_it_leads_a_group_or_not(
    fork_child: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(process, "open_pidfd", refused)
    pid = fork_child(sleep_on)
    with pytest.raises(OSError, match="Too many open files"):
        process.watch_child(pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_a_call_that_the_kernel_refuses_is_an_os_error() -> None:
    with pytest.raises(OSError) as caught:
        process._syscall(process._PIDFD_OPEN, -1, 0)
    assert caught.value.errno == errno.EINVAL


def test_waiting_returns_those_that_have_not_ended_when_the_deadline_passes(fork_child: Fork) -> None:
    living, ended = fork_child(sleep_on), fork_child(lambda: None)
    pidfds = [process.open_pidfd(living), process.open_pidfd(ended)]
    assert process.wait_ended([pidfds[1]], deadline=time.monotonic() + 5) == []
    assert process.wait_ended(pidfds, deadline=time.monotonic() + 0.01) == [pidfds[0]]
    assert process.wait_ended([], deadline=time.monotonic() + 5) == []
    for pidfd in pidfds:
        os.close(pidfd)


def test_a_deadline_that_has_passed_means_no_wait(fork_child: Fork) -> None:
    pidfd = process.open_pidfd(fork_child(sleep_on))
    assert process.wait_ended([pidfd], deadline=time.monotonic() - 1) == [pidfd]
    os.close(pidfd)


def test_a_wait_is_cut_into_slices(fork_child: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SLICE_S", 0.001)
    pidfd = process.open_pidfd(fork_child(sleep_on))
    assert process.wait_ended([pidfd], deadline=time.monotonic() + 0.02) == [pidfd]
    os.close(pidfd)


def test_an_exit_code_that_somebody_else_has_taken_is_none(fork_child: Fork) -> None:
    pid = fork_child(lambda: None)
    os.waitpid(pid, 0)
    assert process.reap(pid) is None


def test_a_child_that_has_not_ended_has_no_exit_code_and_is_not_waited_for(fork_child: Fork) -> None:
    assert process.reap(fork_child(sleep_on)) is None


def test_a_group_is_killed_with_all_that_it_started(fork_child: Fork) -> None:
    read, write = os.pipe()

    def lead() -> None:
        os.setpgid(0, 0)
        os.fork()  # both hold the pipe
        os.write(write, b".")
        signal.pause()

    leader = fork_child(lead)
    os.close(write)
    assert len(os.read(read, 1) + os.read(read, 1)) == 2
    process.kill_group(leader)
    assert os.read(read, 1) == b""  # nobody holds it any more
    os.close(read)
    assert end_of(leader) == -signal.SIGKILL
    process.kill_group(leader)  # it is gone: nothing happens


def test_a_process_dies_with_its_lifeline(fork_child: Fork) -> None:
    read, write = os.pipe()
    ready, say_ready = os.pipe()

    def live() -> None:
        os.close(write)
        process.die_with(read)
        os.write(say_ready, b".")
        signal.pause()

    pid = fork_child(live)
    os.close(read)
    os.read(ready, 1)
    os.close(write)
    assert end_of(pid) == -signal.SIGKILL
    os.close(ready)
    os.close(say_ready)


def test_a_lifeline_that_is_cut_already_ends_the_process(fork_child: Fork) -> None:
    read, write = os.pipe()
    os.close(write)
    pid = fork_child(lambda: process.die_with(read))
    assert end_of(pid) in (1, -signal.SIGKILL)
    os.close(read)


SCRIPT = """
import os, threading, warnings
from antifreeze.engine.backends import process

warnings.simplefilter("error")
at_fork = []
os.register_at_fork(
    before=lambda: at_fork.append("before"),
    after_in_parent=lambda: at_fork.append("parent"),
    after_in_child=lambda: at_fork.append("child"),
)
leave = threading.Event()
thread = threading.Thread(target=leave.wait)
thread.start()
pid = process.{way}()
if pid == 0:
    is_right = at_fork == ["before", "child"] and threading.active_count() == 1
    os._exit(7 if is_right else 8)
leave.set()
thread.join()
assert at_fork == ["before", "parent"], at_fork
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
assert process.reap(pid) == 7
"""


@pytest.mark.parametrize("way", ["fork", "_fork_without_warning"])
def test_a_fork_beside_a_thread_warns_nobody_and_is_a_whole_fork(way: str) -> None:
    script = SCRIPT.format(way=way)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_fork_that_fails_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    class Api:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def PyOS_BeforeFork(self) -> None:  # noqa: N802
            told.append("before")

        def PyOS_AfterFork_Parent(self) -> None:  # noqa: N802
            told.append("parent")

        def fork(self) -> int:
            process.ctypes.set_errno(errno.EAGAIN)
            return -1

    monkeypatch.setattr(process.ctypes, "PyDLL", Api)
    with pytest.raises(BlockingIOError):
        process._fork_without_warning()
    assert told == ["before", "parent"]
