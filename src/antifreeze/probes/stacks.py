"""The Python stacks of another process, taken from outside with py-spy; nothing where that may not be."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from traceback import FrameSummary

from antifreeze.probes.bounded import ask
from antifreeze.probes.patient.notes import STACK_SIGNAL
from antifreeze.probes.places import is_ours, is_users

WITHIN_S = 5.0
SIGNALLED_WITHIN_S = 0.5


def main_stack(pid: int) -> list[FrameSummary]:
    """Of the main thread, the innermost frame first; empty if it cannot be had."""
    spy = _spy()
    if spy is None:
        return []
    try:
        answer = subprocess.run(
            [spy, "dump", "--json", "--pid", str(pid)], capture_output=True, timeout=WITHIN_S, check=True
        )
        threads = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    thread = next((each for each in threads if each.get("thread_name") == "MainThread"), None)
    thread = thread or next((each for each in threads if each.get("os_thread_id") == pid), None)
    if thread is None:
        return []
    return [
        FrameSummary(frame["filename"], frame["line"], frame["name"], lookup_line=False) for frame in thread["frames"]
    ]


def signalled_stack(pid: int, written_to: Path) -> list[FrameSummary]:
    """The same, written by the process itself when it gets our signal; only for those that expect it."""
    if not written_to.exists():
        return []
    before = written_to.stat().st_size
    ask(pid, STACK_SIGNAL)
    deadline = time.monotonic() + SIGNALLED_WITHIN_S
    while written_to.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.05)
    with written_to.open("rb") as file:
        file.seek(before)
        return current_stack(file.read().decode(errors="replace"))


def current_stack(said: str) -> list[FrameSummary]:
    """The stack of the thread that faulthandler calls the current one, the last time that it wrote."""
    _, _, current = said.rpartition("Current thread")
    thread = re.split(r"\n\s*\n|\nThread ", current)[0]
    return [
        FrameSummary(file, int(line), function, lookup_line=False)
        for file, line, function in re.findall(r'File "([^"]+)", line (\d+) in (.+)', thread)
    ]


def _spy() -> str | None:
    """The one that is installed beside this Python, or else any."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def own_part(stack: list[FrameSummary]) -> list[FrameSummary]:
    """What a worker is at: the stack of a forked one goes on with that of its trainer."""
    for place, frame in enumerate(stack):
        if frame.name == "_worker_loop":
            return stack[: place + 1]
    return stack


def library_of(stack: list[FrameSummary]) -> str:
    """The package, or the module of the standard library, that the innermost frame belongs to; empty: the user's own."""
    if not stack or is_users(stack[0].filename) or is_ours(stack[0].filename):
        return ""
    parts = Path(stack[0].filename).parts
    for directory in ("site-packages", "dist-packages"):
        if directory in parts[:-1]:
            return parts[len(parts) - parts[::-1].index(directory)].removesuffix(".py")
    return Path(stack[0].filename).stem
