"""What happened to workers: as records in the ledger, as reports on stderr, as errors to raise."""

from __future__ import annotations

import functools
import linecache
import os
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from antifreeze import machine
from antifreeze.codes import named
from antifreeze.doctor.finding import Finding
from antifreeze.engine import consultation, wording
from antifreeze.engine.arena.board import Pulse
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.plan.ticket import NOBODY, Ticket
from antifreeze.engine.pool.happenings import Lost
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.showing import show, text_of
from antifreeze.engine.supervise import stacks
from antifreeze.engine.supervise.cause import Cause
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.wire.messages import Mishap, Spent
from antifreeze.engine.witness import Witness
from antifreeze.errors import ArenaError, WorkerFrozen, WorkerLost
from antifreeze.observe import report
from antifreeze.observe.files import write_stacks
from antifreeze.observe.ledger import Facts, Kind, Ledger
from antifreeze.observe.say import say, say_counted, say_once, say_report


class Who(Protocol):
    """Somebody who makes batches: a worker, or this process in its place."""

    @property
    def number(self) -> WorkerNo: ...
    @property
    def known_pid(self) -> int | None: ...


Failure = Callable[[], Exception]
"""Makes the error to raise. (Not the error itself: with its traceback it would hold the epoch.)"""

NO_SNAPSHOT = (
    "no snapshot of its generators could be kept: they take more than 63 KiB, are hundreds, are OpenCV's, or cannot be "
    "pickled"
)

_KINDS: dict[str, Kind] = {
    "retried": Kind.SAMPLE_RETRIED,
    "redone": Kind.SAMPLE_RETRIED,
    "skipped": Kind.SAMPLE_SKIPPED,
    "replaced": Kind.SAMPLE_REPLACED,
}
_DONE = {
    "retried": "fetched again",
    "redone": "fetched again",
    "skipped": "left out",
    "replaced": "replaced by another",
}


