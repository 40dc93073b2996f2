"""Sampler → tickets."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.plan.ticket import Plan, Ticket


def next_of(indices: Iterable[Any]) -> Callable[[], Any]:
    return iter(indices).__next__


def draw_all(plan: Plan) -> list[Ticket]:
    tickets = []
    while (ticket := plan.draw()) is not None:
        tickets.append(ticket)
    return tickets


def test_batch_k_goes_to_worker_k_mod_n() -> None:
    plan = Plan(workers=3)
    plan.begin(next_of([[k] for k in range(7)]))
    assert [(ticket.batch, ticket.worker, ticket.index) for ticket in draw_all(plan)] == [
        (0, 0, [0]),
        (1, 1, [1]),
        (2, 2, [2]),
        (3, 0, [3]),
        (4, 1, [4]),
        (5, 2, [5]),
        (6, 0, [6]),
    ]


@given(workers=st.integers(1, 5), lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_every_epoch_begins_at_batch_0_and_worker_0_and_no_number_is_used_twice(
    workers: int, lengths: list[int]
) -> None:
    plan = Plan(workers=workers)
    numbers = []
    for length in lengths:
        plan.begin(next_of(range(length)))
        tickets = draw_all(plan)
        assert [ticket.index for ticket in tickets] == list(range(length))
        assert [ticket.batch for ticket in tickets] == list(range(length))
        assert [ticket.worker for ticket in tickets] == [batch % workers for batch in range(length)]
        numbers += [ticket.number for ticket in tickets]
    assert numbers == list(range(sum(lengths)))


def test_a_new_epoch_may_begin_before_the_last_one_is_drawn() -> None:
    plan = Plan(workers=2)
    plan.begin(next_of("abc"))
    first = plan.draw()
    plan.begin(next_of("xy"))
    assert first is not None
    assert [(ticket.number, ticket.batch, ticket.index) for ticket in draw_all(plan)] == [(1, 0, "x"), (2, 1, "y")]


def test_the_sampler_is_advanced_once_per_ticket() -> None:
    asked = 0

    def next_index() -> int:
        nonlocal asked
        asked += 1
        return asked

    plan = Plan(workers=1)
    plan.begin(next_index)
    assert asked == 0
    plan.draw()
    plan.draw()
    assert asked == 2


def test_there_are_no_tickets_before_an_epoch_begins() -> None:
    assert Plan(workers=1).draw() is None


def test_an_exhausted_sampler_stays_exhausted() -> None:
    plan = Plan(workers=1)
    plan.begin(next_of([]))
    assert plan.draw() is None
    assert plan.draw() is None


def test_an_error_of_the_sampler_passes_through_and_costs_no_ticket() -> None:
    answers = iter([10, ZeroDivisionError("of the sampler"), 11])

    def next_index() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    plan = Plan(workers=2)
    plan.begin(next_index)
    plan.draw()
    with pytest.raises(ZeroDivisionError, match="of the sampler"):
        plan.draw()
    ticket = plan.draw()
    assert ticket is not None
    assert (ticket.number, ticket.batch, ticket.worker, ticket.index) == (1, 1, 1, 11)
