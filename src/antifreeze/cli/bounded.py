"""Runs a program to its end or to a deadline, whichever comes first; nothing of it goes on after that.

The program gets a process group of its own, and what is left of the group is killed when we leave, for whatever reason we
leave. Its output goes to files: a pipe that some descendant keeps open would make us wait for that one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outcome:
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


def run_bounded(command: Sequence[str], *, timeout_s: float, environ: Mapping[str, str]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="antifreeze-") as directory:
        stdout, stderr = Path(directory, "stdout"), Path(directory, "stderr")
        began = time.monotonic()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, start_new_session=True
            )
        exit_status = _wait_exit(process, timeout_s=timeout_s)
        seconds = time.monotonic() - began
        return Outcome(exit_status, _text(stdout), _text(stderr), seconds)


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
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left; macOS says so with the latter
        os.killpg(process.pid, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
