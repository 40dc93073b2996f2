"""Whose messages end a wait."""

import os
import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from antifreeze.engine.pool.lines import Lines


class Talker:
    """A worker as far as it can be heard."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.channel = SimpleNamespace(fileno=self.ours.fileno, has_unsent=False)

    def say_something(self) -> None:
        self.theirs.send(b"!")

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def talkers() -> Iterator[list[Any]]:
    both = [Talker(), Talker()]
    yield both
    for talker in both:
        talker.close()


def heard(lines: Lines) -> list[Any]:
    return [lines.channels[fd] for fd, mask in lines.poll(0) if mask & select.POLLIN]


def test_a_wait_for_one_worker_is_not_ended_by_what_others_say(talkers: list[Any]) -> None:
    lines, (one, other) = Lines(), talkers
    for talker in talkers:
        lines.add_worker(talker)
        talker.say_something()
    assert sorted(map(id, heard(lines))) == sorted(map(id, talkers))
    for awaited in (one, other, one):
        lines.await_only(awaited)
        assert heard(lines) == [awaited]
    lines.await_only(None)
    assert len(heard(lines)) == 2


def test_one_that_is_added_while_another_is_awaited_is_not_listened_to(talkers: list[Any]) -> None:
    lines, (one, other) = Lines(), talkers
    lines.add_worker(one)
    lines.await_only(one)
    lines.add_worker(other)
    other.say_something()
    assert heard(lines) == []


def test_room_to_send_in_ends_a_wait_for_somebody_else(talkers: list[Any]) -> None:
    lines, (one, other) = Lines(), talkers
    for talker in talkers:
        lines.add_worker(talker)
    lines.await_only(one)
    other.channel.has_unsent = True
    lines.listen_to(other)
    assert lines.poll(0) == [(other.ours.fileno(), select.POLLOUT)]


def test_what_is_dropped_is_not_heard_any_more_and_may_be_dropped_twice(talkers: list[Any]) -> None:
    lines, (one, _) = Lines(), talkers
    lines.add_worker(one)
    one.say_something()
    for _ in range(2):
        lines.drop_channel(one)
    lines.listen_to(one)
    assert not lines.can_hear(one)
    assert lines.poll(0) == []


def test_an_end_is_heard_whoever_is_awaited(talkers: list[Any]) -> None:
    lines, (one, other) = Lines(), talkers
    for talker in talkers:
        lines.add_worker(talker)
    read, write = os.pipe()  # as a pidfd does, it becomes readable
    lines.add_birth(other, read)
    lines.await_only(one)
    os.write(write, b"!")
    assert [lines.pidfds[fd] for fd, _ in lines.poll(0)] == [other]
    lines.drop_pidfd(read)
    assert lines.poll(0) == []
    os.close(read)
    os.close(write)
