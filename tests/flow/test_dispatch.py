"""Which tickets go out now."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket


def ticket(number: int) -> Ticket:
    return Ticket(TicketNo(number), number, WorkerNo(0), number)


def send_all(dispatch: Dispatch) -> list[int]:
    numbers = []
    while (sent := dispatch.next_to_send()) is not None:
        numbers.append(int(sent.number))
    return numbers


def dispatch_of(count: int, *, window: int) -> Dispatch:
    dispatch = Dispatch(window=window)
    for number in range(count):
        dispatch.add(ticket(number))
    return dispatch


def test_tickets_go_out_in_their_order_until_the_window_is_full() -> None:
    dispatch = dispatch_of(5, window=3)
    assert send_all(dispatch) == [0, 1, 2]
    dispatch.done()
    assert send_all(dispatch) == [3]


def test_a_shrunken_window_holds_tickets_back_until_enough_batches_have_left() -> None:
    dispatch = dispatch_of(9, window=4)
    send_all(dispatch)
    dispatch.fit(2)
    assert dispatch.window == 2
    for _ in range(2):
        dispatch.done()
        assert send_all(dispatch) == []
    dispatch.done()
    assert send_all(dispatch) == [4]


def test_a_window_that_grows_again_lets_more_tickets_out() -> None:
    dispatch = dispatch_of(9, window=2)
    assert send_all(dispatch) == [0, 1]
    dispatch.fit(4)
    assert send_all(dispatch) == [2, 3]


def test_the_window_never_closes() -> None:
    dispatch = Dispatch(window=3)
    dispatch.fit(0)
    assert dispatch.window == 1


@given(
    window=st.integers(1, 6),
    events=st.lists(st.one_of(st.sampled_from(["add", "send", "done"]), st.integers(-1, 7)), max_size=60),
)
def test_no_sequence_of_events_loses_repeats_or_reorders_a_ticket(window: int, events: list[str | int]) -> None:
    dispatch = Dispatch(window=window)
    waiting: deque[int] = deque()
    added = under_way = 0
    for event in events:
        match event:
            case "add":
                dispatch.add(ticket(added))
                waiting.append(added)
                added += 1
            case "done" if under_way:
                dispatch.done()
                under_way -= 1
            case int(other):
                dispatch.fit(other)
                window = max(1, other)
        sent = dispatch.next_to_send() if event == "send" else None
        if event == "send":
            assert (sent is not None) == (bool(waiting) and under_way < window)
        if sent is not None:
            assert sent.number == waiting.popleft()
            under_way += 1
    while waiting:  # whatever happened: as batches leave, all tickets go out
        for number in send_all(dispatch):
            assert number == waiting.popleft()
            under_way += 1
        assert under_way
        dispatch.done()
        under_way -= 1


def test_tickets_that_are_called_off_are_not_sent() -> None:
    dispatch = dispatch_of(5, window=3)
    send_all(dispatch)
    assert [called_off.number for called_off in dispatch.call_off()] == [3, 4]
    dispatch.done()
    assert send_all(dispatch) == []


def test_a_ticket_ahead_of_the_window_goes_out_and_is_made_up_for_by_one_that_is_not_planned() -> None:
    dispatch = dispatch_of(4, window=2)
    assert send_all(dispatch) == [0, 1]
    dispatch.widen()
    assert send_all(dispatch) == [2]
    dispatch.done()
    assert dispatch.narrow()
    assert send_all(dispatch) == []
    dispatch.done()
    assert not dispatch.narrow()
    assert send_all(dispatch) == [3]


def test_what_was_ahead_in_a_pass_that_was_broken_off_does_not_shorten_the_next() -> None:
    dispatch = dispatch_of(4, window=2)
    dispatch.widen()
    send_all(dispatch)
    dispatch.begin()
    assert not dispatch.narrow()


def test_a_window_that_has_become_smaller_than_what_is_under_way_is_overfull_until_that_is_done() -> None:
    dispatch = dispatch_of(3, window=3)
    send_all(dispatch)
    assert not dispatch.is_overfull
    dispatch.fit(1)
    assert dispatch.is_overfull
    dispatch.done()
    dispatch.done()
    assert not dispatch.is_overfull
