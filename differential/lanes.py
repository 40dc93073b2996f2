"""A lane: a process with torch imported that runs programs on one engine, each in a process that it forks.

Importing torch is most of what a small program costs, so it is done once for many. This is the runner's end of a lane;
the other ends are loaders/lane.py and warm.py. A line to its stdin is an order, a line of its stdout the answer to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from differential.engines import ROOT, environment

# Beyond the program's own time-out, for which the lane answers: then the lane itself hangs.
GRACE_S = 30.0
LOOK_EVERY_S = 0.01
HUNG = "hung"


class Lane:
    """The runner's end of a lane."""

    def __init__(self, engine: str, command: Sequence[str], folder: Path) -> None:
        self.engine, self._command, self._folder = engine, command, folder
        self._popen: subprocess.Popen[str] | None = None

    def give(self, order: dict[str, Any]) -> None:
        """Have it carry out an order; a lane that has ended is started again."""
        if self._popen is None or self._popen.poll() is not None:
            self._popen = self._start()
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(order) + "\n")
        self._popen.stdin.flush()

    def take(self, timeout_s: float) -> int | str:
        """The exit status of the program, or why there is none."""
        assert self._popen is not None and self._popen.stdout is not None
        if not select.select([self._popen.stdout], [], [], timeout_s + GRACE_S)[0]:
            self.end()
            return HUNG
        line = self._popen.stdout.readline()
        return json.loads(line)["status"] if line else f"the lane ended with status {self._popen.wait()}"

    def end(self) -> None:
        """End it, and all that it started."""
        if self._popen is not None:
            kill_group(self._popen.pid)
            self._popen.communicate()
            self._popen = None

    def _start(self) -> subprocess.Popen[str]:
        state = Path(tempfile.mkdtemp(prefix=f"state-{self.engine}-", dir=self._folder))
        return subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment(self.engine, state),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def wait_program(child: int, timeout_s: float) -> int | str:
    """In a lane: wait for the process that was forked for a program. One that hangs writes its stacks, and is killed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            kill_group(child)  # what a program leaves running is not to run beside the next
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK_EVERY_S)
    os.kill(child, signal.SIGABRT)
    time.sleep(0.5)
    kill_group(child)
    os.waitpid(child, 0)
    return HUNG


def kill_group(group: int) -> None:
    """Kill all processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
