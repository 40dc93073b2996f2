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
from antifreeze.probes.processes import classify_stack
from antifreeze.probes.processes.family import find_program, members, trainer_of
from antifreeze.probes.processes.looks import ProcessHistory, ProgramLook, histories_of, look_at
from antifreeze.probes.processes.snapshot import snapshot, who_waits_for_whom
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
    looks, histories = _watch(program, {**machine.asleep_s(kin.pid for kin in program), **asleep_s})
    if not histories:
        raise ConfigError(f"there is no process {pid}", where="PID", try_="ps aux | grep python")
    stacks, natives = looks[-1].stacks, _natives(histories, ask_all=native)
    pictures = [
        snapshot(history, stacks[history.pid], native=natives.get(history.pid, ()), keep_values=keep_values)
        for history in histories
    ]
    pictures.sort(key=lambda picture: picture.role == "launcher")  # it comes last, because it is never to blame
    return who_waits_for_whom(pictures)


def _watch(program: Sequence[Kin], asleep_s: dict[int, float]) -> tuple[list[ProgramLook], list[ProcessHistory]]:
    looks: list[ProgramLook] = []
    histories: list[ProcessHistory] = []
    began = time.monotonic()
    for number, at in enumerate(LOOKS_AT_S if program else (), 1):
        time.sleep(max(0.0, began + at - time.monotonic()))
        looks.append(look_at([kin.pid for kin in program], looks[-1] if looks else None))
        histories = histories_of(members(program, looks[-1].stacks), looks, asleep_s)
        if number >= ENOUGH_IF_IT_MOVES and not _seems_frozen(histories):
            break
    return looks, histories


def _seems_frozen(histories: Sequence[ProcessHistory]) -> bool:
    return any(history.is_suspicious for history in histories) or all(history.still_s for history in histories)


def _natives(histories: Sequence[ProcessHistory], *, ask_all: bool) -> dict[int, tuple[str, ...]]:
    """Native functions of some that wait in something that is not plain Python."""
    frozen = [history.pid for history in histories if _is_frozen_in_a_call(history)]
    asked = [history.pid for history in histories] if ask_all else frozen[:MOST_NATIVE]
    found = stacks_of(asked, native=True) if asked else {}
    return {
        pid: classify_stack.natives(main.calls) for pid, spied in found.items() if (main := spied.main(pid)) is not None
    }


def _is_frozen_in_a_call(history: ProcessHistory) -> bool:
    is_at_work = history.is_suspicious and bool(history.still_s)
    return is_at_work and history.facts[-1].state == "S" and history.facts[-1].waits_in in ("lock", "poll", None)