class Chronicle:
    """Tells what happened to the workers of one iterator."""

    def __init__(self, ledger: Ledger, watchdog: Watchdog, witness: Witness, *, workers: int) -> None:
        self._ledger = ledger
        self._workers = workers
        self._watchdog = watchdog
        self._witness = witness
        self._stalls = 0

    def note(self, kind: Kind, what: str, worker: Who | None = None, ticket: Ticket | None = None) -> None:
        """A record of something that needs no more words."""
        self._ledger.add(kind, what, **_facts(worker, None, ticket))

    def note_mishaps(self, worker: Who | None, ticket: Ticket, mishaps: Sequence[Mishap]) -> None:
        """What went wrong with samples of a batch, and what was done about it."""
        for mishap in mishaps:
            if mishap.kind == "none":
                continue  # which is raised, with all that is known
            facts = _facts(worker, None, ticket)
            facts["sample"] = mishap.sample
            facts["attempt"] = mishap.attempt
            facts["exception"] = mishap.exception
            facts["stack"] = mishap.traceback
            why = "; ".join(filter(None, (mishap.exception, mishap.remark)))
            self._ledger.add(_KINDS[mishap.kind], f"sample {mishap.sample} {_DONE[mishap.kind]}: {why}", **facts)
            where = f"batch {ticket.batch}, sample {mishap.sample}"
            say_counted(f"sample {mishap.kind}", f"{where}: {_DONE[mishap.kind]}; {why}")

    def note_raised(self, error: Exception, ticket: Ticket, position: int, pid: int | None) -> None:
        """The user's loop is given this error in place of a batch."""
        self._ledger.add(
            Kind.ERROR_RAISED,
            f"{type(error).__name__}: {wording.whereabouts(ticket, position)}",
            worker=int(ticket.worker) if ticket.worker != NOBODY else None,
            pid=pid,
            batch=ticket.batch,
            sample=wording.sample_of(ticket, position),
            exception=f"{type(error).__name__}: {text_of(error)}",
        )

    def note_end(self, lost: Lost, pulse: Pulse, ticket: Ticket | None, cause: Cause) -> None:
        """A worker has ended, and another takes over."""
        worker = lost.worker
        place = wording.place(pulse, ticket)
        facts = _facts(worker, pulse, ticket)
        facts["exitcode"] = lost.exitcode
        facts["signal"] = wording.signal_name(lost.exitcode)
        facts["stack"] = worker.board.read_text() or None
        finding = self._ask_about_end(lost, facts, cause, times=1)
        facts["code"] = finding.code if finding else None
        freed = ""
        if worker.released_locks:
            freed = f"; {worker.released_locks} lock(s) that it held were released: what they guard may be half done"
        what = f"a worker {cause.what}; {place}; another does its work again{freed}"
        self._ledger.add(Kind.WORKER_REPLACED, what, **facts)
        line = report.death_line(
            worker=int(worker.number),
            pid=lost.pid,
            what=wording.what_happened(lost),
            where=place,
            why=f"it {cause.what}{freed}",
        )
        say_counted(f"{lost.exitcode} {cause.what}", line)

    def note_renewal(self, worker: Worker, spent: Spent) -> None:
        """A worker stops between two batches, and another goes on there."""
        what = f"it had copied {spent.copied_bytes >> 20} MB of the memory that workers share"
        if spent.grown_bytes:
            what = f"its own memory had grown by {spent.grown_bytes >> 20} MB, and memory is short"
            say_counted("grown", f"worker {worker.number}: {what}; another goes on where it stopped")
        self._ledger.add(Kind.WORKER_RENEWED, f"{what}; another goes on where it stopped", **_facts(worker, None, None))

    def report_stall(
        self,
        worker: Worker,
        ticket: Ticket | None,
        *,
        texts: Mapping[SeatNo, str],
        typical_s: float | None,
        is_at_work: bool,
        did: str,
    ) -> None:
        """A worker makes no progress: tell the user, with the stacks of all that are stuck."""
        pulse, seat = worker.board.read_pulse(), worker.seat
        facts = _facts(worker, pulse, ticket)
        facts["stack"] = texts[seat] or None
        stack = _last_stack(texts[seat])
        finding = self._ask_about_stall(worker, stack, facts["sample"], typical_s=typical_s, is_at_work=is_at_work)
        facts["code"] = finding.code if finding else None
        silent_s = self._watchdog.silent_s(seat)
        self._ledger.add(Kind.STALL, f"no progress for {silent_s:.0f} s; {did}", **facts)
        stall = report.Stall(
            seconds=silent_s,
            worker=int(worker.number),
            pid=worker.known_pid,
            rank=int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None,
            batch=facts["batch"],
            sample=facts["sample"],
            position=pulse.position if facts["sample"] else None,
            typical_s=typical_s,
            frames=[_with_source(frame) for frame in stack.frames] if stack else (),
            waits_in="stopped (SIGSTOP)" if self._watchdog.is_stopped(seat) else self._watchdog.waits_in(seat),
            how_sure=finding.weight.word if finding else "possible",
            disease=named(finding.code) if finding else None,
            why=finding.why if finding else None,
            fix=_cure(finding) if finding else None,
            did=did,
            setting="stall_after=, hedge=, sample_timeout= (or run --stall-after, --no-hedge, --sample-timeout)",
            stack_file=self._write_stacks(texts, reported=seat),
        )
        say_report(report.stall_report(stall))

    def report_second_stall(self, hedge: Worker, ticket: Ticket | None, *, left_s: float, quarantines: bool) -> None:
        """Tell the user that a second worker is stuck where the first one is, and what comes of it."""
        pulse = hedge.board.read_pulse()
        text = self._witness.texts_of([hedge])[hedge.seat]
        stack = _last_stack(text)
        facts = _facts(hedge, pulse, ticket)
        facts["stack"] = text or None
        frame = stacks.most_telling(stack) if stack else None
        line = report.second_stall(
            pid=hedge.known_pid,
            where=wording.place(pulse, ticket) + (f", at {frame}" if frame else ""),
            left_s=left_s,
            is_left_out=quarantines,
        )
        self._ledger.add(Kind.HEDGE_STUCK, f"waited for another {left_s:.0f} s", **facts)
        say_report(f"antifreeze: {line}")

    def report_own_stall(self, ticket: Ticket, pulse: Pulse, seconds: float, frames: Sequence[report.Frame]) -> None:
        """The trainer makes no progress with a batch that it makes itself: tell the user, with its stack."""
        did = "nothing: this process fetches the sample itself, and can only wait for it"
        facts = _facts(None, pulse, ticket)
        facts["stack"] = "".join(f'  File "{frame.file}", line {frame.line} in {frame.function}\n' for frame in frames)
        self._ledger.add(Kind.STALL, f"no progress for {seconds:.0f} s; {did}", **facts)
        seen = machine.process_facts(os.getpid())
        stall = report.Stall(
            seconds=seconds,
            worker=None,
            pid=os.getpid(),
            batch=ticket.batch,
            sample=facts["sample"],
            position=pulse.position if facts["sample"] else None,
            frames=[_with_source(frame) for frame in frames],
            waits_in=seen.waits_in if seen else None,
            did=did,
            setting="stall_after=, sample_timeout=; num_workers=1 or more, where a stuck sample can be given up",
        )
        say_report(report.stall_report(stall))

    def note_interrupted(self, ticket: Ticket, pulse: Pulse, seconds: float, interruption: BaseException) -> None:
        """A batch that the trainer made itself was broken off after a long time."""
        facts = _facts(None, pulse, ticket)
        facts["exception"] = type(interruption).__name__
        facts["stack"] = "".join(traceback.format_tb(interruption.__traceback__))
        what = (
            f"{type(interruption).__name__} after {seconds:.0f} s in this process with {wording.place(pulse, ticket)}"
        )
        self._ledger.add(Kind.ERROR_RAISED, what, **facts)
        say(what)

    def _ask_about_stall(
        self,
        worker: Worker,
        stack: stacks.Stack | None,
        sample: str | None,
        *,
        typical_s: float | None,
        is_at_work: bool,
    ) -> Finding | None:
        return consultation.about_stuck(
            worker,
            stack,
            sample=sample,
            seconds=self._watchdog.silent_s(worker.seat),
            typical_s=typical_s,
            waits_in=self._watchdog.waits_in(worker.seat),
            is_stopped=self._watchdog.is_stopped(worker.seat),
            is_at_work=is_at_work,
            workers=self._workers,
        )

    def _write_stacks(self, texts: Mapping[SeatNo, str], *, reported: SeatNo) -> str | None:
        """All stacks into a file of their own; its name."""
        self._stalls += 1
        parts = (f"seat {each}{' (the one reported)' if each == reported else ''}\n{texts[each]}" for each in texts)
        file = write_stacks(f"stall-{self._stalls}.txt", "\n".join(parts))
        return str(file) if file else None

    def note_no_snapshot(self, worker: Who, *, again: int | None, why: str = NO_SNAPSHOT) -> None:
        """Another worker takes over without the random state of this one; None: too much has been done to redo it."""
        what = f"all {again} batches that it had made are made again" if again else "its random draws begin anew"
        self._ledger.add(Kind.NO_SNAPSHOT, f"{what}: {why}", **_facts(worker, None, None))
        say_once(f"another process takes over from worker {worker.number}, and {what}: {why}")

    def note_read_again(self, worker: Worker, *, again: int) -> None:
        """Another worker takes over a stream, and reads what has been delivered once more."""
        what = f"{again} batches that were delivered are read again from the stream, and thrown away"
        self._ledger.add(Kind.STREAM_READ_AGAIN, what, **_facts(worker, None, None))

    def note_doubt(self, what: str) -> None:
        """A result is silently wrong, or looks like it."""
        self._ledger.add(Kind.DOUBT, what)
        say_once(what)

    def note_in_process(self, why: str) -> None:
        """What is left of this pass is loaded in the trainer."""
        what = f"the rest of this epoch is loaded in this process, without workers: {why}"
        self._ledger.add(Kind.IN_PROCESS, what)
        say_once(what)

    def note_memory_short(self, worker: Worker, ticket: Ticket | None) -> None:
        """A worker waits for shared memory."""
        what = f"no shared memory for a batch at the moment: its worker waits ({machine.memory_facts() or 'unknown'})"
        self._ledger.add(Kind.MEMORY_SHORT, what, **_facts(worker, None, ticket))
        say_counted("memory short", what)

    def starved(self, worker: Worker, ticket: Ticket | None, *, waited_s: float) -> ArenaError:
        """The error for a worker that has waited for shared memory for too long."""
        return ArenaError(
            f"no shared memory for a batch for {waited_s:.0f} s",
            where=f"worker {worker.number}" + (f", batch {ticket.batch}" if ticket else ""),
            why=machine.memory_facts() or None,
            try_="a smaller batch_size, fewer workers or prefetch_factor=1",
        )

    def note_one_fewer(self, workers: int) -> None:
        """Fewer workers are at work at the same time from now on."""
        what = f"out of memory: at most {workers} of the workers at work at the same time from now on"
        self._ledger.add(Kind.WORKER_GIVEN_UP, what)
        say_once(what)

    def note_quarantine(self, ticket: Ticket, index: Hashable, why: str) -> None:
        """A sample will not be fetched any more."""
        self._ledger.add(
            Kind.SAMPLE_QUARANTINED, f"not fetched any more: {why}", batch=ticket.batch, sample=show(index)
        )
        say_counted("quarantine", f"batch {ticket.batch}, sample {show(index)}: not fetched any more; {why}")

    def loss(self, lost: Lost, pulse: Pulse, ticket: Ticket | None, *, why: str, cause: Cause, times: int) -> Failure:
        """The error for a worker that ended, as one of so many that ended there, and is not replaced."""
        what = wording.what_happened(lost)
        facts = _facts(lost.worker, pulse, ticket)
        facts["exitcode"] = lost.exitcode
        facts["signal"] = wording.signal_name(lost.exitcode)
        finding = self._ask_about_end(lost, facts, cause, times=times)
        facts["code"] = finding.code if finding else None
        self._ledger.add(Kind.ERROR_RAISED, f"{what} {why}", **facts)
        kind: type[WorkerLost] = wording.kind_of(lost)
        return functools.partial(
            kind,
            what,
            where=f"worker {lost.worker.number}, {wording.place(pulse, ticket)}",
            why="; ".join((f"the worker {cause.what}", *cause.evidence, why)),
            try_=cause.advice,
            code=facts["code"],
            worker=int(lost.worker.number),
            pid=lost.pid or -1,
            exitcode=lost.exitcode,
            batch=ticket.batch if ticket else None,
        )

    def _ask_about_end(self, lost: Lost, facts: Facts, cause: Cause, *, times: int) -> Finding | None:
        return consultation.about_dead(
            lost,
            self._witness.last_words(lost.worker),
            cause,
            sample=facts["sample"],
            times=times,
            workers=self._workers,
        )

    def frozen(self, worker: Worker, ticket: Ticket | None, *, silent_s: float) -> Failure:
        """The error for a worker that made no progress for too long."""
        return self._frozen(
            worker,
            ticket,
            what=f"DataLoader worker (pid {worker.known_pid}) made no progress for {silent_s:.0f} s",
            seconds=silent_s,
            try_="give what it waits for a time-out of its own; sample_timeout= says how long is too long",
        )

    def timed_out(self, worker: Worker, ticket: Ticket | None, *, timeout_s: float) -> Exception:
        """The error for torch's `timeout=`, in torch's words, with the facts that they lack."""
        return self._frozen(
            worker,
            ticket,
            what=f"DataLoader timed out after {timeout_s:g} seconds",
            seconds=timeout_s,
            try_="a larger timeout=, or none: without it a stuck worker is noticed and helped out",
        )()

    def _frozen(self, worker: Worker, ticket: Ticket | None, *, what: str, seconds: float, try_: str) -> Failure:
        pulse = worker.board.read_pulse()
        text = self._witness.texts_of([worker])[worker.seat]
        stack = _last_stack(text)
        frame = stacks.most_telling(stack) if stack else None
        seen = self._witness.look_at([worker]).get(worker.seat) if worker.known_pid is not None else None
        facts = _facts(worker, pulse, ticket)
        facts["stack"] = text or None
        waits_in = seen.waits_in if seen else None
        finding = consultation.about_stuck(
            worker,
            stack,
            sample=facts["sample"],
            seconds=seconds,
            typical_s=None,
            waits_in=waits_in,
            is_stopped=bool(seen and seen.is_stopped),
            is_at_work=False,
            workers=self._workers,
        )
        facts["code"] = finding.code if finding else None
        self._ledger.add(Kind.ERROR_RAISED, what, **facts)
        return functools.partial(
            WorkerFrozen,
            what,
            where=f"worker {worker.number}, {wording.place(pulse, ticket)}" + (f", at {frame}" if frame else ""),
            why=f"it waits in: {waits_in}" if waits_in else None,
            try_=try_,
            code=facts["code"],
            worker=int(worker.number),
            pid=worker.known_pid or -1,
            batch=ticket.batch if ticket else None,
        )


def _facts(worker: Who | None, pulse: Pulse | None, ticket: Ticket | None) -> Facts:
    return {
        "worker": int(worker.number) if worker else None,
        "pid": worker.known_pid if worker else None,
        "batch": ticket.batch if ticket else None,
        "sample": wording.sample_at(pulse, ticket) if pulse else None,
    }


def _cure(finding: Finding) -> str | None:
    """What the user can change; that antifreeze would carry it is no news here."""
    return next((fix for fix in finding.fix if not fix.startswith("antifreeze run")), None)


def _last_stack(text: str) -> stacks.Stack | None:
    found = stacks.parse(text)
    return found[-1] if found else None


def _with_source(frame: stacks.Frame | report.Frame) -> report.Frame:
    line = frame.line or 0
    return report.Frame(frame.file, line, frame.function, linecache.getline(frame.file, line).strip())
