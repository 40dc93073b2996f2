"""What a process and all that it started have used: whether anything there works.

What a process started is found from its children down, which costs as much as there are. One whose parent has ended hangs
elsewhere in the tree and is found by its group alone, in a scan of all processes of the machine. On a machine with
thousands of them a scan takes a third of a second, so the next one waits until it is less than a hundredth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from antifreeze.machine.processes import Stat, facts_in_stat, io_bytes, numbers_in_proc
from antifreeze.machine.reading import lines, listing

# Between two scans, in multiples of what a scan takes.
SCAN_PAUSES = 100


class GroupFacts(NamedTuple):
    """What a process and all that it started have used; a change of a number means that something works."""

    cpu_s: float
    io_bytes: int
    is_running: bool
    """Whether one of them has a processor, or waits for nothing but one."""


class Families:
    """Finds the members of groups, again and again, at a bounded cost."""

    def __init__(self) -> None:
        self._scanned: dict[int, Stat] = {}
        self._next_scan = 0.0

    def facts_of(self, pids: Iterable[int]) -> dict[int, GroupFacts]:
        """What the groups that these processes lead, and all children of their members, have used."""
        now = time.monotonic()
        if now >= self._next_scan:
            self._scanned = {
                number: seen for number in numbers_in_proc() if (seen := facts_in_stat(number)) is not None
            }
            self._next_scan = now + SCAN_PAUSES * (time.monotonic() - now)
        facts = {}
        for pid in pids:
            known = {number: seen for number in self._members(pid) if (seen := facts_in_stat(number)) is not None}
            if known:
                facts[pid] = GroupFacts(
                    # With the children that have ended: their time must not seem to be taken back.
                    cpu_s=sum(seen.cpu_s + seen.reaped_cpu_s for seen in known.values()),
                    io_bytes=sum(io_bytes(number, seen) for number, seen in known.items()),
                    is_running=any(seen.state == "R" for seen in known.values()),
                )
        return facts

    def _members(self, pid: int) -> set[int]:
        members = {number for number, seen in self._scanned.items() if pid in (number, seen.group)} | {pid}
        while more := {number for number, seen in self._scanned.items() if seen.parent in members} - members:
            members |= more
        unasked = list(members)
        while unasked:
            children = _children_of(unasked.pop()) - members
            members |= children
            unasked.extend(children)
        return members


def facts_of_groups(pids: Iterable[int]) -> dict[int, GroupFacts]:
    """What the groups that these processes lead, and all children of their members, have used; all in one look."""
    return Families().facts_of(pids)


def children_of(pid: int) -> dict[int, Stat]:
    """The children of a process, also those that have ended and were not waited for; nothing if that cannot be known."""
    return {child: seen for child in _children_of(pid) if (seen := facts_in_stat(child)) is not None}


def _children_of(pid: int) -> set[int]:
    """The children of all its threads; nothing where the kernel does not keep such lists."""
    task = f"/proc/{pid}/task"
    return {
        int(child) for thread in listing(task) for line in lines(f"{task}/{thread}/children") for child in line.split()
    }
