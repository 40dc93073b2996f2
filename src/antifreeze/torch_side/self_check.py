"""Whether our engine can run on this torch: asked when the first loader starts.

1. `requirements`: the names and signatures that the engine needs are there.
2. `known`: our test suite has passed on this release. Else
3. `trial`: a small epoch on our engine equals torch's own, batch for batch. Its result is kept in the cache folder, by
   torch build, antifreeze and Python.

A trial never runs in the trainer, whose random state, signals, descriptors and output it must not touch. It runs in a
fork of the trainer, which costs no import of torch, works in frozen programs and leaves CUDA and threads of the trainer
alone. A fork has the locks and the patches of the trainer, too; so only success counts there. Where the fork fails, or
the program has asked for another start method, a fresh interpreter decides: it imports torch and nothing of the user's.

What fails leaves the loader to torch. A comparison that was made is kept, and what our engine raised; a trial that died,
was too late, or met a fault of the machine is made again by the next process. A failure is kept for a day, because nobody
would look for a file that keeps the engine from running.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import process as processes
from multiprocessing import spawn, util
from pathlib import Path
from typing import Any, NoReturn

import torch

from antifreeze.engine.backends import interruptions, process
from antifreeze.engine.backends.executable import why_no_fresh_process
from antifreeze.engine.backends.stem import quieten
from antifreeze.engine.showing import show
from antifreeze.engine.worker.threads import end_openmp_pools
from antifreeze.errors import ArenaError, WorkerLost
from antifreeze.observe.files import cache_folder, replace_file
from antifreeze.torch_side import requirements, trial
from antifreeze.torch_side.known import is_known

# A trial takes half a second of processor time. A machine on which it takes fifty times as long has other worries.
FORK_DEADLINE_S = 30.0
FRESH_DEADLINE_S = 90.0
END_DEADLINE_S = 2.0
# One that was killed ends at once, unless the machine has no time for it; and would stay as a zombie if nobody waited.
KILLED_DEADLINE_S = 30.0
FAILURE_KEPT_S = 24 * 3600.0
# Of what a trial reports.
MOST_BYTES = 4096

Ours = Callable[[Any], Any]
"""Our iterator: takes a loader."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended."""

    failed: str | None
    """What went wrong, in words; None: nothing."""
    is_certain: bool = True
    """Whether it would end so again: batches were compared with those of torch's workers, or our engine raised."""


# Programs replace `json.dumps` and `json.loads` by faster ones, which take other arguments.
_dump = json.JSONEncoder(sort_keys=True).encode
_load = json.JSONDecoder().decode

_outcome: Outcome | None = None
"""Of this process; None: nobody has asked yet."""


def why_unfit(ours: Ours, *, may_fork: bool) -> str | None:
    """Why our engine cannot run on this torch; None if it can.

    `may_fork`: whether the program leaves it to us to fork. Two threads that ask at once both try, and agree.
    """
    global _outcome
    lacking = requirements.why_unfit()
    if lacking is not None or is_known(torch.__version__):
        return lacking
    if _outcome is None:
        _outcome = _kept() or _tried(ours, may_fork=may_fork)
    if _outcome.failed is None:
        return None
    return f"torch {torch.__version__} has failed the self-check: {_outcome.failed}"


def _tried(ours: Ours, *, may_fork: bool) -> Outcome:
    outcome = Outcome("it was not tried", is_certain=False)
    if may_fork:
        outcome = _in_fork(ours)
    if outcome.failed is not None and why_no_fresh_process() is None:
        outcome = _in_fresh_process()
    if outcome.is_certain and (outcome.failed is None or why_no_fresh_process() is None):
        _keep(outcome)
    return outcome


# --- results of earlier processes


def _subject() -> dict[str, str]:
    """What a result is about."""
    return {
        "torch": torch.__version__,
        "torch_build": str(getattr(torch.version, "git_version", "")),
        "antifreeze": sys.modules["antifreeze"].__version__,
        "python": sys.version,
    }


def _file_of(subject: dict[str, str]) -> Path:
    digest = hashlib.sha256(_dump(subject).encode()).hexdigest()
    return cache_folder() / f"torch-{torch.__version__}-{digest[:16]}.json"


def _kept() -> Outcome | None:
    """What an earlier process has found; None: nothing that can be read."""
    subject = _subject()
    try:
        path = _file_of(subject)
        kept = _load(path.read_text(encoding="utf-8"))
        is_old = abs(time.time() - path.stat().st_mtime) > FAILURE_KEPT_S
        if kept["subject"] == subject and isinstance(kept["failed"], str | None) and not (kept["failed"] and is_old):
            return Outcome(kept["failed"])
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or it is of another make
        pass
    return None


def _keep(outcome: Outcome) -> None:
    subject = _subject()
    with contextlib.suppress(OSError):  # then the next process tries again
        replace_file(_file_of(subject), _dump({"subject": subject, "failed": outcome.failed}) + "\n")


# --- the trial in a fork


