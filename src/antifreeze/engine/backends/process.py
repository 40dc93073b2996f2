"""Processes: forking, watching, signalling and killing them. The only file that does the last two.

A process is watched through its pidfd, which cannot be mistaken for another process, however often numbers are reused.
A group is killed only by somebody who knows that its leader has not been reaped yet, for the same reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Collection

from antifreeze.machine import children_of, process_limits

_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_SEND_SIGNAL = 424
_PIDFD_OPEN = 434
_P_PIDFD = 3  # Python knows it only where the C library does
# Never waits longer than this at a stretch, so that a signal or a suspended machine costs one slice.
SLICE_S = 1.0
# Between two looks at processes that have been killed and have not ended.
_PAUSE_S = 0.001
# Asks a worker for its Python stack. A real-time signal, because datasets, schedulers and libraries have plans of their own
# for SIGUSR1 and SIGUSR2; not one of the first, which C libraries keep for themselves and others take before any other.
STACK_SIGNAL = getattr(signal, "SIGRTMIN", 34) + 7


class CannotFork(OSError):
    """No process can be had; its text names the limit that was met, as far as that can be known."""


def fork() -> int:
    """`os.fork()` whose child has all signals blocked until it has settled what to do about them, and without a warning.

    A signal that came in between would run the trainer's handlers in the child: a second trainer, saving checkpoints.
    The warning about threads (Python 3.12 and later) is right for workers forked from a trainer, which is why ours are
    not: the child becomes a stem that runs nothing of the trainer's but what torch's forked workers would. Silencing it
    with a filter would make Python forget which warnings it has shown, so that users would see theirs again in every
    epoch.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    trainer = os.getpid()
    try:
        return os.fork() if sys.version_info < (3, 12) else _fork_without_warning()
    except BaseException as error:
        if os.getpid() != trainer:  # an at-fork handler, or what a signal had left to do: not in this process
            print_last_words()
            os._exit(1)
        if isinstance(error, OSError):
            raise CannotFork(error.errno, "; ".join([os.strerror(error.errno or 0), *process_limits()])) from error
        raise
    finally:
        if os.getpid() == trainer:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def print_last_words() -> None:
    """Write the exception under way to stderr: `os._exit`, which comes next, would lose it."""
    with contextlib.suppress(OSError):  # stderr is closed, or full
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))


def receive_signals() -> None:
    """In a forked child: it knows now what to do about every signal."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _fork_without_warning() -> int:
    api = ctypes.PyDLL(None, use_errno=True)
    api.PyOS_BeforeFork()
    pid: int = api.fork()
    if pid == 0:
        api.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, os.strerror(code))
    return pid


def open_pidfd(pid: int) -> int:
    """A descriptor that stands for this very process and becomes readable when it ends."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    fd = _syscall(_PIDFD_OPEN, pid, 0)
    os.set_inheritable(fd, False)
    return fd


def watch_child(pid: int) -> int:
    """A descriptor for a child that has just been forked; without one nobody could watch it, so it is ended then."""
    try:
        return open_pidfd(pid)
    except ProcessLookupError:  # it has ended, and the kernel has reaped it, because the program ignores SIGCHLD
        raise
    except OSError:  # the limit on descriptors is reached
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        kill_group(pid)  # if it leads one: where there is a terminal, it does not
        deadline = time.monotonic() + SLICE_S
        while reap(pid) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        raise


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended (reaped or not)."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def wait_ended(pidfds: list[int], *, deadline: float) -> list[int]:
    """Wait until all have ended, or the deadline (on the monotonic clock); returns those that have not."""
    alive = list(pidfds)
    while alive and (left := deadline - time.monotonic()) > 0:
        poll = select.poll()
        for pidfd in alive:
            poll.register(pidfd, select.POLLIN)
        ended = {fd for fd, _ in poll.poll(min(left, SLICE_S) * 1000)}
        alive = [pidfd for pidfd in alive if pidfd not in ended]
    return alive


def kill(pidfd: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to one process; nothing happens if it has ended."""
    try:
        if hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(pidfd, number)
        else:
            _syscall(_PIDFD_SEND_SIGNAL, pidfd, int(number), 0, 0)
    except ProcessLookupError:
        pass


def ask_for_stack(pidfd: int) -> None:
    """Have a worker write the Python stacks of its threads onto its board, whatever it is doing; only for workers.

    To anything that was not told what this signal means, it is deadly.
    """
    kill(pidfd, STACK_SIGNAL)


def kill_group(leader: int) -> None:
    """Kill a process and all that it started; only for a leader that we have not reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def take_orphans() -> bool:
    """Have what is started below this process become its child when its own parent ends; whether the kernel does that."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def end_orphans(group: int, *, but: Collection[int]) -> None:
    """Kill what has become our child in this way and is in this group, and then what that has started; `but` is our own."""
    deadline = time.monotonic() + SLICE_S
    while time.monotonic() < deadline:
        orphans = {pid: seen for pid, seen in children_of(os.getpid()).items() if pid not in but}
        killed = [pid for pid, seen in orphans.items() if seen.group == group]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        if killed:
            time.sleep(_PAUSE_S)
        for pid in orphans:
            reap(pid)
        if not killed:
            return


def kill_started_by(pid: int) -> None:
    """Kill what a process that takes orphans has started, as far as it is in our own group."""
    for child, seen in children_of(pid).items():
        kill_started_by(child)
        with contextlib.suppress(OSError):  # it has ended
            pidfd = open_pidfd(child)
            try:
                now = children_of(pid).get(child)  # else the number may be another's by now
                if now is not None and now.started_s == seen.started_s and now.group == os.getpgrp():
                    kill(pidfd)
            finally:
                os.close(pidfd)


def reap(pid: int) -> int | None:
    """The exit code of an ended child, as multiprocessing gives it; None if it is somebody else's, or has not ended."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def how_it_ended(exitcode: int | None) -> str:
    """What a process did that ended with this exit code, in words."""
    if exitcode is None:
        return "ended"
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    return f"was ended by signal {-exitcode} ({signal.strsignal(-exitcode)})"


def reap_orphan(pidfd: int) -> int | None:
    """The exit code of an ended process that has become our child because its parent died; None if it is another's.

    That happens if this process is the first of a container, or has said that it takes orphans.
    """
    try:
        ended = os.waitid(_P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except OSError:  # it is not our child, or the kernel is older than this way of asking
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process the moment the trainer is gone, whatever it is doing then.

    The trainer alone holds the other end of this pipe. (PR_SET_PDEATHSIG would follow the *thread* that forked.)
    """
    import fcntl  # noqa: PLC0415 - not on every system, and needed on Linux only

    os.set_inheritable(lifeline, False)  # programs that this process starts have no use for it
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        ended = os.read(lifeline, 1) == b""
    except BlockingIOError:
        return
    if ended:  # it was gone before the kernel knew whom to tell
        os._exit(1)


def _syscall(number: int, *arguments: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        if code == errno.ESRCH:
            raise ProcessLookupError(code, os.strerror(code))
        raise OSError(code, os.strerror(code))
    return result
