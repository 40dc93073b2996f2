"""Which processes belong to a program, and what each of them is.

A question about a worker is one about the program that it works for. A rank that waits is understood from what the other
ranks do, so those on this machine belong to it, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from antifreeze import machine
from antifreeze.machine import Kin
from antifreeze.probes.processes import classify_stack
from antifreeze.probes.processes.loader_code import OUR_MEMORY
from antifreeze.probes.processes.spy import Spied, stacks_of

_RANK_VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK")
_SERVANTS = ("worker", "our-worker", "stem", "fork-server", "resource-tracker")
# Worker, stem or fork server, trainer; and one more for whatever somebody puts in between.
_MOST_GENERATIONS = 4


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the program."""

    kin: Kin
    role: str
    """As `ProcessPicture.role`."""
    worker: int | None
    rank: int | None
    world_size: int | None


def find_program(trainer: int) -> list[Kin]:
    """All processes of a program: its trainer comes first, other ranks come last; nothing if it has ended."""
    found = machine.descendants_of(trainer)
    known = {kin.pid for kin in found}
    for other in _other_ranks(trainer):
        found += [kin for kin in machine.descendants_of(other) if kin.pid not in known]
        known = {kin.pid for kin in found}
    return [kin for kin in found if kin.pid != os.getpid() or kin.pid == trainer]  # who looks is no part of it


def trainer_of(pid: int) -> int:
    """The process that this one works for, or itself."""
    for _ in range(_MOST_GENERATIONS):
        kin = machine.kin_of(pid)
        if kin is None or kin.parent <= 1 or _role(kin, stacks_of([pid])[pid]) not in _SERVANTS:
            break
        pid = kin.parent
    return pid


def members(program: Sequence[Kin], stacks: dict[int, Spied]) -> list[Member]:
    """What each process of the program is."""
    roles = {kin.pid: _role(kin, stacks.get(kin.pid, Spied())) for kin in program}
    ranks = {kin.pid: _rank(kin, stacks.get(kin.pid, Spied())) for kin in program}
    masters = {kin.parent for kin in program if roles[kin.pid] in ("worker", "our-worker", "stem", "fork-server")}
    free = [kin for kin in program if roles[kin.pid] is None]
    # A rank is a process that has a number which its parent has not.
    trainers = [kin for kin in free if kin.pid in masters or ranks[kin.pid] not in (None, ranks.get(kin.parent))]
    launchers = {kin.parent for kin in trainers} - {kin.pid for kin in trainers}
    for kin in free:
        is_launcher = kin.pid in launchers or (kin is program[0] and trainers and kin not in trainers)
        is_trainer = kin in trainers or kin is program[0]
        roles[kin.pid] = "launcher" if is_launcher else "trainer" if is_trainer else "child"
    numbers = _numbers(program, roles, stacks)
    return [
        Member(
            kin=kin,
            role=roles[kin.pid] or "child",
            worker=numbers.get(kin.pid),
            rank=ranks[kin.pid],
            world_size=_whole(machine.environment_of(kin.pid, _RANK_VARIABLES).get("WORLD_SIZE")),
        )
        for kin in program
    ]


def _role(kin: Kin, spied: Spied) -> str | None:
    main = spied.main(kin.pid)
    by_stack = classify_stack.role_by_stack(main.calls) if main else None
    if by_stack is not None:
        return by_stack
    is_ours = machine.has_mapped(kin.pid, OUR_MEMORY)
    return classify_stack.role_by_name(kin.name, kin.command, maps_our_memory=is_ours)


def _numbers(program: Sequence[Kin], roles: dict[int, str | None], stacks: dict[int, Spied]) -> dict[int, int]:
    """The numbers of the workers: their own, or, where none can be seen, the order in which they were started."""
    workers = [kin for kin in program if roles[kin.pid] in ("worker", "our-worker")]
    told = {kin.pid: _number(kin, stacks.get(kin.pid, Spied())) for kin in workers}
    if any(number is not None for number in told.values()):
        return {pid: number for pid, number in told.items() if number is not None}
    siblings: dict[int, list[int]] = {}
    for kin in sorted(workers, key=lambda kin: (kin.started_s, kin.pid)):
        siblings.setdefault(kin.parent, []).append(kin.pid)
    return {pid: number for pids in siblings.values() for number, pid in enumerate(pids)}


def _number(kin: Kin, spied: Spied) -> int | None:
    main = spied.main(kin.pid)
    return classify_stack.worker_number(main.calls) if main else None


def _rank(kin: Kin, spied: Spied) -> int | None:
    main = spied.main(kin.pid)
    given = classify_stack.rank_in(main.calls) if main else None
    if given is not None:
        return given
    told = machine.environment_of(kin.pid, _RANK_VARIABLES)
    return _whole(told.get("RANK", told.get("LOCAL_RANK")))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _other_ranks(trainer: int) -> list[int]:
    """The first process of every other rank of the same training that runs on this machine."""
    ours = machine.environment_of(trainer, _RANK_VARIABLES)
    if not {"RANK", "MASTER_PORT"} <= ours.keys():
        return []
    found = {}
    for pid in machine.started_with_variable("MASTER_PORT", ours["MASTER_PORT"]):
        theirs = machine.environment_of(pid, _RANK_VARIABLES)
        is_of_us = all(theirs.get(name) == ours.get(name) for name in ("MASTER_ADDR", "WORLD_SIZE"))
        if is_of_us and theirs.get("RANK") not in (None, ours["RANK"]):
            kin = machine.kin_of(pid)
            if kin and machine.environment_of(kin.parent, ["RANK"]).get("RANK") != theirs["RANK"]:
                found[pid] = int(theirs["RANK"])
    return sorted(found, key=lambda pid: found[pid])
