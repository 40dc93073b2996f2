"""One cell of the table: an example of the articles, run on one engine with one start method, and what became of it.

Every cell is a process session of its own with a limit on its time. Whatever it started is found by a mark in the
environment, and is gone when `run_cell` returns. This file says what happened; `page.py` writes it down, `drive.py`
decides what to run. Linux only: it looks into `/proc`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Long enough for torch's spawn to import torch in four workers, one after another, on two busy cores.
TIME_LIMIT_S = 30.0
# The promise for example freezing_2: an error that comes later than this is as good as a freeze.
ERROR_LIMIT_S = 20.0
# How long processes may take to leave after the script has ended (torch's resource tracker is a process, too).
LEAVE_LIMIT_S = 2.0
# At the limit we look for this long whether anything still computes: if so it is slow, if not it hangs.
LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Example:
    """A script of this folder."""

    name: str
    ends_in_error: bool = False
    """No sample of it can be delivered: what is wanted is an error that names a sample's index and `None`."""

    @property
    def script(self) -> Path:
        return HERE / f"{self.name}.py"


@dataclass(frozen=True, slots=True)
class Column:
    """An engine and a start method."""

    engine: str
    start_method: str

    @property
    def title(self) -> str:
        return f"{self.engine} {self.start_method}"

    def command(self, script: Path) -> list[str]:
        launcher = ["-m", "antifreeze", "run"] if self.engine == "antifreeze" else []
        return [sys.executable, *launcher, str(script)]


EXAMPLES = (
    Example("freezing_1_file_reads"),
    Example("freezing_2_exception_in_worker", ends_in_error=True),
    Example("freezing_3_lock_around_reads"),
    Example("runtime_errors_1_shared_memory"),
    Example("runtime_errors_2_pickling"),
    Example("runtime_errors_3_opencv"),
)
START_METHODS = ("fork", "spawn", "forkserver")
COLUMNS = tuple(Column(engine, method) for engine in ("torch", "antifreeze") for method in START_METHODS)


@dataclass(frozen=True, slots=True)
class Usage:
    """One multi-worker iterator, as the engine wrote it down in ANTIFREEZE_USAGE."""

    engine: str
    stem: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a script ended, as seen from outside."""

    exit_code: int | None
    """None: it was still running at the limit and was stopped."""
    busy: bool
    """Stopped at the limit, but something in it was still computing."""
    seconds: float
    stdout: str
    stderr: str
    usage: tuple[Usage, ...]
    left_behind: tuple[str, ...]
    """Processes and temporary files that were still there after the script had ended by itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A verdict on one ending."""

    example: Example
    column: Column
    ending: Ending

    @property
    def outcome(self) -> str:
        """One of ok, error, hang, slow."""
        if self.ending.exit_code is None:
            return "slow" if self.ending.busy else "hang"
        return "error" if self.ending.exit_code else "ok"

    @property
    def samples(self) -> tuple[int, int] | None:
        """Samples right, of how many; None if the script did not come to say it."""
        said = re.findall(r"^samples right: (\d+) of (\d+)$", self.ending.stdout, re.MULTILINE)
        return (int(said[-1][0]), int(said[-1][1])) if said else None

    @property
    def last_words(self) -> str:
        """The error in one line, and why if that stands elsewhere in its output."""
        if self.outcome == "ok":
            return ""
        about_none = line_about_none(self.ending.stderr) if self.example.ends_in_error and self.delivered else ""
        error = about_none or last_error_line(self.ending.stderr)
        words = {"error": error, "hang": "no error, no progress", "slow": "still computing"}[self.outcome]
        unguarded = "bootstrapping phase" in self.ending.stderr
        return words + (" (in a worker: no main guard, “bootstrapping phase”)" if unguarded else "")

    @property
    def delivered(self) -> bool:
        """The script did what it is there for: all samples right, or the error that tells the user what is wrong."""
        if self.example.ends_in_error:
            named = named_none_sample(self.ending.stderr)
            return self.outcome == "error" and named is not None and self.ending.seconds <= ERROR_LIMIT_S
        return self.outcome == "ok" and self.samples is not None and self.samples[0] == self.samples[1] > 0

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this cell is not as it must be on our engine; empty if it is."""
        found = [] if self.delivered else [self.last_words or self.outcome]
        if not self.ending.usage:
            found.append("no loader said which engine it ran on")
        found += [f"fell back to torch: {use.reason}" for use in self.ending.usage if use.engine != "antifreeze"]
        found += [f"left behind: {thing}" for thing in self.ending.left_behind]
        return tuple(found)


