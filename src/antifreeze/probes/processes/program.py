"""The picture of a running program: its processes, what each is at, and whether anything of it moves.

One look cannot tell a frozen process from one that is just there, so we look several times and compare: processor time,
bytes, stacks, samples. For how long each had slept before is asked first of all: py-spy wakes whom it looks at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from antifreeze import machine
from antifreeze.doctor.facts import ProcessPicture
from antifreeze.errors import ConfigError
from antifreeze.machine import Kin
from antifreeze.probes.processes import reading
from antifreeze.probes.processes.family import find_program, members, trainer_of
from antifreeze.probes.processes.looks import Course, Look, courses_of, look_at
from antifreeze.probes.processes.painting import paint, who_waits_for_whom
from antifreeze.probes.processes.spy import stacks_of

# When to look, in seconds.
LOOKS_AT_S = (0.0, 0.6, 1.2, 3.2)
# So many looks every program gets, and the rest only one that seems to be frozen.
ENOUGH_IF_IT_MOVES = 3
# Each takes a second of a processor, and where all workers hang, they hang in the same thing.
MOST_NATIVE = 4


def look_at_program(pid: int, *, native: bool = False, keep_values: bool = False) -> tuple[ProcessPicture, ...]:
    """The program that this process belongs to, its trainer first; ConfigError if there is no such process.

    `native` asks for native functions of all processes, not only of those that are frozen in them; `keep_values` keeps the
    variables of the user's functions.
    """
    asleep_s = machine.asleep_s(kin.pid for kin in machine.descendants_of(pid))
    program = find_program(trainer_of(pid))
    looks, courses = _watch(program, {**machine.asleep_s(kin.pid for kin in program), **asleep_s})
    if not courses:
        raise ConfigError(f"there is no process {pid}", where="PID", try_="ps aux | grep python")
    stacks, natives = looks[-1].stacks, _natives(courses, ask_all=native)
    painted = [
        paint(course, stacks[course.pid], native=natives.get(course.pid, ()), keep_values=keep_values)
        for course in courses
    ]
    painted.sort(key=lambda picture: picture.role == "launcher")  # it comes last, for nobody asks about it
    return who_waits_for_whom(painted)


def _watch(program: Sequence[Kin], asleep_s: dict[int, float]) -> tuple[list[Look], list[Course]]:
    looks: list[Look] = []
    courses: list[Course] = []
    began = time.monotonic()
    for number, at in enumerate(LOOKS_AT_S if program else (), 1):
        time.sleep(max(0.0, began + at - time.monotonic()))
        looks.append(look_at([kin.pid for kin in program], looks[-1] if looks else None))
        courses = courses_of(members(program, looks[-1].stacks), looks, asleep_s)
        if number >= ENOUGH_IF_IT_MOVES and not _seems_frozen(courses):
            break
    return looks, courses


def _seems_frozen(courses: Sequence[Course]) -> bool:
    return any(course.is_suspicious for course in courses) or all(course.still_s for course in courses)


def _natives(courses: Sequence[Course], *, ask_all: bool) -> dict[int, tuple[str, ...]]:
    """Native functions of some that wait in something that is not plain Python."""
    frozen = [course.pid for course in courses if _is_frozen_in_a_call(course)]
    asked = [course.pid for course in courses] if ask_all else frozen[:MOST_NATIVE]
    found = stacks_of(asked, native=True) if asked else {}
    return {pid: reading.natives(main.calls) for pid, spied in found.items() if (main := spied.main(pid)) is not None}


def _is_frozen_in_a_call(course: Course) -> bool:
    is_at_work = course.is_suspicious and bool(course.still_s)
    return is_at_work and course.facts[-1].state == "S" and course.facts[-1].waits_in in ("lock", "poll", None)
