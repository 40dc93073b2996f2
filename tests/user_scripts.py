"""Runs the program of a user, in a process and a session of its own, and looks for what it left behind."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leftovers import Incarnation, all_processes, describe, has_environment, incarnation, is_running, kill, wait_until

RUN_VARIABLE = "ANTIFREEZE_TEST_SCRIPT"
SELFTEST = bool(os.environ.get("DROP_IN_SELFTEST"))
"""The tests run against themselves: 'ours' is torch's loader."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended and what it said."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float

    def check(self) -> "Ended":
        """Fail with everything the script said unless it ended well."""
        assert self.returncode == 0, f"{self}"
        return self

    def __str__(self) -> str:
        return (
            f"exit {self.returncode} after {self.seconds:.1f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        )


class Script:
    """A user's script that is running. `end` or `wait_exit` must be called; the fixture sees to it."""

    def __init__(
        self, path: Path, arguments: Sequence[str], *, environment: Mapping[str, str], via: str, wrapper: Sequence[str]
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._outputs = path.with_suffix(f".{self.mark[:6]}.out"), path.with_suffix(f".{self.mark[:6]}.err")
        launcher = ["-m", "antifreeze", "run"] if via == "antifreeze" and not SELFTEST else []
        command = [*wrapper, sys.executable, "-X", "faulthandler", *launcher, str(path), *arguments]
        self._since = time.monotonic()
        with self._outputs[0].open("wb") as out, self._outputs[1].open("wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=path.parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment, RUN_VARIABLE: self.mark},
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._outputs[0].read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._outputs[1].read_text(errors="replace")

    def wait_line(self, pattern: str, *, within_s: float) -> re.Match[str]:
        """Wait for a whole line of stdout that matches."""
        matcher = re.compile(rf"^{pattern}\n", re.MULTILINE)
        found = wait_until(lambda: bool(matcher.search(self.stdout)) or self.process.poll() is not None, within_s)
        match = matcher.search(self.stdout)
        assert found and match, f"no line {pattern!r} within {within_s} s\n{self.stdout}\n{self.stderr}"
        return match

    def alive(self) -> list[Incarnation]:
        """Every running process of this script, the script included."""
        marked = (incarnation(pid) for pid in all_processes() if has_environment(pid, RUN_VARIABLE, self.mark))
        return [who for who in marked if who and is_running(who)]

    def wait_exit(self, *, within_s: float) -> Ended:
        """Wait for the end; a script that hangs says where, is killed and fails the test."""
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks
            wait_until(lambda: self.process.poll() is not None, 2)
            who = [describe(one.pid) for one in self.alive()]
            self.end()
            raise AssertionError(
                f"still running after {within_s} s: {who}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
            ) from None
        return Ended(self.process.returncode, self.stdout, self.stderr, time.monotonic() - self._since)

    def assert_gone(self, *, within_s: float = 30.0) -> None:
        """No process of the script is left, or the test has failed."""
        if not wait_until(lambda: not self.alive(), within_s):
            left = [describe(who.pid) for who in self.alive()]
            self.end()
            raise AssertionError(f"left behind after {within_s} s: {left}\n{self.stdout}\n{self.stderr}")

    def end(self) -> None:
        """Kill whatever of it still runs."""
        wait_until(self._is_killed, 5)
        self.process.wait(5)

    def _is_killed(self) -> bool:
        kill(self.alive())
        return not self.alive()


StartScript = Callable[..., Script]
RunScript = Callable[..., Ended]


def selftest_text(text: str) -> str:
    """The script with torch's loader in the place of ours."""
    if not SELFTEST:
        return text
    return text.replace("from antifreeze import", "from torch.utils.data import")