def last_error_line(stderr: str) -> str:
    """The last line that looks like an exception's, without what changes from run to run."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?:\w+\.)*[A-Z]\w*: \S", line)]
    line = (errors or lines or ["(nothing on stderr)"])[-1].strip()
    return re.sub(r"0x[0-9a-f]+", "0x…", re.sub(r"\b(pids?|pid\(s\)) \d+(?:, \d+)*", r"\1 …", line))


def named_none_sample(stderr: str) -> int | None:
    """The sample's index if the error says `None` and which sample it was; freezing_2 asks for 39, 38, … 30 first."""
    index = re.search(r"\b(?:index|sample)\b[^\d\n]{0,20}\b(3\d)\b", message_of(stderr))
    return int(index[1]) if index and line_about_none(stderr) else None


def line_about_none(stderr: str) -> str:
    """The line of the error that has the word None in it, or nothing."""
    return next((line.strip() for line in message_of(stderr).splitlines() if re.search(r"\bNone\b", line)), "")


def message_of(stderr: str) -> str:
    """What the last exception says, without its stack: source that is quoted there has the word None in it, too."""
    report = re.split(r"^Traceback \(most recent call last\):$", stderr, flags=re.MULTILINE)[-1]
    return "\n".join(line for line in report.splitlines() if not re.match(r" {4,}|  File ", line))


def run_cell(example: Example, column: Column, *, time_limit_s: float = TIME_LIMIT_S) -> Cell:
    """Run one example, and leave nothing of it behind."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="articles-drive-") as folder:
        temporary = Path(folder, "tmp")
        temporary.mkdir()
        usage_file = Path(folder, "usage.jsonl")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIFREEZE")}
        environment |= {"ARTICLES_MARK": mark, "ARTICLES_START_METHOD": column.start_method, "TMPDIR": str(temporary)}
        if column.engine == "antifreeze":
            environment |= {"ANTIFREEZE": "require", "ANTIFREEZE_USAGE": str(usage_file)}
        # Files, not pipes: a worker that outlives the script must not keep us waiting for an end of file.
        with Path(folder, "stdout").open("wb") as stdout, Path(folder, "stderr").open("wb") as stderr:
            started = time.monotonic()
            process = subprocess.Popen(
                column.command(example.script),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=temporary,
                start_new_session=True,
            )
            try:
                exit_code, busy = wait_exit(process, mark=mark, time_limit_s=time_limit_s)
                seconds = time.monotonic() - started
                left = [] if exit_code is None else wait_gone(mark)
            finally:
                kill_marked(mark)
                process.wait()
        if exit_code is not None:
            left += [f"temporary file {path.name}" for path in temporary.iterdir()]
        ending = Ending(
            exit_code=exit_code,
            busy=busy,
            seconds=seconds,
            stdout=Path(folder, "stdout").read_text(errors="replace"),
            stderr=Path(folder, "stderr").read_text(errors="replace"),
            usage=read_usage(usage_file),
            left_behind=tuple(left),
        )
    return Cell(example, column, ending)


def wait_exit(process: subprocess.Popen[bytes], *, mark: str, time_limit_s: float) -> tuple[int | None, bool]:
    """The exit code, or None and whether anything was still computing at the limit."""
    try:
        return process.wait(max(time_limit_s - LOOK_S, 0)), False
    except subprocess.TimeoutExpired:
        before_s = sum(marked(mark).values())
    try:
        return process.wait(LOOK_S), False
    except subprocess.TimeoutExpired:
        return None, sum(marked(mark).values()) - before_s > 0.1 * LOOK_S


def marked(mark: str) -> dict[int, float]:
    """Living processes with the mark in their environment (those of one cell), and the CPU seconds each has used."""
    wanted = f"ARTICLES_MARK={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone in the meantime, or not ours to look at
        if state != "Z":
            found[int(folder.name)] = (int(fields[10]) + int(fields[11])) / os.sysconf("SC_CLK_TCK")
    return found


def wait_gone(mark: str) -> list[str]:
    """Who is still there LEAVE_LIMIT_S after the script has ended."""
    deadline = time.monotonic() + LEAVE_LIMIT_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"process {pid}" for pid in left]


def kill_marked(mark: str) -> None:
    """Kill until nobody is left: between a look and a kill one of them may have forked."""
    deadline = time.monotonic() + 10
    while left := marked(mark):
        if time.monotonic() > deadline:
            raise RuntimeError(f"could not kill {list(left)}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def read_usage(file: Path) -> tuple[Usage, ...]:
    if not file.exists():
        return ()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return tuple(Usage(line["engine"], line["stem"], line["reason"]) for line in lines)