def _in_fork(ours: Ours) -> Outcome:
    began = time.monotonic()
    interruptions.let_through(util._flush_std_streams)  # type: ignore[attr-defined]  # as before every fork of ours
    with interruptions.held(), contextlib.ExitStack() as ends:
        end_openmp_pools()
        try:
            reading, writing = _pipe(ends)
            lifeline, held = _pipe(ends)
            pid = process.fork()
        except OSError as error:
            return Outcome(f"no process could be had for it: {show(error)}", is_certain=False)
        if pid == 0:
            os.close(held)
            _be_trial(ours, writing, lifeline)
        try:
            pidfd = process.watch_child(pid)
        except OSError as error:
            return Outcome(f"no process could be watched: {show(error)}", is_certain=False)
        ends.callback(os.close, pidfd)
        outcome: Outcome | None = None
        try:
            deadline = began + FORK_DEADLINE_S
            outcome = interruptions.let_through(lambda: _await(reading, pidfd, deadline=deadline))
            return outcome
        finally:
            _end(pid, pidfd, patience_s=0.0 if outcome is None else END_DEADLINE_S)


def _pipe(ends: contextlib.ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    ends.callback(os.close, reading)
    ends.callback(os.close, writing)
    return reading, writing


def _await(reading: int, pidfd: int, *, deadline: float) -> Outcome:
    """What a trial reports: a line; other processes may hold the other end for longer."""
    report = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        ready = {fd for fd, _ in poll.poll(min(left, process.SLICE_S) * 1000)}
        if reading in ready:
            report += os.read(reading, MOST_BYTES)
            if report.endswith(b"\n"):
                return _read(report)
        elif pidfd in ready:
            return Outcome("the process that tried it has ended without a word", is_certain=False)
    return Outcome(f"it did not end within {FORK_DEADLINE_S:g} s", is_certain=False)


def _end(pid: int, pidfd: int, *, patience_s: float) -> None:
    """It ends by itself when it has reported; else it is ended, with its workers."""
    if process.wait_ended([pidfd], deadline=time.monotonic() + patience_s):
        process.kill(pidfd)  # by itself: it may not lead its group yet
        process.kill_group(pid)
        process.wait_ended([pidfd], deadline=time.monotonic() + KILLED_DEADLINE_S)
    process.reap(pid)


def _be_trial(ours: Ours, writing: int, lifeline: int) -> NoReturn:
    """In the fork: whatever it does here is lost with it."""
    _users = sys.stdin, sys.stdout, sys.stderr  # kept, so that a destructor of the user's does not run here
    try:
        quieten()
        process.die_with(lifeline)
        _end_with_deadline(FORK_DEADLINE_S)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nowhere, fd)
        sys.stdin = sys.stdout = sys.stderr = open(os.devnull, "r+", encoding="utf-8")  # noqa: SIM115
        sys.settrace(None)
        sys.setprofile(None)
        gc.freeze()  # objects of the program are not to be ended here
        processes.current_process()._config.pop("daemon", None)  # type: ignore[attr-defined]
        # Threads of OpenMP are not in a fork, and an old libgomp, as torch 2.6 brings it, would wait for them.
        torch.set_num_threads(1)
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
        os.write(writing, report(ours))
    finally:
        os._exit(0)


def _end_with_deadline(seconds: float) -> None:
    """Have the kernel end this process if nobody else does."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(seconds))


# --- the trial in a fresh process

_PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from antifreeze.iterator import Iterator
from antifreeze.torch_side import self_check
self_check.be_fresh_trial(Iterator)
"""


def _in_fresh_process() -> Outcome:
    path = [
        entry for entry in sys.path if isinstance(entry, str) and "\0" not in entry
    ]  # Python passes over others, too
    command = [os.fsdecode(spawn.get_executable()), "-P", "-c", _PROGRAM, *path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIFREEZE")}
    environment |= {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    quiet: Any = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    try:
        started = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    except OSError as error:
        return Outcome(f"no process could be started for it: {show(error)}", is_certain=False)
    with started:
        try:
            said, _ = started.communicate(timeout=FRESH_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return Outcome(f"it did not end within {FRESH_DEADLINE_S:g} s", is_certain=False)
        finally:
            if started.poll() is None:
                process.kill_group(started.pid)
    if not said.endswith(b"\n"):
        how = process.how_it_ended(started.returncode)
        return Outcome(f"the process that tried it {how}, without a word", is_certain=False)
    return _read(said)


def be_fresh_trial(ours: Ours) -> NoReturn:
    """All that a fresh process does."""
    _end_with_deadline(FRESH_DEADLINE_S)
    os.write(1, report(ours))
    os._exit(0)


# --- in either


def report(ours: Ours) -> bytes:
    """Run the trial in this process, which is there for nothing else; a line for the one who asked for it."""
    global _outcome
    _outcome = Outcome(None)  # the loaders of the trial are not tried
    for name in [name for name in os.environ if name.startswith("ANTIFREEZE")]:
        del os.environ[name]
    os.environ["ANTIFREEZE"] = "require"
    warnings.simplefilter("ignore")
    try:
        found = trial.run(ours)
        outcome = Outcome(found.difference, is_certain=found.torchs_failure is None)
    except (OSError, MemoryError, ArenaError, WorkerLost) as error:  # descriptors, memory, processes: of the machine
        outcome = Outcome(show(error), is_certain=False)
    except BaseException as error:  # whatever it is: it is told, and this process ends
        outcome = Outcome(show(error))
    text = None if outcome.failed is None else " ".join(outcome.failed.split())[: MOST_BYTES // 8]
    return _dump({"failed": text, "is_certain": outcome.is_certain}).encode() + b"\n"


def _read(said: bytes) -> Outcome:
    try:
        found = _load(said.decode())
        return Outcome(found["failed"], found["is_certain"])
    except (ValueError, LookupError):
        return Outcome("what it reported cannot be read", is_certain=False)
