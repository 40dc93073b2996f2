"""What a replacement would have to redo."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow import history as history_module
from antifreeze.engine.flow.history import History, Pass, Question
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


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> History:
    """Of seven tickets where six, of one index each, are all that may be kept."""
    monkeypatch.setattr(history_module, "MOST_INDICES", 6)
    history = History()
    for number in range(6):
        history.note_sent(ticket(number, 0))
        history.cut_if_too_long(WorkerNo(0), before=TicketNo(number))
    assert history.is_whole(WorkerNo(0)) and len(history.of(WorkerNo(0))) == 6
    history.note_sent(ticket(6, 0))
    history.cut_if_too_long(WorkerNo(0), before=TicketNo(5))
    return history


def test_a_history_without_snapshots_is_bounded_and_knows_that_it_is_not_whole(long: History) -> None:
    assert [each.number for each in long.of(WorkerNo(0))] == [5, 6]
    assert not long.is_whole(WorkerNo(0))
    assert long.is_whole(WorkerNo(1))


def test_a_snapshot_from_after_the_cut_makes_a_history_whole_and_an_older_one_does_not(long: History) -> None:
    long.forget_before(WorkerNo(0), TicketNo(4))
    assert not long.is_whole(WorkerNo(0))
    long.forget_before(WorkerNo(0), TicketNo(6))
    assert long.is_whole(WorkerNo(0))
    assert [each.number for each in long.of(WorkerNo(0))] == [6]


def test_large_batches_are_kept_for_fewer_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MOST_INDICES", 6)
    history = History()
    for number in range(3):
        history.note_sent(Ticket(TicketNo(number), number, WorkerNo(0), [1, 2, 3]))
    history.cut_if_too_long(WorkerNo(0), before=TicketNo(2))
    assert [each.number for each in history.of(WorkerNo(0))] == [2]


def stream(number: int, *, worker: int, start: int, count: int | None = 4) -> Ticket:
    index = start if count is None else range(start, start + count)
    return Ticket(TicketNo(number), number, WorkerNo(worker), index)


@pytest.mark.parametrize("count", [4, None])
def test_tickets_of_a_stream_take_no_memory_and_are_all_there(count: int | None) -> None:
    history = History()
    sent = [stream(3 * number + 1, worker=1, start=number * (count or 1), count=count) for number in range(10_000)]
    assert [history.note_sent(ticket) for ticket in sent] == list(range(1, 10_001))
    assert len(history._sent[WorkerNo(1)]) == 1
    assert history.of(WorkerNo(1)) == tuple(sent)
    history.forget_before(WorkerNo(1), TicketNo(3 * 9_990))
    assert history.of(WorkerNo(1)) == tuple(sent[9_990:])
    assert history.note_sent(stream(30_001, worker=1, start=10_000 * (count or 1), count=count)) == 11
    history.forget_before(WorkerNo(1), TicketNo(30_002))
    assert history.of(WorkerNo(1)) == ()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.sampled_from(["ticket", "ticket", "list", "pass", "question"]), st.integers(1, 2)
        )
    ),
    st.integers(0, 60),
)
def test_whatever_is_told_is_kept_as_it_was(told: list[tuple[int, str, int]], forgotten: int) -> None:
    history, worker, expected, number, start = History(), WorkerNo(0), list[Any](), 0, 0
    for step, kind, count in told:
        number += step
        if kind == "pass":
            expected.append(Pass(TicketNo(number), None))
            history.note_begin(worker, expected[-1])
            start = 0
        elif kind == "question":
            expected.append(Question(TicketNo(number)))
            history.note_question(worker, expected[-1])
        else:
            expected.append(stream(number, worker=0, start=start, count=count))
            if kind == "list":
                expected[-1] = expected[-1]._replace(index=list(expected[-1].index))
            history.note_sent(expected[-1])
            start += count
    assert list(map(repr, history.of(worker))) == list(map(repr, expected))
    history.forget_before(worker, TicketNo(forgotten))
    kept = [each for each in expected if each.number >= forgotten]
    assert list(map(repr, history.of(worker))) == list(map(repr, kept))
    assert history.note_sent(ticket(number + 1, 0)) == len(kept) + 1
