"""One connection, both ends in this process."""

import gc
import os
import resource
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from types import FrameType

import pytest

from antifreeze.engine.numbers import SeatNo, TicketNo, WorkerNo
from antifreeze.engine.wire import channel as channel_module
from antifreeze.engine.wire.channel import LARGEST, Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Born, Failed, Fork, Kill, Leave, Message
from antifreeze.errors import ArenaError

Ends = tuple[Channel, Channel]


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def open_ends(*, blocking: bool = False) -> Ends:
    ours, theirs = pair()
    return Channel(ours, blocking=False), Channel(theirs, blocking=blocking)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = open_ends()
    yield made
    for end in made:
        end.close()


def received(end: Channel) -> Message:
    arrived = end.receive()
    assert arrived is not None
    message, own = arrived
    assert own == []
    return message


def fill_the_socket(end: Channel) -> int:
    """Send until messages have to wait; how many were sent."""
    count = 0
    while not end.has_unsent:
        end.send(Kill(count))
        count += 1
    return count


def test_messages_arrive_whole_and_in_order(ends: Ends) -> None:
    ours, theirs = ends
    sent = [Fork(WorkerNo(0), SeatNo(0)), Failed(TicketNo(1), b"x" * 3000), Leave(), Kill(5)]
    for message in sent:
        ours.send(message)
    assert [received(theirs) for _ in sent] == sent
    assert theirs.receive() is None


def test_both_ends_talk(ends: Ends) -> None:
    ours, theirs = ends
    ours.send(Kill(1))
    theirs.send(Kill(2))
    assert (received(ours), received(theirs)) == (Kill(2), Kill(1))


@pytest.mark.parametrize("length", [LARGEST - 200, LARGEST, LARGEST + 1, 5_000_000])
def test_a_message_of_any_length_arrives_and_nothing_is_left_open(ends: Ends, length: int) -> None:
    ours, theirs = ends
    before = descriptors()
    message = Failed(TicketNo(1), os.urandom(length))
    ours.send(message)
    ours.send(Leave())
    assert received(theirs) == message
    assert received(theirs) == Leave()
    assert descriptors() == before


def test_what_is_larger_than_a_page_does_not_go_through_the_socket(ends: Ends) -> None:
    ours, theirs = ends
    ours.send(Failed(TicketNo(1), b"x" * LARGEST))
    raw, ancillary, _, _ = theirs._socket.recvmsg(10 * LARGEST, 1000)
    assert len(raw) == 1
    (letter,) = channel_module._descriptors(ancillary)
    os.close(letter)


def test_descriptors_travel_and_stay_the_senders(ends: Ends) -> None:
    ours, theirs = ends
    read, write = os.pipe()
    ours.send(Born(SeatNo(0), 1), [write])
    ours.send(Failed(TicketNo(0), b"x" * 2 * LARGEST), [write, read])
    first = theirs.receive()
    second = theirs.receive()
    assert first is not None and second is not None
    assert (first[0], len(first[1])) == (Born(SeatNo(0), 1), 1)
    assert len(second[1]) == 2
    os.write(first[1][0], b"through")
    assert os.read(second[1][1], 7) == b"through"
    before = descriptors()
    assert not any(map(os.get_inheritable, (*first[1], *second[1])))
    del first, second
    assert len(before) - len(descriptors()) == 3, "nobody has taken them"
    os.close(read)
    os.close(write)  # they are still ours to close


def test_what_the_socket_does_not_take_waits_and_leaves_in_order(ends: Ends) -> None:
    ours, theirs = ends
    count = fill_the_socket(ours)
    read, write = os.pipe()
    ours.send(Born(SeatNo(0), 7), [write])
    ours.send(Failed(TicketNo(1), b"y" * 2 * LARGEST))
    os.close(write)  # a copy of it waits in the outbox
    assert ours.has_unsent
    for number in range(count):
        assert received(theirs) == Kill(number)
        ours.flush()
    assert not ours.has_unsent
    arrived = theirs.receive()
    assert arrived is not None
    message, own = arrived
    assert message == Born(SeatNo(0), 7)
    os.write(own[0], b"!")
    assert os.read(read, 1) == b"!"
    assert received(theirs) == Failed(TicketNo(1), b"y" * 2 * LARGEST)
    os.close(own.pop())
    os.close(read)


def test_sending_to_a_full_socket_never_blocks_and_poll_tells_when_there_is_room(ends: Ends) -> None:
    ours, theirs = ends
    fill_the_socket(ours)
    poll = select.poll()
    poll.register(ours.fileno(), select.POLLOUT)
    ours.flush()
    assert ours.has_unsent
    assert poll.poll(0) == []
    while theirs.receive() is not None:
        pass
    assert poll.poll(0) == [(ours.fileno(), select.POLLOUT)]
    ours.flush()
    assert not ours.has_unsent


def test_closing_with_messages_unsent_leaves_no_descriptor() -> None:
    before = descriptors()
    ours, theirs = open_ends()
    fill_the_socket(ours)
    read, write = os.pipe()
    ours.send(Born(SeatNo(0), 1), [read, write])
    ours.send(Failed(TicketNo(0), b"x" * 2 * LARGEST))
    os.close(read)
    os.close(write)
    ours.close()
    theirs.close()
    assert descriptors() == before


def test_descriptors_that_nobody_received_go_with_the_connection() -> None:
    before = descriptors()
    ours, theirs = open_ends()
    read, write = os.pipe()
    ours.send(Born(SeatNo(0), 1), [read])
    os.close(read)
    theirs.close()
    ours.close()
    with pytest.raises(BrokenPipeError):
        os.write(write, b"!")
    os.close(write)
    assert descriptors() == before


