"""What a stuck process waits for, from its stack and the kernel's word: each has one kind, and one check. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from antifreeze.doctor.cases import CAME, LoaderCase, are_one, at, touches
from antifreeze.doctor.facts import Outcome, Place, Stuck, Trial

_THREADS = re.compile(r"(^|/)(concurrent/futures/\w+|asyncio/\w+|queue|multiprocessing/pool|multiprocess/pool)\.py$")
_THREADING = re.compile(r"(^|/)threading\.py$")
_PROCESS_LOCK = re.compile(r"(^|/)multiprocess(ing)?/synchronize\.py$")
# `self.lock`, `_LOCK`, `rlock.acquire()`; not `block` and not `clock`.
_LOCK_WORDS = re.compile(r"(?<![a-z])r?lock(?![a-z])|mutex|semaphore|\.acquire\(|\.wait\(", re.IGNORECASE)
_NATIVE_POOL = re.compile(r"gomp|iomp|libomp|kmp_|openblas|rayon|tokenizers|polars|tbb|mkl|openmp", re.IGNORECASE)
# A process that computes uses most of a processor, also on a busy machine.
RUNNING_SHARE = 0.5


class Wait(StrEnum):
    """Why it makes no progress."""

    STOPPED = "is stopped"
    RUNNING = "computes"
    THREAD = "waits for a thread"
    PROCESS_LOCK = "waits for a lock that processes share"
    LOCK = "waits for a lock"
    NATIVE = "waits for a lock in native code"
    OUTSIDE = "waits for something outside"
    UNKNOWN = "waits"


def stuck_in(case: LoaderCase, *waits: Wait) -> Iterator[tuple[Trial, Stuck]]:
    """Those of a case who hang that way in code of the user's; a worker that died explains those who wait for it."""
    works = any(trial.is_as_written and trial.outcome in CAME for trial in case.trials)
    for trial in case.trials:
        if trial.outcome is not Outcome.HANG or trial.deaths:
            continue
        # What works as written and hangs later hangs by our own doing: the trial without workers has used the dataset here.
        if works and trial.workers:
            continue
        for stuck in trial.stuck:
            if is_at_work(stuck, trial) and wait_of(stuck, case) in waits:
                yield trial, stuck


def is_at_work(stuck: Stuck, trial: Trial) -> bool:
    """Whether it is stuck in the user's code, and does not only wait for others."""
    if stuck.stage in ("idle", "send", "left"):
        return False
    is_loading = stuck.role == "worker" or (stuck.role == "trainer" and not trial.workers)
    return is_loading and (stuck.stage is not None or stuck.place is not None or stuck.state in ("T", "t"))


def hangs_alone(case: LoaderCase, stuck: Stuck) -> bool:
    """Whether the program hangs at the same line without workers: then no fork is to blame."""
    alone = (
        each for trial in case.trials if not trial.workers and trial.outcome is Outcome.HANG for each in trial.stuck
    )
    return any(each.role == "trainer" and are_one(each.place, stuck.place) for each in alone)


def wait_of(stuck: Stuck, case: LoaderCase) -> Wait:
    if stuck.state in ("T", "t"):
        return Wait.STOPPED
    if stuck.waits_in is None:
        return Wait.RUNNING if stuck.state == "R" or stuck.cpu_share >= RUNNING_SHARE else Wait.UNKNOWN
    if stuck.waits_in != "lock":
        return Wait.OUTSIDE
    return _lock_of(stuck, case)


def _lock_of(stuck: Stuck, case: LoaderCase) -> Wait:
    above = frames_above(stuck)
    if any(_PROCESS_LOCK.search(frame.file) for frame in above):
        return Wait.PROCESS_LOCK
    if any(_THREADS.search(frame.file) for frame in above):
        return Wait.THREAD
    if any(
        _THREADING.search(frame.file) and frame.function in ("wait", "join", "_wait_for_tstate_lock") for frame in above
    ):
        return Wait.THREAD
    innermost = stuck.frames[0] if stuck.frames else stuck.place
    if innermost is not None and (_LOCK_WORDS.search(innermost.text) or _THREADING.search(innermost.file)):
        return Wait.LOCK
    if any(held.kind == "lock" and touches(held, [innermost]) for held in case.held):
        return Wait.LOCK
    if any(held.kind == "process-lock" and touches(held, [innermost]) for held in case.held):
        return Wait.PROCESS_LOCK
    return Wait.NATIVE


def frames_above(stuck: Stuck) -> list[Place]:
    """The frames of libraries between where it waits and the user's innermost line."""
    if stuck.place is None:
        return list(stuck.frames)
    above = []
    for frame in stuck.frames:
        if (frame.file, frame.line) == (stuck.place.file, stuck.place.line):
            break
        above.append(frame)
    return above


def is_native_pool(text: str) -> bool:
    """Whether it names a library that computes with threads of its own."""
    return bool(_NATIVE_POOL.search(text))


# --- words


def who(stuck: Stuck) -> str:
    """`worker 1 (pid 4243)`."""
    if stuck.role == "trainer":
        return "the program itself"
    return f"worker {stuck.worker} (pid {stuck.pid})" if stuck.worker is not None else f"a worker (pid {stuck.pid})"


def never_returned(stuck: Stuck, case: LoaderCase) -> str:
    """What a person sees: who is stuck with what, and who waits for it."""
    part = " the collate function" if stuck.stage == "collate" else " worker_init_fn" if stuck.stage == "init" else ""
    what = f"{who(stuck)} never came back from{part}{of_it(stuck)}"
    if case.is_live and stuck.role == "worker":
        what += f", and the training{at(case.waiting.place if case.waiting else None)} waits for it"
    elif stuck.role == "worker":
        what += ", and the training waits for it for ever"
    return what


def of_it(stuck: Stuck) -> str:
    if stuck.stage in ("collate", "init"):
        return ""
    return f" sample {stuck.sample}" if stuck.sample is not None else " its sample"


def sample_at(stuck: Stuck) -> str | None:
    """The sample that it is stuck at; none of them is to blame for what happens to a whole batch."""
    return None if stuck.stage in ("collate", "init") else stuck.sample


def state_of(stuck: Stuck) -> str:
    """`socket wait, 0 % CPU, 12 s`."""
    parts = [f"{stuck.waits_in} wait" if stuck.waits_in else f"state {stuck.state}" if stuck.state else ""]
    parts.append(f"{100 * stuck.cpu_share:.0f} % CPU")
    parts.append(f"{stuck.seconds:.0f} s" if stuck.seconds else "")
    parts.append(f"other samples take {stuck.typical_s:.3g} s" if stuck.typical_s else "")
    return ", ".join(part for part in parts if part)
