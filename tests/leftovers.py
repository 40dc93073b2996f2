"""What a test leaves behind: processes, threads, descriptors, `/dev/shm` entries, temporary files.

A snapshot is taken before a test and compared after it. Two marks tell our processes from everybody else's, also when
they have lost their parent: an entry in the environment (found in everything that was `exec`ed since) and a named mapping
of this process (found in everything that was only forked from it).
"""

import json
import mmap
import os
import re
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

MARK_VARIABLE = "ANTIFREEZE_TEST_MARK"
PROC = Path("/proc")
SHM = Path("/dev/shm")
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a pid: the start time tells it from a later process with the same number."""

    pid: int
    started: str


class Mark:
    """A name that every process started from here carries, whatever becomes of its parents."""

    def __init__(self) -> None:
        self.name = f"antifreeze-test-{uuid.uuid4().hex}"
        os.environ[MARK_VARIABLE] = self.name
        path = Path(tempfile.gettempdir()) / self.name
        with path.open("w+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._mapping = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        path.unlink()

    def is_on(self, pid: int) -> bool:
        return has_environment(pid, MARK_VARIABLE, self.name) or self.name in read(PROC / str(pid) / "maps")


class Session:
    """A temporary directory of our own, so that other people's files are not ours, and the mark on our processes."""

    def __init__(self) -> None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays where people look for it
        self.directory = Path(tempfile.mkdtemp(prefix="antifreeze-tests-"))
        self.temp = self.directory / "tmp"
        self.temp.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temp)
        self.usage = self.directory / "usage.jsonl"
        # When the tests run in several processes: that of the first of them.
        self.usage_of_all = Path(os.environ.setdefault("ANTIFREEZE_TEST_USAGE", str(self.usage)))
        os.environ["ANTIFREEZE_USAGE"] = str(self.usage)
        os.environ["ANTIFREEZE"] = "require"
        self.mark = Mark()

    def usage_records(self) -> list[dict[str, Any]]:
        lines = self.usage.read_text().splitlines() if self.usage.exists() else []
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Snapshot:
    processes: frozenset[int]
    """Every process of the machine, ours or not. (No test starts so many that a number comes a second time.)"""
    threads: frozenset[int]
    descriptors: frozenset[tuple[int, str]]
    shm: frozenset[str]
    temp: frozenset[str]


def read(path: Path) -> str:
    """The text of a `/proc` file, empty if its process is gone or somebody else's."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def has_environment(pid: int, name: str, value: str) -> bool:
    return f"{name}={value}" in read(PROC / str(pid) / "environ").split("\0")


def status(pid: int) -> tuple[str, int, str] | None:
    """State letter, parent and start time of a process, None if there is none."""
    fields = read(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1]), fields[19]) if fields else None


def all_processes() -> frozenset[int]:
    return frozenset(int(name) for name in os.listdir(PROC) if name.isdigit())


def incarnation(pid: int) -> Incarnation | None:
    known = status(pid)
    return Incarnation(pid, known[2]) if known else None


def is_running(who: Incarnation) -> bool:
    """Whether that very process still executes (a zombie does not)."""
    known = status(who.pid)
    return known is not None and known[2] == who.started and known[0] not in "ZX"


def has_ended(who: Incarnation) -> bool:
    return not is_running(who)


def open_descriptors() -> frozenset[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        if int(name) <= 2:
            continue  # pytest redirects these between its phases
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # the descriptor of this very listing
    return frozenset(found)


def open_accelerator() -> None:
    """Open the device before any test looks for what it leaves behind: that is done once, and for good."""
    import torch

    if torch.accelerator.is_available():
        torch.ones(1, device=torch.accelerator.current_accelerator()).cpu()
        torch.ones(1).pin_memory()


def listing(folder: Path) -> frozenset[str]:
    return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()


def take() -> Snapshot:
    return Snapshot(
        processes=all_processes(),
        threads=frozenset(thread.ident for thread in threading.enumerate() if thread.ident),
        descriptors=open_descriptors(),
        shm=listing(SHM),
        temp=listing(Path(tempfile.gettempdir())),
    )


def base_process() -> tuple[frozenset[int], frozenset[int]]:
    """Pid and descriptors of the one clean base process that a trainer keeps for its life."""
    clean = sys.modules.get("antifreeze.engine.backends.clean")
    if clean is None:
        return frozenset(), frozenset()
    pid = clean.base_pid()
    return frozenset(() if pid is None else (pid,)), frozenset(clean.base_fds())


def kept_for_life() -> tuple[frozenset[int], frozenset[int]]:
    """Pids and descriptors of what a trainer keeps: the clean base process, and Python's resource tracker."""
    pids, fds = base_process()
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    return (pids, fds) if tracker._fd is None else (pids | {tracker._pid}, fds | {tracker._fd})


