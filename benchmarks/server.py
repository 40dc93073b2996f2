"""The process that readings are forked from: it has imported torch, once, and waits.

Why. A reading must not see what the one before it left: allocators, caches, threads, the base process that antifreeze
keeps. A fresh interpreter for every reading would do, and takes 2 to 6 s to import torch, for nothing. So one server
imports torch and numpy, starts no thread, and forks a child for every reading. The child is what a fresh interpreter would
be after `import torch`, and the same for every engine; only then does it import its engine, build its dataset (which is
its own, and no copy-on-write of somebody else's) and measure. Workers that are forked descend from the child alone; those
that are spawned start from nothing, as ever.

It is talked to in lines of JSON: a request on stdin, an answer on stdout; files go to the folder that it is given. It ends
when stdin does, and takes the folder and every process below it along: it adopts orphans, so none escapes. Readings that
do not end in time are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from memory import below
from reading import Setting, read

# How often to look whether the child has ended, or whoever asked is gone.
LOOK_S = 0.02
# After a reading: what its workers and resource trackers get to leave by themselves.
GRACE_S = 10.0
# The kernel takes a moment to end a process that is killed; one that waits for a broken device may take for ever.
KILL_S = 10.0
TRACKER_S = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Gone(Exception):
    """Whoever asked is not there any more."""


def main() -> None:
    import datasets  # noqa: F401 - torch and numpy with it, once for all readings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; whoever started us closes stdin
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    folder = Path(sys.argv[1])
    try:
        while request := sys.stdin.buffer.readline():
            print(json.dumps(answer(folder, **json.loads(request))), flush=True)
    except Gone:
        pass
    finally:
        end_all_below(grace_s=0)
        shutil.rmtree(folder, ignore_errors=True)


def answer(folder: Path, setting: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Have a child take the reading; what came out, or what went wrong."""
    out = folder / "reading.json"
    out.unlink(missing_ok=True)
    parent, threads = os.getpid(), len(os.listdir("/proc/self/task"))
    child = os.fork()
    if child == 0:
        be_the_trainer(Setting(**setting), folder, parent)
    status = wait_exit(child, deadline=time.monotonic() + limit_s)
    left = end_all_below(grace_s=GRACE_S if status == 0 else 0)
    if status is None:
        return {"error": f"did not end within {limit_s:.0f} s"}
    if status != 0 or not out.exists():
        return {"error": last_lines(folder / "log") or f"ended with status {status}"}
    return {"reading": json.loads(out.read_text()), "left_behind": left, "threads": threads}


def be_the_trainer(setting: Setting, folder: Path, parent: int) -> NoReturn:
    """In the child: measure, write, end."""
    status = 1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for mine, theirs in ((null, 0), (log, 1), (log, 2)):
            os.dup2(mine, theirs)
        reading = read(setting)
        (folder / "reading.json").write_text(json.dumps(asdict(reading)))
        status = 0
    except BaseException:  # whatever it is, it ends this process, and the log is what is left of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_exit(child: int, *, deadline: float) -> int | None:
    """The exit status of a child; None if it did not end in time. Raises Gone when nobody waits for it any more."""
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if select.select([0], [], [], LOOK_S)[0] and not sys.stdin.buffer.peek(1):
            raise Gone
    return None


def end_all_below(*, grace_s: float) -> list[str]:
    """Wait for all processes below this one to leave, then kill those that did not; what these were.

    The resource trackers of multiprocessing get a moment more: they remove from `/dev/shm` what the killed had there.
    """
    wait_until_none(others_below, deadline=time.monotonic() + grace_s)
    names = [command_of(pid) for pid in others_below()]
    kill_until_none(others_below)
    wait_until_none(all_below, deadline=time.monotonic() + TRACKER_S)
    kill_until_none(all_below)
    return names


def all_below() -> list[int]:
    reap()
    return sorted(below(os.getpid()))


def others_below() -> list[int]:
    """All but resource trackers, and but those that are about to be gone, which have no command any more."""
    commands = {pid: command_of(pid) for pid in all_below()}
    return [pid for pid, command in commands.items() if command and "multiprocessing.resource_tracker" not in command]


def wait_until_none(processes: Callable[[], list[int]], *, deadline: float) -> None:
    while processes() and time.monotonic() < deadline:
        time.sleep(LOOK_S / 4)


def kill_until_none(processes: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + KILL_S
    while (left := processes()) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S / 4)


def reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()[:200]
    return ""


def last_lines(log: Path) -> str:
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    return ""


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main()
