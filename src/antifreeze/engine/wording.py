"""What happened to a worker, and where, in the user's terms."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.happenings import Lost
from antifreeze.engine.showing import show
from antifreeze.errors import WorkerCrashed, WorkerKilled, WorkerLost

_OWN_FAULT = {
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def kind_of(lost: Lost) -> type[WorkerLost]:
    killed = lost.exitcode is not None and lost.exitcode < 0 and -lost.exitcode not in _OWN_FAULT
    return WorkerKilled if killed else WorkerCrashed


def what_happened(lost: Lost) -> str:
    """torch's own words first: people search for them."""
    if lost.unborn is not None:
        return f"DataLoader worker {lost.worker.number} could not be started ({lost.unborn})"
    if lost.pid is None:
        return f"DataLoader worker {lost.worker.number} exited unexpectedly: its stem ended before it was born"
    if lost.exitcode is not None and lost.exitcode < 0:
        name = signal.strsignal(-lost.exitcode) or f"signal {-lost.exitcode}"
        return f"DataLoader worker (pid {lost.pid}) is killed by signal: {name}."
    code = "an exit code that nobody could read" if lost.exitcode is None else f"exit code {lost.exitcode}"
    return f"DataLoader worker (pid(s) {lost.pid}) exited unexpectedly with {code}"


def suspected(pulse: Pulse, undone: Sequence[Ticket]) -> Pulse:
    """What a worker was at, as far as it can be to blame: a ticket that has been done before is not, nor one that waits."""
    is_done = pulse.ticket is not None and all(ticket.number != pulse.ticket for ticket in undone)
    is_innocent = pulse.step is Step.WAITING or (is_done and pulse.step is not Step.STARTING)
    return pulse._replace(step=Step.IDLE) if is_innocent else pulse


def ticket_at(pulse: Pulse, undone: Sequence[Ticket]) -> Ticket | None:
    """The ticket that a worker was at, if it has not been done before."""
    return next((ticket for ticket in undone if ticket.number == pulse.ticket), None)


def place(pulse: Pulse, ticket: Ticket | None) -> str:
    """Where a worker was, in the user's terms."""
    match pulse.step:
        case Step.STARTING:
            return "while it was starting"
        case Step.IDLE:
            return "between batches"
        case _ if ticket is None:
            return "at a batch that had been delivered"
        case Step.FETCHING:
            return whereabouts(ticket, pulse.position)
        case Step.COLLATING:
            return f"batch {ticket.batch}, while it was collated"
        case Step.WAITING:
            return f"batch {ticket.batch}, while it waited for shared memory"
        case _:
            return f"batch {ticket.batch}, while it was written"


def sample_at(pulse: Pulse, ticket: Ticket | None) -> str | None:
    """The sample that a worker was at, if it was at one."""
    return sample_of(ticket, pulse.position) if ticket is not None and pulse.step is Step.FETCHING else None


def sample_of(ticket: Ticket, position: int) -> str | None:
    """The sample at this position of a batch; None: no single one."""
    if ticket.samples is ticket.index:
        return show(ticket.samples[position]) if 0 <= position < len(ticket.samples) else None
    return show(ticket.index)


def signal_name(exitcode: int | None) -> str | None:
    """The signal that ended a process, as it is written in programs."""
    if exitcode is None or exitcode >= 0:
        return None
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # most real-time signals have none
        return f"signal {-exitcode}"


def whereabouts(ticket: Ticket, position: int) -> str:
    """A batch and, where it is known, the sample of it that is meant."""
    if ticket.samples is ticket.index and 0 <= position < len(ticket.samples):
        return f"batch {ticket.batch}, sample {show(ticket.samples[position])}"
    return f"batch {ticket.batch}, {indices(ticket)}"


def indices(ticket: Ticket) -> str:
    """The samples of a batch, in words."""
    samples = ticket.samples
    if samples is not ticket.index:
        return f"sample {show(ticket.index)}"
    shown = ", ".join(map(show, samples[:8])) + (", …" if len(samples) > 8 else "")
    return f"samples {shown}"
