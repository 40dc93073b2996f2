"""What a replacement would have to redo."""

from antifreeze.engine.flow.history import History
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket


def ticket(number: int, worker: int) -> Ticket:
    return Ticket(TicketNo(number), number, WorkerNo(worker), [number])


def test_everything_sent_is_kept_in_order_worker_by_worker() -> None:
    history = History()
    assert [history.note_sent(ticket(number, number % 2)) for number in range(5)] == [1, 1, 2, 2, 3]
    assert [each.number for each in history.of(WorkerNo(0))] == [0, 2, 4]
    assert [each.number for each in history.of(WorkerNo(1))] == [1, 3]
    assert history.of(WorkerNo(2)) == ()


def test_what_was_before_a_snapshot_is_forgotten_and_its_own_ticket_is_not() -> None:
    history = History()
    for number in range(6):
        history.note_sent(ticket(number, 0))
    history.forget_before(WorkerNo(0), TicketNo(3))
    assert [each.number for each in history.of(WorkerNo(0))] == [3, 4, 5]
    history.forget_before(WorkerNo(0), TicketNo(9))
    assert history.of(WorkerNo(0)) == ()
