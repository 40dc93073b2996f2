"""Python stacks of other processes, by py-spy: a program of its own, which stops a process for milliseconds to read it.

Every question has its deadline. A process that sleeps, cannot be stopped, or is stopped already, is read as it is: nothing
on its stack changes meanwhile, and the kernel goes on counting for how long it has slept.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antifreeze import machine
from antifreeze.engine.supervise.stacks import Frame

ANSWERS_WITHIN_S = 4.0
# Symbols of torch's libraries are hundreds of megabytes.
ANSWERS_NATIVE_WITHIN_S = 8.0
_AT_ONCE = 8
_ASLEEP_S = 0.2
_CANNOT_BE_STOPPED = ("D", "T", "t")


@dataclass(frozen=True, slots=True)
class Call:
    """One frame of a stack."""

    frame: Frame
    values: Mapping[str, str] = field(default_factory=dict)
    """Its variables, as py-spy writes them."""
    is_native: bool = False


@dataclass(frozen=True, slots=True)
class SpiedThread:
    """What one thread is at."""

    id: int
    """The kernel's number of it."""
    name: str
    has_gil: bool
    calls: tuple[Call, ...]
    """The innermost first."""


@dataclass(frozen=True, slots=True)
class Spied:
    """What py-spy has to say about a process."""

    threads: tuple[SpiedThread, ...] = ()
    error: str = ""
    """Why it has nothing to say, in its words."""

    def main(self, pid: int) -> SpiedThread | None:
        return next((thread for thread in self.threads if thread.id == pid), None)


def find_spy() -> str | None:
    """The program: beside our Python, or wherever it can be found."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def stacks_of(pids: Collection[int], *, native: bool = False) -> dict[int, Spied]:
    """The stacks of all of these, asked for at the same time."""
    program = find_spy()
    if program is None:
        return dict.fromkeys(pids, Spied(error="py-spy is not installed"))
    asleep = {} if native else machine.asleep_s(pids)

    def ask(pid: int) -> Spied:
        read_only = Spied(error="") if asleep.get(pid, 0.0) < _ASLEEP_S else _ask(program, pid, "--nonblocking")
        return read_only if read_only.threads else _ask(program, pid, *(["--native"] if native else []))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="spy") as pool:
        return dict(zip(pids, pool.map(ask, pids), strict=True))


def _ask(program: str, pid: int, *options: str) -> Spied:
    facts = machine.process_facts(pid)
    if facts is None or facts.state in "ZX":
        return Spied(error="it has ended")
    if facts.state in _CANNOT_BE_STOPPED or facts.tracer_pid:
        options = ("--nonblocking",)
    command = [program, "dump", "--pid", str(pid), "--json", "--locals", *options]
    timeout_s = ANSWERS_NATIVE_WITHIN_S if "--native" in options else ANSWERS_WITHIN_S
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Spied(error=f"py-spy did not answer within {timeout_s:.0f} s")
    except OSError as error:
        return Spied(error=f"py-spy could not be started: {error}")
    if answer.returncode:
        return Spied(error=_gist(answer.stderr.decode(errors="replace")))
    try:
        return Spied(threads=tuple(map(_thread, json.loads(answer.stdout))))
    except (ValueError, KeyError, TypeError) as error:
        return Spied(error=f"py-spy's answer makes no sense: {error!r}")


def _gist(said: str) -> str:
    """The lines that matter of an error message: without the backtrace of py-spy itself."""
    lines = [line.strip() for line in said.partition("Stack backtrace")[0].splitlines()]
    return " ".join(line for line in lines if line and line != "Caused by:") or "py-spy failed without a word"


def _thread(plain: dict[str, Any]) -> SpiedThread:
    calls = tuple(map(_call, plain["frames"]))
    return SpiedThread(plain.get("os_thread_id") or 0, plain.get("thread_name") or "", bool(plain["owns_gil"]), calls)


def _call(plain: dict[str, Any]) -> Call:
    name = plain["name"]
    is_native = plain["module"] is not None
    if not is_native:
        name = name.rpartition(".")[2]  # other sources of stacks know no class, and checks read all alike
    values = {each["name"]: each["repr"] or "" for each in plain["locals"] or ()}
    return Call(Frame(plain["filename"], plain["line"], name), values, is_native)
