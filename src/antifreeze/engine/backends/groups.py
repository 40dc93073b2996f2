"""Process groups of workers: each leads one, so that all that it started can be killed with it, and may lead a session.

Not so where the trainer has a terminal. It belongs to the trainer's group alone: a program that a dataset starts and that
sets the terminal's modes (ffmpeg does) would be stopped by the kernel, and the worker with it; so would a debugger in a
worker that reads what is typed. There workers are in the trainer's group, as torch's are. What a worker started is handed
to its stem then when the worker ends, and killed one by one. For that the worker takes the orphans among what it started
itself: the stem could not tell whose they are.

multiprocessing's resource tracker removes shared memory and semaphores that nobody has removed, when the last process that
it works for has ended. One that a worker starts is in its stem's group, so that it outlives the worker for that moment.

The kernel refuses `setsid()` to the leader of a group, which a worker of torch's is not. So in a worker `os.setsid` steps
out of its group first. A session has a group of the same number again: what is started afterwards is killed as before.
"""

from __future__ import annotations

import contextlib
import os
from multiprocessing import util
from typing import Any

from antifreeze.engine.backends import process


def group_of_terminal(trainer_pid: int) -> int | None:
    """In a stem: the group that its workers have to be in, because of the trainer's terminal; None: each leads one."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        is_of_this_session = os.getsid(trainer_pid) == os.getsid(0)
        group = os.getpgid(trainer_pid)
    except OSError:  # there is no terminal, or no trainer any more
        return None
    return group if is_of_this_session and process.take_orphans() else None


def enter_group(pid: int, group: int | None) -> None:
    """Put a worker into this group, or have it lead one; by stem and worker, so that it is done whoever comes first."""
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it leads a session, or has ended already
        if group is not None:
            with contextlib.suppress(PermissionError):  # the trainer has gone to another session
                os.setpgid(pid, group)
                return
        os.setpgid(pid, 0)


def let_worker_lead_a_session(stems_group: int) -> None:
    """In a worker, which leads a group: let `os.setsid()` work as it would in a worker of torch's."""
    setsid = os.setsid
    worker = os.getpid()

    def setsid_of_worker() -> None:
        if os.getpid() == worker == os.getpgrp() and os.getsid(0) != worker:
            # If it has started processes, the group is still there, and the kernel says no: as with any leader.
            with contextlib.suppress(OSError):  # the stem is gone, and its group with it
                os.setpgid(0, stems_group)
            try:
                setsid()
            except OSError:
                os.setpgid(0, worker)
                raise
        else:
            setsid()

    os.setsid = setsid_of_worker


def let_tracker_outlive_worker(stems_group: int) -> None:
    """In a worker: have a resource tracker that it starts in another group, where nobody ends it."""
    spawn: Any = util.spawnv_passfds

    def spawn_apart(path: Any, args: Any, passfds: Any) -> Any:
        group = os.getpgrp()
        if group == stems_group or not any("resource_tracker" in str(each) for each in args):
            return spawn(path, args, passfds)
        try:
            os.setpgid(0, stems_group)
        except OSError:  # it leads a session, or its stem is gone
            return spawn(path, args, passfds)
        try:
            return spawn(path, args, passfds)
        finally:
            os.setpgid(0, group)

    util.spawnv_passfds = spawn_apart