def stop_resource_tracker() -> None:
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def stop_base_process() -> None:
    clean = sys.modules.get("antifreeze.engine.backends.clean")
    if clean is not None:
        clean.stop_base()


def new_processes(before: Snapshot, mark: Mark) -> list[Incarnation]:
    """Marked processes and zombie children that were not there before; what is kept for life is allowed."""
    allowed, _ = kept_for_life()
    fresh = all_processes() - before.processes - allowed
    known = (incarnation(pid) for pid in fresh if mark.is_on(pid) or is_own_zombie(pid))
    return [who for who in known if who]


def is_own_zombie(pid: int) -> bool:
    known = status(pid)
    return known is not None and known[0] == "Z" and known[1] == os.getpid()


def leftovers(before: Snapshot, mark: Mark) -> list[str]:
    """One line for each thing that is there now and was not there before."""
    _, kept_fds = kept_for_life()
    now = take()
    lines = [f"process {describe(who.pid)}" for who in new_processes(before, mark)]
    lines += [f"thread {t.name!r}" for t in threading.enumerate() if t.ident not in before.threads]
    fresh = sorted(now.descriptors - before.descriptors)
    lines += [f"descriptor {fd} -> {target}" for fd, target in fresh if fd not in kept_fds]
    lines += [f"/dev/shm/{name}" for name in sorted(now.shm - before.shm) if not is_of_others(name, mark)]
    lines += [f"{tempfile.gettempdir()}/{name}" for name in sorted(now.temp - before.temp)]
    return lines


def is_of_others(shm_name: str, mark: Mark) -> bool:
    """Whether shared memory belongs to somebody else: other people use this machine too.

    Semaphores are never ours (the engine has none), and their owner, if killed, cannot be told. What torch shares by name
    is removed by its manager, soon after the process has ended; ours, if it is killed, leaves a folder in our temporary
    directory, and so is noticed.
    """
    if shm_name.startswith("sem.mp-"):
        return True
    if named := re.search(r"_(\d+)_", shm_name):  # joblib and torch put the number of the process into the name
        pid = int(named[1])
        if not os.path.exists(f"/proc/{pid}"):
            if shm_name.startswith("torch_"):
                return True
        elif pid != os.getpid() and not mark.is_on(pid):
            return True
    holders = (pid for pid in all_processes() if f"/dev/shm/{shm_name}" in read(PROC / str(pid) / "maps"))
    return any(pid != os.getpid() and not mark.is_on(pid) for pid in holders)


def describe(pid: int) -> str:
    known = status(pid)
    command = read(PROC / str(pid) / "cmdline").replace("\0", " ").strip()
    name = read(PROC / str(pid) / "comm").strip()
    state, parent = known[:2] if known else ("?", 0)
    return f"{pid} ({name}, state {state}, parent {parent}): {command[:120]}"


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Ask until the answer is yes or the time is over."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def kill(processes: Iterable[Incarnation]) -> None:
    for who in processes:
        if is_running(who):
            os.kill(who.pid, signal.SIGKILL)


def reap(processes: Iterable[Incarnation]) -> None:
    """Wait for the end of processes that were killed; those that are our children become zombies first."""
    for who in processes:
        wait_until(partial(has_ended, who), 2)
        if is_own_zombie(who.pid):
            os.waitpid(who.pid, os.WNOHANG)
