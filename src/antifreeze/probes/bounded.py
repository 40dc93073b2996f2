"""Runs a program to its end or to a deadline, whichever comes first; nothing of it goes on after that.

The program gets a process group of its own, and what is left of the group is killed when we leave, for whatever reason we
leave. Its output goes to files: a pipe that some descendant keeps open would make us wait for that one. A program that is
examined carries a mark in its environment, too, by which those of its processes are found that have left the group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, Self

from antifreeze import machine

# A process that is killed while it forks leaves a child: look again until there is none.
KILL_WITHIN_S = 5.0
# Multiprocessing and torch each have a process that outlives the others and removes what they have left in /dev/shm.
_TIDY = ("multiprocessing.resource_tracker", "torch_shm_manager")
TIDY_WITHIN_S = 1.5


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended and what it said."""

    exit_status: int | None
    """None if it had to be stopped."""
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_words(self) -> str:
        """The line that names the error: what surrounds it in a traceback is indented."""
        lines = [line for line in self.stderr.splitlines() if line.strip() and not line[0].isspace()]
        return lines[-1] if lines else f"exit status {self.exit_status}, without a word"


def run_bounded(command: Sequence[str], *, timeout_s: float, environ: Mapping[str, str]) -> ProgramResult:
    with tempfile.TemporaryDirectory(prefix="antifreeze-") as directory:
        stdout, stderr = Path(directory, "stdout"), Path(directory, "stderr")
        began = time.monotonic()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, start_new_session=True
            )
        exit_status = _wait_exit(process, timeout_s=timeout_s)
        seconds = time.monotonic() - began
        return ProgramResult(exit_status, _text(stdout), _text(stderr), seconds)


def _wait_exit(process: subprocess.Popen[bytes], *, timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:  # also after Ctrl-C, which does not reach a group that is not ours
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # no process is left; macOS says so with PermissionError
        os.killpg(process.pid, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


class TargetProcess:
    """A program that is examined: started on entering, and on leaving all of it is gone."""

    def __init__(
        self, command: Sequence[str], *, environ: Mapping[str, str], mark: str, stdout: Path, stderr: Path
    ) -> None:
        self._command = command
        self._environ = environ
        self._mark = mark
        self._outputs = stdout, stderr
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        stdout, stderr = self._outputs
        with stdout.open("wb") as out, stderr.open("wb") as err:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self._environ,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self._kill_all(but=_tidies_up, within_s=KILL_WITHIN_S)
            deadline = time.monotonic() + TIDY_WITHIN_S
            while self.pids() and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            _kill_group(self._process)
            self._kill_all(but=lambda pid: False, within_s=KILL_WITHIN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it, in a read that never returns
                self._process.wait(KILL_WITHIN_S)

    def _kill_all(self, *, but: Callable[[int], bool], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while (left := [pid for pid in self.pids() if not but(pid)]) and time.monotonic() < deadline:
            for pid in left:
                kill(pid)
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def exit_status(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def pids(self) -> list[int]:
        """All processes of it that run."""
        variable = self._mark
        return machine.started_with_variable(variable, self._environ[variable])


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Leave by an exception, as after Ctrl-C, when a scheduler or a closed terminal tells us to end."""
    signals = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {signum: signal.signal(signum, _leave) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)


def _tidies_up(pid: int) -> bool:
    """Whether it removes shared memory when those who made it have ended, and then ends by itself."""
    kin = machine.kin_of(pid)
    return kin is not None and any(name in word for word in kin.command for name in _TIDY)


def kill(pid: int) -> None:
    """End a process of the target, wherever it is; one that is stopped, too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def ask(pid: int, signum: int) -> None:
    """Send a signal that a process of the target expects."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
