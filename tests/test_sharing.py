"""Who makes which batch, where any worker may make any: without workers."""

from types import SimpleNamespace
from typing import Any

from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.plan.ticket import NOBODY, Ticket
from antifreeze.engine.sharing import Sharing


def ticket(number: int) -> Ticket:
    return Ticket(TicketNo(number), number, NOBODY, [number], seed=number)


def test_nothing_is_planned_ahead_while_more_is_under_way_than_a_smaller_window_holds() -> None:
    dispatch = Dispatch(window=4)
    for number in range(4):
        dispatch.add(ticket(number))
        dispatch.next_to_send()
    dispatch.fit(2)  # batches have become larger
    idle = SimpleNamespace(leases={})
    pool: Any = SimpleNamespace(workers=[idle], hedges={})
    arena: Any = SimpleNamespace(has_room_for_another=True)
    nothing: Any = None
    sharing = Sharing(pool, nothing, nothing, dispatch, arena, window=4)
    planned: list[int] = []

    def plan_one() -> bool:
        planned.append(len(planned))
        dispatch.add(ticket(4))
        return True

    sharing.employ_idle(plan_one)
    assert planned == []
