"""Faults that come from the trainer between two batches: all workers, the stem or the clean base are killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from antifreeze.engine.backends import clean
from chaos.faults import Fault
from chaos.judge import Struck


def strike(fault: Fault, iterator: Any) -> Callable[[], Struck]:
    """Do it; what is returned tells, when the epoch is over, what it did."""
    pool = getattr(iterator._epoch, "_pool", None)
    if pool is None:  # no process could be had, and the trainer makes the batches itself
        return lambda: Struck((), has_new_source=False)
    stems, base, pids = len(pool._stems.all), clean.base_pid(), []
    if fault.kind == "all workers killed":
        for worker in pool.workers:
            _ = worker.pid  # waits for its birth
            pids += _kill(worker)
        return lambda: Struck(tuple(pids), has_new_source=bool(pids))
    if fault.kind == "clean base killed" and base is not None:
        os.kill(base, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it ended with the base
        signal.pidfd_send_signal(pool.stem.pidfd, signal.SIGKILL)
    # Nobody misses a stem as long as nobody has to be replaced.
    pids += _kill(pool.workers[fault.worker or 0])
    if fault.kind == "clean base killed":
        return lambda: Struck(tuple(pids), has_new_source=clean.base_pid() not in (None, base))
    return lambda: Struck(tuple(pids), has_new_source=len(pool._stems.all) > stems)


def _kill(worker: Any) -> list[int]:
    if worker.pidfd is None:  # not born yet
        return []
    with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody has noticed yet
        signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
        return [worker.known_pid]
    return []
