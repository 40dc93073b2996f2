"""The table of a slot's life, and the books about all slots."""

import itertools
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antifreeze.engine.arena.slots import MOVES, Event, SlotBooks, State, slots_that_fit, split_slots
from antifreeze.engine.numbers import SlotNo, WorkerNo
from antifreeze.errors import InternalError

WAY_TO = {
    State.FILLED: [],
    State.FREE: [Event.DISCARD],
    State.LEASED: [Event.DISCARD, Event.LEASE],
    State.CONDEMNED: [Event.DISCARD, Event.LEASE, Event.LOSE_WRITER],
    State.LENT: [Event.LEND],
    State.SHARED: [Event.LEND, Event.FORK],
    State.GONE: [Event.DISCARD, Event.RETIRE],
}


def books_with_a_slot(state: State) -> tuple[SlotBooks, SlotNo]:
    books = SlotBooks()
    slot = books.adopt(100)
    for event in WAY_TO[state]:
        books.move(slot, event)
    assert books.state(slot) is state
    return books, slot


def test_every_move_of_the_table_is_made() -> None:
    for (state, event), following in MOVES.items():
        books, slot = books_with_a_slot(state)
        assert books.move(slot, event) is following
        assert books.state(slot) is following


def test_any_other_move_is_a_bug_of_ours_and_changes_nothing() -> None:
    for state, event in set(itertools.product(State, Event)) - set(MOVES):
        books, slot = books_with_a_slot(state)
        with pytest.raises(InternalError, match=f"slot 0 is {state.name} and cannot {event.name}"):
            books.move(slot, event)
        assert books.state(slot) is state


def test_nothing_but_a_whole_batch_is_ever_lent_and_nothing_but_a_free_slot_leased() -> None:
    assert [state for state, event in MOVES if event is Event.LEND] == [State.FILLED]
    assert [state for state, event in MOVES if event is Event.LEASE] == [State.FREE]
    assert [state for state, event in MOVES if event is Event.FILL] == [State.LEASED]


def test_memory_that_a_child_of_the_trainer_sees_never_becomes_free_again() -> None:
    reached = {State.SHARED}
    while more := {MOVES[pair] for pair in MOVES if pair[0] in reached} - reached:
        reached |= more
    assert reached == {State.SHARED, State.GONE}


