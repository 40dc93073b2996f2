"""Outcomes arrive in any order and leave in plan order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow.delivery import Arrival, Delivery
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.errors import InternalError


def ticket(number: int) -> Ticket:
    return Ticket(TicketNo(number), number, WorkerNo(0), None)


def delivery_of(count: int) -> Delivery[str]:
    delivery: Delivery[str] = Delivery()
    for number in range(count):
        delivery.expect(ticket(number))
    return delivery


def test_an_outcome_waits_for_those_before_it() -> None:
    delivery = delivery_of(2)
    assert delivery.arrive(TicketNo(1), "b") is None
    assert not delivery.has_next()
    assert delivery.next_ticket() == ticket(0)
    assert delivery.arrive(TicketNo(0), "a") is None
    assert delivery.has_next()
    assert [delivery.take(), delivery.take()] == [Arrival(ticket(0), "a"), Arrival(ticket(1), "b")]
    assert delivery.next_ticket() is None
    assert not delivery.has_next()


def test_a_second_outcome_for_one_ticket_is_a_bug_of_ours() -> None:
    delivery = delivery_of(1)
    delivery.arrive(TicketNo(0), "a")
    with pytest.raises(InternalError, match="two outcomes for ticket 0"):
        delivery.arrive(TicketNo(0), "again")
    assert delivery.take().outcome == "a"
    with pytest.raises(InternalError, match="not under way"):
        delivery.arrive(TicketNo(0), "again")


def test_an_outcome_for_an_unknown_ticket_is_a_bug_of_ours() -> None:
    with pytest.raises(InternalError, match="ticket 5, which is not under way"):
        delivery_of(1).arrive(TicketNo(5), "a")


def test_breaking_off_hands_back_what_has_arrived() -> None:
    delivery = delivery_of(3)
    delivery.arrive(TicketNo(2), "c")
    delivery.arrive(TicketNo(0), "a")
    assert {arrival.ticket.number: arrival.outcome for arrival in delivery.break_off()} == {0: "a", 2: "c"}
    assert delivery.next_ticket() is None
    assert delivery.outstanding() == [ticket(1)]


def test_a_stale_outcome_is_handed_back_at_once_and_only_once() -> None:
    delivery = delivery_of(1)
    delivery.break_off()
    delivery.expect(ticket(1))
    assert delivery.arrive(TicketNo(0), "late") == Arrival(ticket(0), "late")
    assert not delivery.has_next()
    with pytest.raises(InternalError):
        delivery.arrive(TicketNo(0), "later still")


def test_outstanding_tickets_of_broken_off_epochs_come_first() -> None:
    delivery = delivery_of(2)
    delivery.break_off()
    delivery.expect(ticket(2))
    delivery.expect(ticket(3))
    delivery.arrive(TicketNo(3), "d")
    assert delivery.outstanding() == [ticket(0), ticket(1), ticket(2)]


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4), data=st.data())
def test_whatever_the_order_of_arrival_every_outcome_comes_out_once(lengths: list[int], data: st.DataObject) -> None:
    delivery: Delivery[int] = Delivery()
    number = 0
    under_way: list[int] = []
    ended: list[int] = []
    for length in lengths:
        begun = number
        for _ in range(length):
            delivery.expect(ticket(number))
            under_way.append(number)
            number += 1
        expected = list(range(begun, number))
        for _ in range(data.draw(st.integers(0, len(under_way)))):
            arriving = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            stale = delivery.arrive(TicketNo(arriving), arriving)
            assert (stale is not None) == (arriving < begun)
            if stale is not None:
                assert stale == Arrival(ticket(arriving), arriving)
                ended.append(arriving)
            while delivery.has_next() and data.draw(st.booleans()):
                taken = delivery.take()
                assert taken == Arrival(ticket(expected[0]), expected[0])
                ended.append(expected.pop(0))
        assert sorted(each.number for each in delivery.outstanding()) == sorted(under_way)
        ended += [arrival.outcome for arrival in delivery.break_off()]
    for late in under_way:
        assert delivery.arrive(TicketNo(late), late) is not None
        ended.append(late)
    assert sorted(ended) == list(range(number))
    assert delivery.outstanding() == []
