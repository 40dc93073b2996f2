"""A worker's board: what it was doing, and its snapshots, whole at every moment."""

import os
from collections.abc import Iterator

import pytest

from antifreeze.engine.arena import board as board_module
from antifreeze.engine.arena.board import Board, Pulse, Slow, Snapshot, Step
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


def test_times_the_slowest_and_locks_share_no_byte_with_the_pulse_and_the_snapshots(board: Board) -> None:
    board.pulse[:3] = memoryview(bytes([1] * 24)).cast("q")
    pulse = board.pulse.tolist()
    board.keep(TicketNo(1), b"first")
    board.keep(TicketNo(2), b"second")
    for word in range(len(board.times)):
        board.times[word] = -1
    for row in range(board_module.SLOWEST):
        board.write_slow(row, Slow(row + 1, TicketNo(row), row, "x" * 100))
    assert not any(board.locks)
    for row in range(len(board.locks)):
        board.locks[row] = -1
    assert board.pulse.tolist() == pulse
    assert board.latest() == Snapshot(TicketNo(2), b"second")
    board._words[board_module._PLACES[1] // 8] = 0
    assert board.latest() == Snapshot(TicketNo(1), b"first")
    slowest = board.read_timing().slowest
    assert [(slow.ns, slow.ticket, slow.position) for slow in slowest] == [(n + 1, n, n) for n in range(9, -1, -1)]
    assert board.read_timing().fetch_ns == -1


@pytest.mark.parametrize("asked", ["", "5", "x" * 56, "é" * 28])
def test_what_was_asked_for_is_kept_if_there_is_room(board: Board, asked: str) -> None:
    board.write_slow(3, Slow(7, TicketNo(1), -1, asked))
    assert board.read_timing().slowest == (Slow(7, TicketNo(1), -1, asked),)


@pytest.mark.parametrize("asked", ["x" * 57, "é" * 29, "a" + "世" * 40, "\ud800" * 20])
def test_what_was_asked_for_is_cut_where_a_character_ends(board: Board, asked: str) -> None:
    board.write_slow(3, Slow(7, TicketNo(1), -1, asked))
    shown = board.read_timing().slowest[0].asked
    assert shown.endswith("…") and "\ufffd" not in shown and len(shown.encode()) <= 56
    assert asked.encode("utf-8", "backslashreplace").decode().startswith(shown[:-1])


def test_a_row_that_is_being_written_is_left_out(board: Board) -> None:
    board.write_slow(0, Slow(7, TicketNo(1), 0, "whole"))

    class View:
        def __setitem__(self, place: slice, value: bytes) -> None:
            raise Killed

    class Torn:
        view = View()

    segment, board.segment = board.segment, Torn()  # type: ignore[assignment]
    with pytest.raises(Killed):
        board.write_slow(0, Slow(8, TicketNo(2), 0, "torn"))
    board.segment = segment
    assert board.read_timing().slowest == ()


def test_text_comes_after_everything_else_and_is_read_from_where_one_likes(board: Board) -> None:
    assert (board.text_end(), board.read_text()) == (0, "")
    fd = board_module.open_text(board.segment.fd)
    assert not os.get_inheritable(fd)
    os.write(fd, b"first\n")
    end = board.text_end()
    os.write(fd, "zweitens ü\n".encode())
    os.close(fd)
    assert board.read_text() == "first\nzweitens ü\n"
    assert board.read_text(end) == "zweitens ü\n"
    assert board.read_text(board.text_end()) == ""
    assert board.latest() is None and board.read_pulse() == Pulse(Step.STARTING, None, -1)


def test_of_too_much_text_the_end_is_read(board: Board) -> None:
    fd = board_module.open_text(board.segment.fd)
    os.write(fd, b"x" * board_module.MOST_TEXT + b"the end")
    os.close(fd)
    text = board.read_text()
    assert len(text) == board_module.MOST_TEXT and text.endswith("the end")
