"""Back to where the generators were before a ticket."""

import random

import pytest

from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.wire.messages import Work
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.rewind import Rewinder


def work(number: int) -> Work:
    return Work(TicketNo(number), [number], None, 0, ())


@pytest.fixture
def randomness() -> Randomness:
    return Randomness(Recipe([], list, True, None, 0, 1, 1))


def test_what_was_done_since_the_snapshot_is_done_again_and_the_ticket_under_way_is_not(randomness: Randomness) -> None:
    replayed = []

    def replay(work: Work) -> None:
        replayed.append(work.ticket)
        random.random()

    rewinder = Rewinder(randomness, replay)
    rewinder.mark(randomness.state())
    for number in range(3):
        rewinder.note(work(number))
        drawn = random.random()
    assert rewinder.rewind()
    assert replayed == [0, 1]
    assert random.random() == drawn


def test_the_second_time_there_is_nothing_left_to_be_done_again(randomness: Randomness) -> None:
    replayed: list[Work] = []
    rewinder = Rewinder(randomness, replayed.append)
    rewinder.mark(randomness.state())
    for number in range(3):
        rewinder.note(work(number))
    assert rewinder.rewind() and len(replayed) == 2
    assert rewinder.rewind() and len(replayed) == 2
    rewinder.note(work(3))
    assert rewinder.rewind()
    assert [each.ticket for each in replayed] == [0, 1, 2]


def test_without_a_state_there_is_no_way_back_and_nothing_is_remembered(randomness: Randomness) -> None:
    rewinder = Rewinder(randomness, lambda work: None)
    rewinder.note(work(0))
    assert not rewinder.rewind()
    rewinder.mark(randomness.state())
    rewinder.note(work(1))
    rewinder.mark(None)
    for number in range(100):
        rewinder.note(work(number))
    assert not rewinder.rewind()
    assert not rewinder._since


def test_a_state_that_cannot_be_restored_is_no_way_back(randomness: Randomness) -> None:
    rewinder = Rewinder(randomness, lambda work: None)
    rewinder.mark(b"nonsense")
    rewinder.note(work(0))
    assert not rewinder.rewind()