def test_whatever_was_sent_is_heard_before_the_end(ends: Ends) -> None:
    ours, theirs = ends
    theirs.send(Kill(1))
    theirs.close()
    assert received(ours) == Kill(1)
    for _ in range(2):
        with pytest.raises(ChannelClosed):
            ours.receive()


def test_sending_to_somebody_who_is_gone_says_so_and_is_no_signal(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send(Leave())
    with pytest.raises(ChannelClosed):
        ours.send(Failed(TicketNo(0), b"x" * 2 * LARGEST))


def test_a_closed_channel_says_so() -> None:
    ours, theirs = open_ends()
    ours.close()
    with pytest.raises(ChannelClosed):
        ours.receive()
    theirs.close()


def test_the_blocking_end_waits_for_a_slice_only() -> None:
    ours, theirs = open_ends(blocking=True)
    own_slice = theirs._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    assert struct.unpack("ll", own_slice) == (channel_module.SLICE_S, 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # whole seconds are too long for a test
        theirs._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, 2000))
    assert theirs.receive() is None
    while not theirs.has_unsent:
        theirs.send(Kill(1))
    theirs.flush()
    assert theirs.has_unsent
    ours.close()
    with pytest.raises(ChannelClosed):
        theirs.send_all(Leave())
    theirs.close()


def test_send_all_returns_when_everything_is_sent() -> None:
    ours, theirs = open_ends(blocking=True)
    theirs.send_all(Failed(TicketNo(3), b"x" * 2 * LARGEST))
    assert not theirs.has_unsent
    assert received(ours) == Failed(TicketNo(3), b"x" * 2 * LARGEST)
    ours.close()
    theirs.close()


def test_a_process_without_descriptors_says_so(ends: Ends) -> None:
    ours, theirs = ends
    read, write = os.pipe()
    ours.send(Born(SeatNo(0), 1), [read, write])
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in descriptors())
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, hard))
        try:
            while True:
                fillers.append(os.dup(read))
        except OSError:
            os.close(fillers.pop())  # one of two has room
        with pytest.raises(ArenaError, match="Too many open files"):
            theirs.receive()
        fillers.append(os.dup(read))  # the one that came has been closed
        with pytest.raises(ArenaError, match="Too many open files"):
            pair()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in (*fillers, read, write):
            os.close(fd)


def test_a_channel_for_many_descriptors_takes_them() -> None:
    one, other = pair()
    ours, theirs = Channel(one, blocking=False), Channel(other, blocking=False, many_descriptors=True)
    ours.send(Leave(), [one.fileno()] * 200)
    arrived = theirs.receive()
    assert arrived is not None
    assert len(arrived[1]) == 200
    ours.close()
    theirs.close()


def test_what_was_sent_is_heard_although_its_sender_ended_with_messages_unread() -> None:
    """The kernel says "connection reset" once, before what is in the queue."""
    one, other = pair()
    ours, theirs = Channel(one, blocking=False), Channel(other, blocking=True)
    with closing(ours):
        ours.send(Kill(1))
        theirs.send(Kill(2))
        theirs.send(Kill(3))
        theirs.close()
        assert [ours.receive(), ours.receive()] == [(Kill(2), []), (Kill(3), [])]
        with pytest.raises(ChannelClosed):
            ours.receive()


class Interruption(BaseException):
    """What a signal handler raises."""


def interrupt_at_every_moment(action: Callable[[], object]) -> int:
    """Do this again and again, each time interrupted a moment later, until it is not; how often it was.

    Python looks for signals where a function begins and where a built-in one has returned; in `__del__` it prints what a
    handler raises.
    """

    def can_raise(frame: FrameType | None) -> bool:
        return frame is None or (frame.f_code.co_name != "__del__" and can_raise(frame.f_back))

    for moment in count(1):
        left = moment

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            left -= (
                event in ("call", "c_return")
                and frame.f_code.co_filename == channel_module.__file__
                and can_raise(frame)
            )
            if left == 0:
                left = -1
                raise Interruption

        sys.setprofile(look)
        try:
            action()
        except Interruption:
            continue
        finally:
            sys.setprofile(None)
        return moment
    raise AssertionError("not reached")


def drain(ours: Channel, theirs: Channel) -> None:
    while ours.has_unsent or theirs.has_unread:
        ours.flush()
        theirs.receive()


def test_an_interruption_at_any_moment_of_receiving_leaves_no_descriptor_open(ends: Ends) -> None:
    """A handler that raises after recvmsg has returned must not cost us the descriptor, and a batch with it."""
    ours, theirs = ends
    fd = os.open(os.devnull, os.O_RDONLY)
    letter = Failed(TicketNo(0), b"x" * 2 * LARGEST)
    messages: list[tuple[Message, list[int]]] = [(Born(SeatNo(0), 1), [fd]), (letter, [fd, fd]), (Kill(1), [])]
    for message, along in messages:

        def receive(message: Message = message, along: list[int] = along) -> None:
            arrived = theirs.receive()
            assert arrived is not None
            assert (arrived[0], len(arrived[1])) == (message, len(along))

        before = descriptors()
        for _ in range(100):  # more than there are moments
            ours.send(message, along)
        assert interrupt_at_every_moment(receive) > 3
        drain(ours, theirs)
        assert descriptors() == before
    os.close(fd)


def test_an_interruption_at_any_moment_of_sending_leaves_no_descriptor_open(ends: Ends) -> None:
    ours, theirs = ends
    fd = os.open(os.devnull, os.O_RDONLY)
    before = descriptors()
    letter = Failed(TicketNo(0), b"x" * 2 * LARGEST)
    assert interrupt_at_every_moment(lambda: ours.send(letter, [fd])) > 3
    drain(ours, theirs)
    assert descriptors() == before
    os.close(fd)
