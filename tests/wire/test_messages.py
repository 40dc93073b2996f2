"""Messages as bytes and back."""

import pickle
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.numbers import SeatNo, SlotNo, TicketNo, WorkerNo
from antifreeze.engine.wire.messages import (
    Begin,
    Born,
    Emptied,
    Ended,
    Exited,
    Failed,
    Filled,
    Fork,
    Grow,
    Grown,
    Kill,
    Leave,
    Message,
    Mishap,
    MishapKind,
    Resume,
    Returned,
    Spent,
    Tell,
    Told,
    Unborn,
    Unfit,
    Withdraw,
    Work,
    decode,
    encode,
)

MISHAP = Mishap("skipped", 2, "17", 1, "OSError: no such file", "  File …", "nothing else")
EXAMPLES: list[Message] = [
    Work(TicketNo(7), [1, 2, 3], SlotNo(4), 1 << 20, (SlotNo(1), SlotNo(2))),
    Work(TicketNo(7), "a key", None, 0, ()),
    Leave(),
    Resume(b"generators"),
    Begin(TicketNo(7), None),
    Begin(TicketNo(7), 12345),
    Work(TicketNo(7), range(3, 6), None, 0, ()),
    Ended(TicketNo(7)),
    Ended(TicketNo(7), (MISHAP,)),
    Ended(TicketNo(7), mark=b"where"),
    Tell(TicketNo(7)),
    Told(TicketNo(7), b"where"),
    Told(TicketNo(7), None),
    Work(TicketNo(7), [1, 2], None, 0, (), is_marked=True),
    Filled(TicketNo(7), Parcel(3, 128, 0, 0), b"", None, 0, mark=b""),
    Withdraw(TicketNo(7)),
    Returned(TicketNo(7)),
    Work(TicketNo(7), [1, 2], None, 0, (), seed=(1 << 64) - 1),
    Spent(12 << 20),
    Work(TicketNo(7), [1], None, 0, (), is_replay=True),
    Work(TicketNo(7), [1, True, 2.5], None, 0, ()),
    Work(TicketNo(7), b"bytes are an index too", None, 0, ()),
    Filled(TicketNo(7), Parcel(0, 128, 300, 48), b"", None, 1 << 20),
    Filled(TicketNo(7), Parcel(3, 128, 0, 0), b"a form", bytearray(b"a batch"), 0),
    Filled(TicketNo(7), Parcel(3, 128, 0, 0), b"", None, 0, (MISHAP, MISHAP)),
    Failed(TicketNo(7), b"\x80\x05pickled"),
    Failed(TicketNo(7), b"\x80\x05pickled", 3, (MISHAP,)),
    Emptied(TicketNo(7), (MISHAP,)),
    Work(TicketNo(7), [1, 2], None, 0, (), is_replay=True, leave_out=(1,)),
    Work(TicketNo(7), [1, 2], None, 0, (), leave_out=(1,), quarantined=(2, 9)),
    Fork(WorkerNo(3), SeatNo(3)),
    Kill(4711),
    Born(SeatNo(3), 4711),
    Exited(SeatNo(3), 4711, -9),
    Exited(SeatNo(3), 4711, None),
    Unborn(SeatNo(3), "CannotFork: pids.max"),
    Unborn(None, "CannotFork: pids.max"),
    Grow(),
    Grown(4711),
    Unfit(b"error"),
]


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(Message))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    arrived = decode(encode(message))
    assert type(arrived) is type(message)
    assert arrived == message and repr(arrived) == repr(message)


def test_a_message_cannot_be_changed() -> None:
    for message in EXAMPLES:
        for field in message._fields:
            with pytest.raises(AttributeError):
                setattr(message, field, None)


INDICES = st.recursive(
    st.integers() | st.text() | st.none() | st.binary(), lambda inner: st.lists(inner) | st.tuples(inner, inner)
)


@given(index=INDICES, ticket=st.integers(0, 1 << 40))
def test_an_index_may_be_anything_that_a_sampler_yields(index: Any, ticket: int) -> None:
    work = Work(TicketNo(ticket), index, None, 0, ())
    assert decode(encode(work)) == work


def test_an_index_that_plain_pickle_refuses_goes_by_value() -> None:
    work = Work(TicketNo(0), lambda x: x + 1, None, 0, ())
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(work.index)
    arrived = decode(encode(work))
    assert isinstance(arrived, Work)
    assert arrived.index(1) == 2


def test_an_index_that_nobody_can_pickle_says_so() -> None:
    with pytest.raises(TypeError, match="generator"):
        encode(Work(TicketNo(0), (x for x in "ab"), None, 0, ()))


def test_a_message_about_a_usual_batch_is_small() -> None:
    assert len(encode(Work(TicketNo(1 << 40), list(range(1_000_000, 1_000_512)), SlotNo(9), 1 << 30, ()))) < 4096


def test_what_did_not_go_wrong_takes_no_room_in_a_message() -> None:
    calm = Filled(TicketNo(7), Parcel(3, 128, 0, 0), b"", None, 0)
    assert len(encode(calm)) < len(encode(calm._replace(mishaps=(MISHAP,)))) - 50
    assert b"Mishap" not in encode(calm)
    work = Work(TicketNo(7), [1, 2], None, 0, ())
    assert len(encode(work)) < len(encode(work._replace(leave_out=(1,))))


def test_only_a_sample_that_is_missing_is_a_loss() -> None:
    kinds = get_args(MishapKind)
    assert [kind for kind in kinds if MISHAP._replace(kind=kind).is_loss] == ["skipped", "replaced"]
