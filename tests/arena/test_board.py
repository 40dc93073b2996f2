"""A worker's board: what it was doing, and its snapshots, whole at every moment."""

import os
from collections.abc import Iterator

import pytest

from antifreeze.engine.arena import board as board_module
from antifreeze.engine.arena.board import Board, Pulse, Snapshot, Step
from antifreeze.engine.numbers import TicketNo


@pytest.fixture
def board() -> Iterator[Board]:
    made = board_module.create()
    yield made
    made.close()


def test_a_new_board_says_starting_and_has_no_snapshot(board: Board) -> None:
    assert board.read_pulse() == Pulse(Step.STARTING, None, -1)
    assert board.latest() is None and board.latest_ticket() is None


def test_the_other_side_sees_what_is_written(board: Board) -> None:
    worker = Board.over(os.dup(board.segment.fd))
    worker.pulse[1], worker.pulse[2], worker.pulse[0] = 8, 4, Step.FETCHING
    assert board.read_pulse() == Pulse(Step.FETCHING, TicketNo(7), 3)
    worker.pulse[2] = 0
    assert board.read_pulse().position == -1
    assert worker.keep(TicketNo(7), b"state")
    assert board.latest() == Snapshot(TicketNo(7), b"state")
    assert worker.segment.fd == -1


def test_the_latest_snapshot_is_the_last_one(board: Board) -> None:
    for number in range(7):
        assert board.keep(TicketNo(number), b"x" * number)
        assert board.latest() == Snapshot(TicketNo(number), b"x" * number)
        assert board.latest_ticket() == number


def test_a_snapshot_that_is_too_large_is_refused_and_the_last_one_stays(board: Board) -> None:
    assert board.keep(TicketNo(1), b"small")
    assert not board.keep(TicketNo(2), bytes(board_module.SIZE))
    assert board.latest() == Snapshot(TicketNo(1), b"small")
    assert board.keep(TicketNo(3), bytes(board_module._ROOM))
    assert board.latest() == Snapshot(TicketNo(3), bytes(board_module._ROOM))
    assert board.keep(TicketNo(4), bytes([1]) * board_module._ROOM)
    assert board.latest() == Snapshot(TicketNo(4), bytes([1]) * board_module._ROOM)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", range(4))
def test_whenever_the_worker_is_killed_one_snapshot_is_whole(board: Board, after: int) -> None:
    """After each single write of the third snapshot."""
    board.keep(TicketNo(1), b"first")
    board.keep(TicketNo(2), b"second")

    class Words:
        """Lets only so many writes through."""

        def __init__(self) -> None:
            self.left = after

        def __setitem__(self, place: int, value: int) -> None:
            if not self.left:
                raise Killed
            self.left -= 1
            words[place] = value

    words = board._words
    board._words = Words()  # type: ignore[assignment]
    with pytest.raises(Killed):
        board.keep(TicketNo(3), b"third")
    board._words = words
    assert board.latest() == Snapshot(TicketNo(2), b"second")
