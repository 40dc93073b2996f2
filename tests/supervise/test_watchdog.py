"""Slow, stalled or at work: what is decided from what was seen."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.numbers import SeatNo, TicketNo
from antifreeze.engine.supervise.watchdog import (
    FAR_LONGER,
    MAX_SILENT_S,
    STARVED_S,
    Seen,
    State,
    Watchdog,
)
from antifreeze.options import ALL_BLOCKED_S, ONE_BLOCKED_S

SEAT = SeatNo(0)
AT_WORK = Pulse(Step.FETCHING, TicketNo(3), 1)


def seen(
    *,
    cpu_s: float = 1.0,
    io_bytes: int = 0,
    is_traced: bool = False,
    is_stopped: bool = False,
    waits_in: str = "socket",
    is_running: bool = False,
) -> Seen:
    return Seen(cpu_s, io_bytes, is_traced, is_stopped, waits_in, is_running)


class Dog:
    """A watchdog that looks once a second."""

    def __init__(
        self, *, stall_after_s: float = 10.0, one_blocked_s: float = ONE_BLOCKED_S, all_blocked_s: float = ALL_BLOCKED_S
    ) -> None:
        self.watchdog = Watchdog(stall_after_s=stall_after_s, one_blocked_s=one_blocked_s, all_blocked_s=all_blocked_s)
        self.samples_done, self.slowest_s = 100, 0.01

    def pass_second(self, what: Seen | None, *, pulse: Pulse = AT_WORK, seat: SeatNo = SEAT) -> State:
        return self.pass_second_of_all({seat: what}, pulse=pulse)[seat]

    def pass_second_of_all(
        self, everybody: Mapping[SeatNo, Seen | None], *, pulse: Pulse = AT_WORK
    ) -> dict[SeatNo, State]:
        for seat, what in everybody.items():
            if self.watchdog.look(seat, pulse, passed_s=1.0):
                self.watchdog.look_closer(seat, what, passed_s=1.0)
        self.watchdog.note_waited(1.0)
        return {
            seat: self.watchdog.judge(seat, samples_done=self.samples_done, slowest_s=self.slowest_s)
            for seat in everybody
        }

    def seconds_until(self, state: State, what: Seen, *, most: int = 4000) -> int | None:
        return next((second for second in range(1, most) if self.pass_second(what) is state), None)


def test_a_blocked_sample_is_a_stall_after_ten_seconds() -> None:
    assert Dog().seconds_until(State.STALLED, seen()) == 11  # the first look only sees where it is


def test_a_setting_changes_how_long_that_takes() -> None:
    assert Dog(stall_after_s=2).seconds_until(State.STALLED, seen()) == 3
    assert Dog(stall_after_s=30).seconds_until(State.STALLED, seen()) == 31


def test_where_samples_take_long_a_stall_takes_longer() -> None:
    dog = Dog()
    dog.slowest_s = 1.0
    assert dog.seconds_until(State.STALLED, seen()) == FAR_LONGER + 1


def test_the_first_samples_get_a_minute_and_a_lock_gets_less() -> None:
    dog = Dog()
    dog.samples_done = 4
    assert dog.seconds_until(State.STALLED, seen()) == 61
    dog = Dog()
    dog.samples_done = 0
    assert dog.seconds_until(State.STALLED, seen(waits_in="lock")) == 16


@given(st.lists(st.sampled_from(["computes", "reads"]), min_size=1, max_size=3))
def test_whoever_computes_reads_or_writes_is_slow_and_never_stalled(kinds: list[str]) -> None:
    dog, cpu_s, io_bytes, states = Dog(), 0.0, 0, set()
    for second in range(2000):
        if kinds[second % len(kinds)] == "computes":
            cpu_s += 0.9
        else:
            io_bytes += 1
        states.add(dog.pass_second(seen(cpu_s=cpu_s, io_bytes=io_bytes)))
    assert states == {State.FINE, State.SLOW}


def test_work_now_and_then_is_no_stall() -> None:
    dog, states = Dog(), set()
    for second in range(200):
        states.add(dog.pass_second(seen(io_bytes=second // 4)))
    assert State.STALLED not in states


def test_a_worker_that_gets_on_is_fine_however_long_the_batch_takes() -> None:
    dog = Dog()
    for second in range(1000):
        pulse = AT_WORK._replace(position=second // 9)
        assert dog.pass_second(seen(), pulse=pulse) is State.FINE


def test_a_debugger_is_never_accused() -> None:
    assert Dog().seconds_until(State.STALLED, seen(is_traced=True)) is None


def test_the_second_in_which_a_debugger_lets_go_does_not_count() -> None:
    dog = Dog(stall_after_s=0.5)
    for _ in range(5):
        assert dog.pass_second(seen(is_traced=True)) is State.FINE
    assert dog.pass_second(seen(waits_in="socket")) is State.FINE
    assert dog.pass_second(seen(waits_in="socket")) is not State.FINE


def test_a_stopped_worker_is_a_stall_after_a_few_seconds_whatever_samples_take() -> None:
    dog = Dog()
    dog.slowest_s, dog.samples_done = 1000.0, 0
    assert dog.seconds_until(State.STALLED, seen(is_stopped=True)) == 8


def test_time_that_the_trainer_does_not_spend_waiting_does_not_count() -> None:
    """A suspended machine, Ctrl-Z, an hour in the training step: one slice each."""
    dog = Dog()
    for _ in range(9):
        assert dog.pass_second(seen()) is State.FINE  # an hour passes between two of them


def test_a_sample_is_given_up_when_worker_and_hedge_are_blocked_while_others_get_on() -> None:
    dog, hedge = Dog(), SeatNo(7)
    for second in range(int(ONE_BLOCKED_S) + 10):
        dog.pass_second_of_all({SEAT: seen(), hedge: seen()})
        if second == 20:
            assert not dog.watchdog.is_beyond_hope(SEAT, hedge)
            dog.watchdog.note_done(SeatNo(99))
    assert dog.watchdog.is_beyond_hope(SEAT, hedge)
    assert not dog.watchdog.is_at_a_standstill


def test_when_nobody_gets_on_only_the_long_limit_counts() -> None:
    dog = Dog()
    until_it_is_known = 3  # one to see where it is, two until it is worth a closer look
    for _ in range(until_it_is_known + int(ALL_BLOCKED_S) - 1):
        dog.pass_second(seen())
    assert not dog.watchdog.is_beyond_hope(SEAT)
    assert not dog.watchdog.is_at_a_standstill
    dog.pass_second(seen())
    assert dog.watchdog.is_at_a_standstill


def test_both_limits_can_be_set() -> None:
    dog = Dog(one_blocked_s=40, all_blocked_s=40)
    dog.pass_second(seen())
    dog.watchdog.note_done(SeatNo(99))
    for _ in range(60):
        dog.pass_second(seen())
    assert dog.watchdog.is_beyond_hope(SEAT)
    assert dog.watchdog.is_at_a_standstill


def test_whoever_is_forgotten_starts_anew() -> None:
    dog = Dog()
    dog.seconds_until(State.STALLED, seen())
    dog.watchdog.forget(SEAT)
    assert dog.pass_second(seen()) is State.FINE
    assert dog.watchdog.silent_s(SEAT) == 0.0
    assert dog.watchdog.waits_in(SEAT) is None
    assert not dog.watchdog.is_stopped(SEAT)


def test_whoever_gets_from_sample_to_sample_is_no_standstill_however_long_the_batch_takes() -> None:
    dog = Dog(one_blocked_s=40, all_blocked_s=40)
    for second in range(300):
        dog.pass_second(seen(), pulse=AT_WORK._replace(position=second // 30))
        assert not dog.watchdog.is_at_a_standstill


@pytest.mark.parametrize("how", ["computes", "reads", "waits for a processor"])
def test_a_worker_that_works_reaches_no_limit_however_long_it_takes(how: str) -> None:
    dog = Dog(one_blocked_s=40, all_blocked_s=40)
    for second in range(5000):
        work = seen(
            cpu_s=0.9 * second if how == "computes" else 0.0,
            io_bytes=second if how == "reads" else 0,
            is_running=how == "waits for a processor",
        )
        assert dog.pass_second(work) is not State.STALLED
        dog.watchdog.note_others_got_on(SEAT)
        assert not dog.watchdog.is_at_a_standstill
        assert not dog.watchdog.is_beyond_hope(SEAT)


def test_an_endless_loop_in_all_workers_is_a_standstill_after_a_day() -> None:
    dog = Dog()
    for second in range(int(MAX_SILENT_S)):
        assert not dog.watchdog.is_at_a_standstill
        dog.pass_second(seen(cpu_s=0.9 * second))
    dog.pass_second(seen(cpu_s=MAX_SILENT_S))
    assert dog.watchdog.is_at_a_standstill
    assert dog.watchdog.standstill_s >= MAX_SILENT_S


def test_one_that_is_not_known_to_be_blocked_yet_reaches_no_limit_however_short_that_is() -> None:
    dog = Dog(one_blocked_s=1, all_blocked_s=1)
    for second in range(100):
        dog.pass_second(seen(cpu_s=second))
        assert not dog.watchdog.is_at_a_standstill


def test_what_waits_for_a_worker_that_works_reaches_no_limit_either() -> None:
    """For the lock of a cache that the other one builds, say, while a third has nothing left to do."""
    dog, busy = Dog(), SeatNo(7)
    for second in range(3 * int(ALL_BLOCKED_S)):
        dog.pass_second_of_all({SEAT: seen(waits_in="file lock"), busy: seen(cpu_s=second)})
        dog.watchdog.note_others_got_on(SEAT)
        assert not dog.watchdog.is_at_a_standstill
        assert not dog.watchdog.is_beyond_hope(SEAT)


def test_work_now_and_then_is_no_standstill_but_a_sign_of_life_every_minute_does_not_hide_one() -> None:
    def standstill_with_work_every(period: int) -> bool:
        dog = Dog()
        for second in range(2 * int(ALL_BLOCKED_S)):
            dog.pass_second(seen(io_bytes=second // period))
            if dog.watchdog.is_at_a_standstill:
                return True
        return False

    assert not standstill_with_work_every(10)
    assert standstill_with_work_every(60)


def test_where_the_kernel_says_nothing_a_standstill_is_noticed_all_the_same() -> None:
    dog = Dog(all_blocked_s=40)
    for _ in range(43):
        assert dog.pass_second(None) is State.FINE
    assert dog.watchdog.is_at_a_standstill


def test_others_that_have_nothing_left_to_do_have_got_on() -> None:
    dog = Dog(one_blocked_s=40)
    for _ in range(60):
        dog.pass_second(seen())
        dog.watchdog.note_others_got_on(SEAT)
    assert dog.watchdog.is_beyond_hope(SEAT)


def two_at_one_sample(seconds: int, *, other: Seen | None = None, others_got_on: bool = True) -> Watchdog:
    """A worker and its hedge, which have been at one sample for so long, beside another worker that looks like this."""
    dog = Dog()
    everybody: dict[SeatNo, Seen | None] = {SEAT: seen(), HEDGE: seen()}
    if other is not None:
        everybody[SeatNo(8)] = other
    for second in range(seconds):
        dog.pass_second_of_all(everybody)
        if second == 3 and others_got_on:
            dog.watchdog.note_others_got_on(SEAT)
    return dog.watchdog


HEDGE = SeatNo(7)


def test_a_sample_that_blocks_two_workers_one_after_the_other_is_known_to_hang() -> None:
    assert two_at_one_sample(12).hangs_whoever_tries(SEAT, HEDGE, second_got_on=True)


def test_if_the_second_has_fetched_nothing_else_that_takes_longer() -> None:
    assert not two_at_one_sample(50).hangs_whoever_tries(SEAT, HEDGE, second_got_on=False)
    assert two_at_one_sample(70).hangs_whoever_tries(SEAT, HEDGE, second_got_on=False)


def test_an_outage_is_no_such_sample() -> None:
    blocked_as_well = two_at_one_sample(200, other=seen())
    assert not blocked_as_well.hangs_whoever_tries(SEAT, HEDGE, second_got_on=True)
    nobody_got_on = two_at_one_sample(200, others_got_on=False)
    assert not nobody_got_on.hangs_whoever_tries(SEAT, HEDGE, second_got_on=True)


def test_a_blocked_worker_is_told_how_long_it_is_waited_for() -> None:
    assert two_at_one_sample(103).left_s(SEAT, HEDGE) == ALL_BLOCKED_S - 100  # until nobody but the long limit counts
    watchdog = two_at_one_sample(103)
    watchdog.note_others_got_on(HEDGE)
    assert watchdog.left_s(SEAT, HEDGE) == ONE_BLOCKED_S - 100


def test_a_worker_that_waits_for_memory_is_not_stuck_but_its_wait_has_an_end() -> None:
    dog, waiting = Dog(all_blocked_s=20), Pulse(Step.WAITING, TicketNo(3), -1)
    for second in range(int(STARVED_S) + 1):
        assert dog.pass_second(seen(waits_in="sleep"), pulse=waiting) is State.FINE
        assert not dog.watchdog.is_at_a_standstill
        assert dog.watchdog.is_starved(SEAT) is (second == STARVED_S)
    dog.pass_second(seen())
    assert not dog.watchdog.is_starved(SEAT)