def test_every_state_has_a_way_out() -> None:
    reached = {State.GONE}
    while more := {before for (before, _), following in MOVES.items() if following in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_a_free_slot_that_the_worker_has_mapped_is_chosen_first_the_warmest_of_them() -> None:
    books = SlotBooks()
    slots = [books.adopt(10) for _ in range(4)]
    books.move_all(slots, Event.DISCARD)
    assert books.choose_free(WorkerNo(0)) == slots[3]
    for slot in slots[:2]:
        books.add_home(slot, WorkerNo(0))
    assert books.choose_free(WorkerNo(0)) == slots[1]
    assert books.choose_free(WorkerNo(1)) == slots[3]
    books.move(slots[1], Event.LEASE)
    assert books.choose_free(WorkerNo(0)) == slots[0]


def test_a_worker_forgets_each_slot_that_is_gone_once() -> None:
    books, slot = books_with_a_slot(State.FREE)
    books.add_home(slot, WorkerNo(0))
    books.add_home(slot, WorkerNo(1))
    assert books.take_forgettable(WorkerNo(0)) == ()
    books.move(slot, Event.RETIRE)
    assert books.take_forgettable(WorkerNo(0)) == (slot,)
    assert books.take_forgettable(WorkerNo(0)) == ()
    assert books.take_forgettable(WorkerNo(1)) == (slot,)


def test_a_worker_that_is_gone_has_nothing_mapped() -> None:
    books, slot = books_with_a_slot(State.FREE)
    books.add_home(slot, WorkerNo(0))
    books.forget_worker(WorkerNo(0))
    assert not books.is_home(slot, WorkerNo(0))
    books.move(slot, Event.RETIRE)
    assert books.take_forgettable(WorkerNo(0)) == ()


class Books(RuleBasedStateMachine):
    """Any legal move in any order: the books agree with a list of what has happened."""

    @initialize()
    def begin(self) -> None:
        self.books = SlotBooks()
        self.states: dict[SlotNo, State] = {}
        self.sizes: dict[SlotNo, int] = {}
        self.homes: defaultdict[SlotNo, set[WorkerNo]] = defaultdict(set)
        self.to_forget: defaultdict[WorkerNo, set[SlotNo]] = defaultdict(set)

    @rule(size=st.integers(1, 1000))
    def adopt(self, size: int) -> None:
        slot = self.books.adopt(size)
        assert slot not in self.states  # a number is never given twice
        self.states[slot] = State.FILLED
        self.sizes[slot] = size

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def move(self, data: Any) -> None:
        slot = data.draw(st.sampled_from(self.living()))
        state = self.states[slot]
        event = data.draw(st.sampled_from([event for before, event in MOVES if before is state]))
        self.states[slot] = self.books.move(slot, event)
        if self.states[slot] is State.GONE:
            for worker in self.homes.pop(slot, ()):
                self.to_forget[worker].add(slot)

    @rule(worker=st.integers(0, 2).map(WorkerNo))
    def lease(self, worker: WorkerNo) -> None:
        free = [slot for slot, state in self.states.items() if state is State.FREE]
        chosen = self.books.choose_free(worker)
        assert (chosen is None) == (not free)
        if chosen is None:
            return
        assert chosen in free
        at_home = [slot for slot in free if worker in self.homes[slot]]
        assert chosen in (at_home or free)
        assert self.books.is_home(chosen, worker) == bool(at_home)
        self.states[chosen] = self.books.move(chosen, Event.LEASE)
        self.books.add_home(chosen, worker)
        self.homes[chosen].add(worker)

    @rule(worker=st.integers(0, 2).map(WorkerNo))
    def tell_to_forget(self, worker: WorkerNo) -> None:
        told = self.books.take_forgettable(worker)
        assert len(told) == len(set(told))
        assert set(told) == self.to_forget.pop(worker, set())

    @rule(worker=st.integers(0, 2).map(WorkerNo))
    def lose(self, worker: WorkerNo) -> None:
        self.books.forget_worker(worker)
        self.to_forget.pop(worker, None)
        for homes in self.homes.values():
            homes.discard(worker)

    @invariant()
    def the_books_are_right(self) -> None:
        living = self.living()
        assert len(self.books) == len(living)
        assert self.books.total_bytes == sum(self.sizes[slot] for slot in living)
        assert self.books.lent == sum(self.states[slot] in (State.LENT, State.SHARED) for slot in living)
        for state in State:
            expected = [slot for slot in living if self.states[slot] is state]
            assert sorted(self.books.slots_in(state)) == expected

    def living(self) -> list[SlotNo]:
        return [slot for slot, state in self.states.items() if state is not State.GONE]


TestBooks = Books.TestCase
TestBooks.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


@given(budget=st.integers(0, 1 << 40), size=st.integers(0, 1 << 40))
def test_at_least_one_slot_fits_and_several_only_within_the_budget(budget: int, size: int) -> None:
    count = slots_that_fit(budget_bytes=budget, slot_bytes=size)
    assert count >= 1
    assert count == 1 or count * size <= budget
    assert (count + 1) * max(1, size) > budget


@given(allowed=st.integers(1, 40), window=st.integers(1, 24), spare=st.integers(0, 6))
def test_slots_are_split_so_that_work_goes_on_within_what_is_allowed(allowed: int, window: int, spare: int) -> None:
    fitting, lendable = split_slots(allowed=allowed, window=window, spare=spare)
    assert 1 <= fitting <= window
    assert 0 <= lendable <= spare
    assert fitting + lendable == min(allowed, window + spare)  # none beyond what is allowed, none unused
    if allowed >= 3 and spare:
        assert lendable >= 1
    if fitting < window:
        assert lendable <= 1  # the window comes first


@given(allowed=st.integers(1, 40), window=st.integers(1, 24), spare=st.integers(0, 6))
def test_more_memory_never_means_a_smaller_window_or_fewer_slots_to_lend(allowed: int, window: int, spare: int) -> None:
    less = split_slots(allowed=allowed, window=window, spare=spare)
    more = split_slots(allowed=allowed + 1, window=window, spare=spare)
    assert more[0] >= less[0]
    assert more[1] >= less[1]


def test_a_window_of_4_with_3_to_spare() -> None:
    splits = [split_slots(allowed=allowed, window=4, spare=3) for allowed in (1, 2, 3, 4, 5, 6, 7, 99)]
    assert splits == [(1, 0), (2, 0), (2, 1), (3, 1), (4, 1), (4, 2), (4, 3), (4, 3)]
