"""The largest of the last few values."""

import random

from antifreeze.engine.arena.recent import RecentMaximum


def test_at_first_there_is_nothing() -> None:
    assert RecentMaximum(4).value == 0


def test_it_is_the_largest_of_at_least_the_last_span_and_at_most_twice_as_many() -> None:
    span, chance = 5, random.Random(3)
    values = [chance.randrange(100) for _ in range(500)]
    recent = RecentMaximum(span)
    for end, value in enumerate(values, start=1):
        largest = recent.note(value)
        assert largest == recent.value
        assert max(values[max(0, end - span) : end]) <= largest <= max(values[max(0, end - 2 * span) : end])
