"""Has a worker copied so much of the memory that it shares with its stem that a fresh one should go on instead? Pure.

Reading a Python object changes its reference count, and so copies its page: a worker that reads a big dataset ends up with
a copy of it (decision 13). To look at a worker's memory takes milliseconds, so it is looked at only when enough pages have
been faulted in since the last look, and the rarer the less comes of it.

A worker whose own memory grows and grows (an unbounded cache in a library) would be killed for it in the end. Growth alone
does not tell a leak from a cache that is being filled, so it is renewed only when memory is short.
"""

from __future__ import annotations

from typing import NamedTuple

from antifreeze.machine import Memory

# What a worker may have copied: nobody misses less, and of a large stem it is still the smaller part for a dozen workers.
FLOOR_BYTES, SHARE = 10 << 20, 0.05
# Of the limit: how much must have been faulted in before the first look, and between any two.
FIRST_PART, PART = 1 / 8, 1 / 4
# A worker lives for at least so many times as long as its birth took, and a look is so much shorter than what follows it.
LIVES, PAUSES = 15, 50
# Looks that show nothing new become as rare as this.
MOST_PAUSE_S = 30.0
# Below this share of its rate so far, copying has come to an end: what a worker always uses is there.
ENDED = 1 / 4
# A worker that has grown by less is not worth renewing for it; and as long as more than this share of all memory is left,
# nothing is: whatever it keeps may be of use.
LEAK_BYTES, SHORT_SHARE = 128 << 20, 1 / 8


class _Look(NamedTuple):
    at: float
    memory: Memory


def is_short(*, available_bytes: int, total_bytes: int | None) -> bool:
    """Whether so little memory is left that a worker that grows on will be killed for it."""
    return total_bytes is not None and available_bytes < SHORT_SHARE * total_bytes


class Growth:
    """What is known of one worker's memory, from its first ticket on."""

    def __init__(self, *, now: float, birth_s: float) -> None:
        self._stays_until = now + LIVES * birth_s
        self._looks: list[_Look] = []
        """The first, and the last two."""
        self._pause_s = 0.0
        self.next_look = now
        """Not before."""
        self.bytes_between_looks = int(FLOOR_BYTES * FIRST_PART)
        """So much must have been faulted in since the last one."""

    @property
    def copied_bytes(self) -> int:
        """How much has been copied since the first look."""
        return self._looks[-1].memory.copied - self._looks[0].memory.copied if self._looks else 0

    @property
    def grown_bytes(self) -> int:
        """By how much its own memory has grown since the first look."""
        return self._looks[-1].memory.own - self._looks[0].memory.own if self._looks else 0

    @property
    def may_leak(self) -> bool:
        """Whether its own memory has grown by much, and goes on growing: what it always keeps is there after a while."""
        if len(self._looks) < 3 or self._looks[-1].at < self._stays_until or self.grown_bytes < LEAK_BYTES:
            return False
        first, before, last = self._looks
        grown = last.memory.own - before.memory.own
        return grown * (last.at - first.at) >= ENDED * self.grown_bytes * (last.at - before.at)

    def note(self, memory: Memory, *, now: float, took_s: float) -> bool:
        """This is what a look has shown, and it took so long: is the worker to be renewed?"""
        limit = max(FLOOR_BYTES, int(SHARE * memory.inherited))
        self.bytes_between_looks = int(limit * PART)
        self._looks = [*self._looks[:1], *self._looks[1:][-1:], _Look(now, memory)]
        first, last = self._looks[0], self._looks[-2:][0]
        grown = memory.copied - last.memory.copied
        kept = memory.own - last.memory.own
        is_news = len(self._looks) == 1 or grown >= self.bytes_between_looks / 2 or kept >= LEAK_BYTES / 8
        self._pause_s = max(PAUSES * took_s, 0.0 if is_news else min(2 * self._pause_s, MOST_PAUSE_S))
        self.next_look = now + self._pause_s
        if len(self._looks) < 3 or now < self._stays_until:  # two looks cannot tell a start from what goes on
            return False
        goes_on = grown * (now - first.at) >= ENDED * self.copied_bytes * (now - last.at)
        keeps = memory.own - first.memory.own  # a worker that keeps what it reads would have to read it again
        return goes_on and self.copied_bytes + grown >= limit and self.copied_bytes >= keeps
