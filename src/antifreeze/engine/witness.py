"""What can be learned about a worker from outside: what it waits for, where it is, how it ended.

Asks the kernel and the worker's board; judges nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from antifreeze import machine
from antifreeze.engine.backends import process
from antifreeze.engine.numbers import SeatNo
from antifreeze.engine.pool.happenings import Lost
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.supervise.cause import Cause, cause_of
from antifreeze.engine.supervise.stacks import Stack, parse
from antifreeze.engine.supervise.watchdog import Seen

# A worker that is asked for its stack writes it within milliseconds, unless the machine is busy.
STACK_S = 0.5
PAUSE_S = 0.01
# Less than this is not enough for another worker.
SPARE_BYTES = 256 << 20
# What has a name for one process alone, or for those that it was handed to.
_ENDS = ("pipe:", "socket:")


class Witness:
    """Knows what has changed since the iterator began."""

    def __init__(self) -> None:
        self._oom_kills = machine.oom_kills()
        self._families = machine.Families()

    def look_at(self, workers: Sequence[Worker]) -> dict[SeatNo, Seen]:
        """What the kernel says about workers and all that they started, in one look; nothing about those that are gone.

        Of one that is not born yet: about the stem that is to fork it, and that alone.
        """
        pids = {worker.seat: worker.known_pid or worker.stem.pid for worker in workers}
        born = [worker.known_pid for worker in workers if worker.known_pid is not None]
        groups = self._families.facts_of(born) if born else {}
        seen = {}
        for seat, pid in pids.items():
            facts = machine.process_facts(pid)
            if facts is None:
                continue
            used = groups.get(pid) or machine.GroupFacts(facts.cpu_s, facts.io_bytes, is_running=facts.state == "R")
            seen[seat] = Seen(
                cpu_s=used.cpu_s,
                io_bytes=used.io_bytes,
                # Whoever reads what is typed at the terminal is being debugged, too.
                is_traced=facts.tracer_pid != 0 or facts.waits_in == "terminal",
                is_stopped=facts.state == "T",
                waits_in=facts.waits_in,
                is_running=used.is_running,
            )
        return seen

    def shares_its_lock(self, worker: Worker) -> bool:
        """Whether this worker waits for a lock or an event that processes share, which a fork does not break."""
        return worker.known_pid is not None and machine.wait_of(worker.known_pid).is_shared

    def may_take_from_others(self, worker: Worker) -> bool:
        """Whether what this worker waits for is not its own, so that a second one would take something away from others.

        A lock of multiprocessing, a place at a barrier, an item out of a pipe that was there before the worker.
        """
        if worker.known_pid is None:
            return False
        wait = machine.wait_of(worker.known_pid)
        if wait.is_shared:
            return True
        ends = {name for name in wait.files if name.startswith(_ENDS)}
        return bool(ends and ends & (machine.open_names(worker.stem.pid) | machine.open_names(os.getpid())))

    def texts_of(self, workers: Sequence[Worker]) -> dict[SeatNo, str]:
        """The Python stacks of workers that are stuck, as text, all within a moment; empty where one cannot write."""
        starts = {worker: worker.board.text_end() for worker in workers}
        for worker in workers:
            if worker.pidfd is not None:
                process.ask_for_stack(worker.pidfd)
        ends, deadline = dict(starts), time.monotonic() + STACK_S
        while workers and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            before, ends = ends, {worker: worker.board.text_end() for worker in workers}
            if all(ends[worker] == before[worker] > starts[worker] for worker in workers):
                break
        return {worker.seat: worker.board.read_text(start) for worker, start in starts.items()}

    def cause_of(self, lost: Lost) -> Cause:
        """How a worker ended, with whatever evidence there is."""
        before, after = self._oom_kills, machine.oom_kills()
        cause = cause_of(
            lost.exitcode,
            oom_kills_before=before,
            oom_kills_after=after,
            stack=self.last_words(lost.worker),
            memory=machine.memory_facts(),
        )
        # One count, one death: of two workers that were killed together, the second finds the other half of the count.
        self._oom_kills = before + 1 if cause.is_oom and before is not None else after
        return cause

    def last_words(self, worker: Worker) -> Stack | None:
        """The Python stack that a worker left when it crashed, if it did."""
        crashes = [stack for stack in parse(worker.board.read_text()) if stack.fatal]
        return crashes[-1] if crashes else None

    def has_memory_to_spare(self) -> bool:
        """Whether there is memory for one more worker."""
        return machine.available_memory() > SPARE_BYTES
