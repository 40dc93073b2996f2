"""Builds and deletes an environment with one release of torch, and runs programs in it, each with a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# CUDA builds of torch are downloads of 2 to 4 GB.
INSTALL_TIMEOUT_S = 3600
# What pip needs at most while it unpacks such a build.
MIN_FREE_BYTES = 16 * 2**30


class NotRun(Exception):
    """A program could not be run to its end; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder with a Python, a torch, our package and our development tools."""

    folder: Path
    log: Path
    """All that the programs print."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def cache(self) -> Path:
        """The cache folder of its programs, apart from the user's."""
        return self.folder / "cache"

    def forget(self) -> None:
        """Delete what earlier programs have kept: the result of a self-check, above all."""
        shutil.rmtree(self.cache, ignore_errors=True)

    def run(self, *words: str, timeout_s: float, may_fail: bool = False) -> None:
        """Run a program of this environment. Raises NotRun if it fails or does not end in time."""
        self._run([self.python, *words], timeout_s, {"XDG_CACHE_HOME": str(self.cache)}, may_fail=may_fail)

    def install(self, *words: str) -> None:
        """Have pip install something; it keeps its downloads in the cache of this user."""
        command = [self.python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", *words]
        self._run(command, INSTALL_TIMEOUT_S, {}, may_fail=False)

    def _run(self, command: list[str], timeout_s: float, variables: dict[str, str], *, may_fail: bool) -> None:
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            status = run_within(timeout_s, command, environment=clean_variables() | variables, output=log.fileno())
        if status is None:
            raise NotRun(f"did not end within {timeout_s:g} s")
        if status != 0 and not may_fail:
            raise NotRun(f"ended with exit status {status}; see {self.log.relative_to(ROOT)}")


def run_within(timeout_s: float, command: list[str], *, environment: dict[str, str], output: int) -> int | None:
    """Run a program in a session of its own; returns its exit status, or None if it was killed at its deadline."""
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return started.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def clean_variables() -> dict[str, str]:
    """The environment variables without those that would lead to another Python, or change how we behave."""
    foreign = ("ANTIFREEZE", "PYTHON", "PYTEST", "VIRTUAL_ENV", "OMP_", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


@contextmanager
def built(release: str, *, keep: bool, log: Path) -> Iterator[Environment]:
    """An environment with this release of torch; deleted at the end, unless it is to be kept. Raises NotRun.

    One that an earlier run has kept is used again: pip installs what is missing in it.
    """
    environment = Environment(Path(tempfile.gettempdir(), f"matrix-{release}"), log)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    try:
        _build(environment, release)
        yield environment
    finally:
        if not keep:
            shutil.rmtree(environment.folder, ignore_errors=True)


def _build(environment: Environment, release: str) -> None:
    folder = environment.folder
    if not folder.exists() and shutil.disk_usage(folder.parent).free < MIN_FREE_BYTES:
        raise NotRun(f"not installed: less than {MIN_FREE_BYTES >> 30} GiB are free in {folder.parent}")
    try:
        environment._run([sys.executable, "-m", "venv", str(folder)], INSTALL_TIMEOUT_S, {}, may_fail=False)
        constraints = folder / "constraints.txt"
        constraints.write_text(constraints_with(release, (ROOT / "constraints.txt").read_text()))
        environment.install("--constraint", str(constraints), "torch", "setuptools>=77")
        environment.install("--constraint", str(constraints), "--no-build-isolation", "--editable", ".[dev]")
    except NotRun as reason:
        raise NotRun(f"could not be installed: pip {reason}") from None


def constraints_with(release: str, ours: str) -> str:
    """Our constraints, with this torch and the setuptools that it asks for: 2.11 and 2.12 want an older one."""
    free = ("torch==", "setuptools==")
    lines = [f"torch=={release}", *(line for line in ours.splitlines() if not line.startswith(free))]
    return "\n".join(lines) + "\n"
