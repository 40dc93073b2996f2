"""How long things take, with a clock that is made up."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze.engine.arena import board as board_module
from antifreeze.engine.arena.board import Board, Slow, Timing
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.worker.stopwatch import AT_ONCE, FAST_NS, WRITE_NS, Stopwatch

MS = 1_000_000


class Worker:
    """The worker's loop of the stopwatch's docstring; only samples, collating and sending take time."""

    def __init__(self, board: Board, takes: Callable[[Any], int]) -> None:
        self.now = 0
        self.looks = 0
        self.takes = takes
        self.stopwatch = Stopwatch(board)
        self.stopwatch.clock = self.look  # type: ignore[assignment]
        self.tickets = 0

    def look(self) -> int:
        self.looks += 1
        return self.now

    def make(self, index: list[Any], *, collate_ns: int = 0, send_ns: int = 0) -> None:
        stopwatch = self.stopwatch
        stopwatch.begin(TicketNo(self.tickets))
        self.tickets += 1
        if stopwatch.times_samples:
            clock, since, slow_ns = stopwatch.clock, stopwatch.since, stopwatch.slow_ns
            for position, i in enumerate(index):
                self.now += self.takes(i)
                now = clock()
                if now - since > slow_ns:
                    slow_ns = stopwatch.note_slow(now - since, position, i)
                since = now
            stopwatch.fetched(len(index))
        else:
            self.now += sum(map(self.takes, index))
            stopwatch.fetched(len(index), whole=index)
        self.now += collate_ns
        stopwatch.collated()
        self.now += send_ns
        stopwatch.sent()
        stopwatch.write()


@pytest.fixture
def board() -> Iterator[Board]:
    made = board_module.create()
    yield made
    made.close()


def test_a_board_without_batches_has_no_times(board: Board) -> None:
    assert board.read_timing() == Timing(0, 0, 0, 0, 0, 0, 0, ())


def test_steps_are_added_up_and_the_longest_kept(board: Board) -> None:
    worker = Worker(board, lambda i: i * MS)
    worker.make([1, 2, 3], collate_ns=40, send_ns=7)
    worker.make([5, 1], collate_ns=30, send_ns=8)
    timing = board.read_timing()
    assert timing[:5] == (12 * MS, 70, 15, 5, 2)
    assert (timing.longest_fetch_ns, timing.longest_collate_ns) == (5 * MS, 40)
    assert timing.slowest[0] == Slow(5 * MS, TicketNo(1), 0, "5")
    assert [slow.ns for slow in timing.slowest] == [5 * MS, 3 * MS, 2 * MS, MS, MS]


def test_only_the_ten_slowest_are_kept(board: Board) -> None:
    worker = Worker(board, lambda i: (i + 1) * MS)
    order = [(7 * i) % 100 for i in range(100)]
    for start in range(0, 100, 4):
        worker.make(order[start : start + 4])
    slowest = board.read_timing().slowest
    assert [slow.asked for slow in slowest] == [str(i) for i in range(99, 89, -1)]
    assert all(order[4 * slow.ticket + slow.position] == int(slow.asked) for slow in slowest)


def test_fast_samples_are_not_timed_one_by_one_and_are_none_of_the_slowest(board: Board) -> None:
    worker = Worker(board, lambda _: 100)
    worker.make([0] * 64)
    assert not worker.stopwatch.times_samples
    worker.looks = 0
    worker.make([0] * 64)
    assert worker.looks == 4  # begin, fetched, collated, sent
    assert board.read_timing()[:5] == (12_800, 0, 0, 128, 2)
    assert board.read_timing().slowest == ()


def test_a_slow_batch_of_fast_samples_is_remembered_as_a_whole_and_the_next_is_timed(board: Board) -> None:
    worker = Worker(board, lambda i: 3_000 * MS if i == 9 else 100)
    worker.make([0, 1])
    worker.make([8, 9])
    (slow,) = board.read_timing().slowest
    assert slow == Slow(3_000 * MS + 100, TicketNo(1), -1, "[8, 9]")
    assert board.read_timing().longest_fetch_ns == slow.ns
    assert worker.stopwatch.times_samples
    worker.make([8, 9])
    assert Slow(3_000 * MS, TicketNo(2), 1, "9") in board.read_timing().slowest


def test_a_large_batch_of_fast_samples_is_not_slow(board: Board) -> None:
    worker = Worker(board, lambda _: FAST_NS // 2)
    for _ in range(3):
        worker.make([0] * 1000)
    assert board.read_timing().slowest == ()


def test_a_slow_sample_is_on_the_board_before_its_batch_is_done(board: Board) -> None:
    stopwatch = Stopwatch(board)
    stopwatch.begin(TicketNo(3))
    stopwatch.note_slow(5 * MS, 2, "a.png")
    timing = board.read_timing()
    assert timing.slowest == (Slow(5 * MS, TicketNo(3), 2, "'a.png'"),)
    assert timing.longest_fetch_ns == 5 * MS


def test_a_batch_that_failed_in_the_middle_costs_the_next_nothing(board: Board) -> None:
    worker = Worker(board, lambda _: MS)
    worker.stopwatch.begin(TicketNo(0))
    worker.now += 50 * MS
    worker.make([1])
    assert board.read_timing()[:5] == (MS, 0, 0, 1, 1)


def test_an_index_that_cannot_be_shown_is_named_by_its_type(board: Board) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    Worker(board, lambda _: MS).make([Odd()])
    assert "Odd" in board.read_timing().slowest[0].asked


def test_a_huge_index_is_cut_short_before_it_is_shown(board: Board) -> None:
    Worker(board, lambda _: MS).make(["ü" * 1000, list(range(10**6))])
    for slow in board.read_timing().slowest:
        assert 0 < len(slow.asked) <= 56
        assert "…" in slow.asked or "..." in slow.asked


def test_the_trainers_side_reads_what_the_worker_wrote(board: Board) -> None:
    Worker(Board.over(os.dup(board.segment.fd)), lambda _: MS).make([4, 5])
    assert board.read_timing().samples == 2


def test_the_board_is_written_a_thousand_times_a_second_at_most_after_the_first_batches(board: Board) -> None:
    now = 0
    stopwatch = Stopwatch(board)
    stopwatch.clock = lambda: now  # type: ignore[assignment]
    for _ in range(AT_ONCE):
        stopwatch.sent()
        assert board.read_timing().batches == stopwatch._batches
    counts = []
    now, stopwatch._write_due = 0, 0
    for moment in (1, WRITE_NS // 2, WRITE_NS + 2, WRITE_NS + 3, 2 * WRITE_NS + 4):
        stopwatch.begin(TicketNo(0))
        now = moment
        stopwatch.sent()
        counts.append(board.read_timing().batches)
    assert counts == [AT_ONCE + count for count in (1, 1, 3, 3, 5)]


def test_threads_that_share_a_stopwatch_do_not_fail_for_it() -> None:
    """Without workers, threads may share an iterator; a batch got lost when two of them noted a slow sample at once."""
    stopwatch, failed = Stopwatch(board_module.create_private()), []

    def note(first: int) -> None:
        try:
            for index in range(5_000):
                stopwatch.note_slow(20_000 + first + index * 7_919 % 1_000_003, -1, index)
        except ValueError as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=note, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
