"""What each worker has been given since the last snapshot of its generators: what another one would have to redo. Pure."""

from __future__ import annotations

from collections import defaultdict, deque

from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket


class History:
    """Tickets in the order in which they were sent, worker by worker."""

    def __init__(self) -> None:
        self._sent: defaultdict[WorkerNo, deque[Ticket]] = defaultdict(deque)

    def note_sent(self, ticket: Ticket) -> int:
        """A worker has been given this ticket; returns how many it would have to redo by now."""
        sent = self._sent[ticket.worker]
        sent.append(ticket)
        return len(sent)

    def forget_before(self, worker: WorkerNo, number: TicketNo) -> None:
        """There is a snapshot of this worker from right before this ticket."""
        sent = self._sent[worker]
        while sent and sent[0].number < number:
            sent.popleft()

    def of(self, worker: WorkerNo) -> tuple[Ticket, ...]:
        """All that this worker was given since its last snapshot."""
        return tuple(self._sent[worker])
