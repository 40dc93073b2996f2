"""How many samples may be lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow.losses import ENOUGH_SAMPLES, Losses
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.errors import SampleFailed


def ticket(number: int, index: Any) -> Ticket:
    return Ticket(TicketNo(number), number, WorkerNo(0), index)


BATCHES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), max_size=50)


@given(batches=BATCHES, most=st.integers(0, 100))
def test_a_count_is_exceeded_by_the_first_sample_beyond_it(batches: list[tuple[int, int]], most: int) -> None:
    losses = Losses(most)
    total = 0
    for delivered, lost in batches:
        losses.note(delivered=delivered, lost=lost)
        total += lost
        assert losses.judge() == (total > most)


@given(batches=BATCHES, share=st.floats(0.001, 1))
def test_a_share_is_not_judged_before_enough_samples_have_been_seen(
    batches: list[tuple[int, int]], share: float
) -> None:
    losses = Losses(share)
    for delivered, lost in batches:
        losses.note(delivered=delivered, lost=lost)
        seen = losses.delivered + losses.lost
        assert losses.judge() == (seen >= ENOUGH_SAMPLES and losses.lost > share * seen)
        assert losses.judge(at_end=True) == (losses.lost > share * seen)


def test_nobody_trains_on_one_percent_of_the_data_without_noticing() -> None:
    losses = Losses(0.5)
    for _ in range(9):
        losses.note(delivered=1, lost=99)
        assert not losses.judge()
    losses.note(delivered=1, lost=99)
    assert losses.judge()


def test_a_whole_share_allows_everything_and_no_count_allows_nothing() -> None:
    everything, nothing = Losses(1.0), Losses(0)
    for losses in (everything, nothing):
        losses.note(delivered=0, lost=5000)
    assert not everything.judge(at_end=True)
    assert nothing.judge()


def test_an_epoch_without_samples_has_lost_nothing() -> None:
    assert not Losses(0.1).judge(at_end=True)


def test_every_epoch_is_counted_by_itself() -> None:
    losses = Losses(5)
    losses.note(delivered=10, lost=5)
    losses.begin()
    losses.note(delivered=10, lost=5)
    assert not losses.judge()


@pytest.mark.parametrize("most", [3, 0.25])
def test_the_error_says_how_many_what_the_limit_is_and_what_the_last_one_was(most: int | float) -> None:
    losses = Losses(most)
    losses.note(delivered=5, lost=3)
    assert losses.error().why is None
    losses.note_lost(TicketNo(4), ["sample 7: OSError: no such file"])
    assert losses.note_delivered(ticket(4, [6, 7])) == (most == 3)
    error = losses.error()
    assert isinstance(error, SampleFailed)
    assert "4 of 10 samples" in error.what and f"max_lost={most}" in str(error)
    assert "sample 7: OSError" in (error.why or "") and error.try_


def test_a_sample_is_lost_when_its_batch_is_delivered_and_not_before() -> None:
    losses = Losses(0)
    losses.note_lost(TicketNo(1), ["sample 3: ValueError"])
    assert not losses.note_delivered(ticket(0, [0, 1]))
    assert (losses.delivered, losses.lost) == (2, 0)
    assert losses.note_delivered(ticket(1, [2, 3]))
    assert (losses.delivered, losses.lost) == (3, 1)
    assert not losses.note_delivered(ticket(2, [4])), "it is said once, with the batch that was one too many"


def test_what_was_lost_of_batches_that_nobody_took_is_not_counted_in_the_next_epoch() -> None:
    losses = Losses(0)
    losses.note_lost(TicketNo(1), ["sample 3: ValueError"])
    losses.begin()
    assert not losses.note_delivered(ticket(1, 3))
    assert (losses.delivered, losses.lost) == (1, 0)
