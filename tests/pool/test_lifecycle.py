"""The table of a worker's life."""

import itertools

import pytest

from antifreeze.engine.pool.lifecycle import MOVES, Event, Life, after
from antifreeze.errors import InternalError


def test_every_move_of_the_table_is_made() -> None:
    for (life, event), following in MOVES.items():
        assert after(life, event) is following


def test_any_other_move_is_a_bug_of_ours() -> None:
    for life, event in set(itertools.product(Life, Event)) - set(MOVES):
        with pytest.raises(InternalError, match=f"a worker that is {life.name} cannot {event.name}"):
            after(life, event)


def test_a_worker_that_ends_is_lost_unless_it_was_asked_to_leave() -> None:
    assert after(Life.ALIVE, Event.EXIT) is Life.LOST
    assert after(after(Life.ALIVE, Event.STOP), Event.EXIT) is Life.GONE


def test_a_worker_may_be_asked_to_leave_before_we_hear_of_its_birth() -> None:
    life = after(Life.ASKED_FOR, Event.STOP)
    assert after(after(life, Event.BIRTH), Event.EXIT) is Life.GONE


def test_a_pool_may_be_stopped_whatever_has_become_of_its_workers() -> None:
    assert [after(life, Event.STOP) for life in (Life.ASKED_FOR, Life.ALIVE, Life.LOST)] == [
        Life.LEAVING,
        Life.LEAVING,
        Life.LOST,
    ]


def test_every_life_is_reached_from_the_first() -> None:
    reached = {Life.ASKED_FOR}
    while more := {MOVES[pair] for pair in MOVES if pair[0] in reached} - reached:
        reached |= more
    assert reached == set(Life)
