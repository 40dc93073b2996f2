"""Replace a worker, or say that there is no point."""

from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.supervise.recovery import MOST_ENDS_AT_START, Recovery, Verdict

FIRST, SECOND = WorkerNo(0), WorkerNo(1)


def fetching(ticket: int, position: int) -> Pulse:
    return Pulse(Step.FETCHING, TicketNo(ticket), position)


def test_the_first_end_is_redone_and_the_second_at_the_same_sample_is_poison() -> None:
    recovery = Recovery(workers=2)
    assert recovery.judge(FIRST, fetching(3, 1)) is Verdict.REPLACE
    assert recovery.judge(FIRST, fetching(3, 2)) is Verdict.REPLACE
    assert recovery.judge(FIRST, fetching(3, 1)) is Verdict.POISON
    assert recovery.ends_at(FIRST, fetching(3, 1)) == 2


def test_another_worker_at_the_same_sample_counts_too() -> None:
    recovery = Recovery(workers=2)
    recovery.judge(FIRST, fetching(3, 1))
    assert recovery.judge(SECOND, fetching(3, 1)) is Verdict.POISON


def test_what_has_been_done_since_is_beyond_suspicion() -> None:
    recovery = Recovery(workers=2)
    recovery.judge(FIRST, fetching(3, 1))
    recovery.note_done(TicketNo(3))
    assert recovery.judge(FIRST, fetching(3, 1)) is Verdict.REPLACE


def test_what_others_have_done_since_excuses_nobody() -> None:
    recovery = Recovery(workers=2)
    recovery.judge(FIRST, fetching(3, 1))
    recovery.note_done(TicketNo(4))
    assert recovery.judge(FIRST, fetching(3, 1)) is Verdict.POISON


def test_collating_and_writing_are_places_of_their_own() -> None:
    recovery = Recovery(workers=2)
    for step in (Step.COLLATING, Step.WRITING):
        assert recovery.judge(FIRST, Pulse(step, TicketNo(3), 5)) is Verdict.REPLACE
    assert recovery.judge(FIRST, Pulse(Step.COLLATING, TicketNo(3), 6)) is Verdict.POISON


def test_a_worker_that_never_starts_is_not_started_for_ever() -> None:
    recovery = Recovery(workers=2)
    starting = Pulse(Step.STARTING, None, -1)
    verdicts = [recovery.judge(FIRST, starting) for _ in range(MOST_ENDS_AT_START)]
    assert verdicts == [Verdict.REPLACE] * (MOST_ENDS_AT_START - 1) + [Verdict.POISON]


def test_all_workers_of_a_pool_may_end_at_once() -> None:
    recovery = Recovery(workers=12)
    assert {recovery.judge(WorkerNo(number), fetching(number, 0)) for number in range(12)} == {Verdict.REPLACE}


PULSES = st.builds(
    Pulse, st.sampled_from(list(Step)), st.one_of(st.none(), st.integers(0, 3).map(TicketNo)), st.integers(-1, 3)
)


@given(workers=st.integers(1, 16), pulses=st.lists(PULSES, min_size=40, max_size=40))
def test_restarts_without_progress_come_to_an_end(workers: int, pulses: list[Pulse]) -> None:
    recovery = Recovery(workers=workers)
    verdicts = [recovery.judge(WorkerNo(number % workers), pulse) for number, pulse in enumerate(pulses)]
    assert any(verdict is not Verdict.REPLACE for verdict in verdicts)


@given(pulses=st.lists(PULSES, min_size=1, max_size=40))
def test_with_progress_between_them_ends_of_idle_workers_never_end_an_epoch(pulses: list[Pulse]) -> None:
    recovery = Recovery(workers=2)
    for number, pulse in enumerate(pulses):
        assert recovery.judge(FIRST, pulse._replace(step=Step.IDLE)) is Verdict.REPLACE
        recovery.note_done(TicketNo(number))
