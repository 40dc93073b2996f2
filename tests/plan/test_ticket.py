"""Sampler → tickets."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.plan.seeds import ticket_seed
from antifreeze.engine.plan.ticket import NOBODY, Plan, Ticket


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


BUFFERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [0, 1],
    "array": lambda: np.zeros(2, dtype=int),
    "list of lists": lambda: [[0], [1]],
    "tuple of arrays": lambda: (np.zeros(1, dtype=int), 5),
    "dict": lambda: {0: 0},
}


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS.keys())
@pytest.mark.parametrize("seed", [None, 3])
def test_a_sampler_may_use_the_same_object_for_every_index(buffer: Callable[[], Any], seed: int | None) -> None:
    def reusing() -> Iterator[Any]:
        index = buffer()
        for number in range(4):
            part = index if isinstance(index, dict) or not isinstance(index[0], list | np.ndarray) else index[0]
            part[0] = number
            yield index

    plan = Plan(workers=2)
    plan.begin(next_of(reusing()), seed=seed)
    then = [repr(index) for index in reusing()]
    assert [repr(ticket.index) for ticket in draw_all(plan)] == then


def test_an_object_of_the_users_stays_the_same_object() -> None:
    key = object()
    plan = Plan(workers=2)
    plan.begin(next_of([key, [key]]))
    first, second = draw_all(plan)
    assert first.index is key
    assert second.index[0] is key


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


# --- streams: the sampler only says how many, and workers end one by one


def test_items_of_a_stream_are_counted_worker_by_worker() -> None:
    plan = Plan(workers=2, is_stream=True)
    plan.begin(next_of([[None] * 3] * 5))
    assert [(ticket.worker, ticket.index) for ticket in draw_all(plan)] == [
        (0, range(3)),
        (1, range(3)),
        (0, range(3, 6)),
        (1, range(3, 6)),
        (0, range(6, 9)),
    ]
    plan.begin(next_of([None] * 3))
    assert [(ticket.worker, ticket.index) for ticket in draw_all(plan)] == [(0, 0), (1, 0), (0, 1)]


def test_a_worker_whose_stream_has_ended_is_passed_over_until_the_next_epoch() -> None:
    plan = Plan(workers=3, is_stream=True)
    plan.begin(next_of([None] * 8))
    first = [plan.draw() for _ in range(4)]
    assert [ticket.worker for ticket in first if ticket] == [0, 1, 2, 0]
    assert plan.end(WorkerNo(1))
    assert not plan.end(WorkerNo(1))
    assert [ticket.worker for ticket in draw_all(plan)] == [2, 0, 2, 0]
    plan.begin(next_of([None] * 3))
    assert [ticket.worker for ticket in draw_all(plan)] == [0, 1, 2]


def test_when_all_streams_have_ended_there_are_no_more_tickets() -> None:
    plan = Plan(workers=2, is_stream=True)
    plan.begin(next_of([None] * 9))
    plan.draw()
    plan.end(WorkerNo(0))
    plan.end(WorkerNo(1))
    assert plan.draw() is None


# --- out of order: whoever has room


def workers_of(plan: Plan, count: int) -> list[int]:
    """The workers that the next tickets go to."""
    tickets = [plan.draw() for _ in range(count)]
    return [ticket.worker for ticket in tickets if ticket is not None]


def test_out_of_order_a_worker_with_its_share_under_way_is_passed_over() -> None:
    plan = Plan(workers=2, share_out=4)
    plan.begin(next_of(range(20)))
    first = [ticket for _ in range(4) if (ticket := plan.draw())]
    assert [ticket.worker for ticket in first] == [0, 1, 0, 1]
    plan.done(first[1])
    plan.done(first[1])  # said twice, because the sampler raised in between
    assert workers_of(plan, 1) == [1]
    plan.done(first[3])
    assert workers_of(plan, 1) == [1]


def test_out_of_order_the_share_of_a_worker_that_has_ended_goes_to_the_others() -> None:
    plan = Plan(workers=2, share_out=4, is_stream=True)
    plan.begin(next_of([None] * 20))
    for _ in range(4):
        plan.draw()
    plan.end(WorkerNo(0))
    assert workers_of(plan, 2) == [1, 1]


def test_tickets_with_seeds_are_nobodys_and_their_seeds_follow_from_the_pass_and_their_place_in_it() -> None:
    plans = [Plan(workers=workers) for workers in (1, 3)]
    for plan in plans:
        plan.begin(next_of([[k] for k in range(5)]), seed=77)
    first, second = (draw_all(plan) for plan in plans)
    assert first == second
    assert {ticket.worker for ticket in first} == {NOBODY}
    assert [ticket.seed for ticket in first] == [ticket_seed(77, batch) for batch in range(5)]
    plans[0].begin(next_of([[k] for k in range(5)]), seed=77)
    again = draw_all(plans[0])
    assert [ticket.seed for ticket in again] == [ticket.seed for ticket in first]
    assert [ticket.number for ticket in again] == list(range(5, 10))
