"""Looking at the same processes several times: what has become of each from the first look to the last."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from antifreeze import machine
from antifreeze.machine import ProcessFacts
from antifreeze.probes.processes import classify_stack
from antifreeze.probes.processes.family import Member
from antifreeze.probes.processes.own_stacks import ask_worker
from antifreeze.probes.processes.spy import Call, Spied, stacks_of

# Waking up every few seconds to see whether anything has come takes less than this, and no work takes so little.
IDLE_SHARE = 0.02
_MAY_NOT = ("denied", "not permitted", "not installed")


@dataclass(frozen=True, slots=True)
class ProgramLook:
    """All processes at one moment."""

    at: float
    facts: dict[int, ProcessFacts]
    stacks: dict[int, Spied]


@dataclass(frozen=True, slots=True)
class ProcessHistory:
    """One process, over all looks."""

    member: Member
    facts: tuple[ProcessFacts, ...]
    calls: tuple[tuple[Call, ...], ...]
    """Of its main thread, as far as they are its own, one per look; nothing where they could not be seen."""
    span_s: float
    """From the first look to the last."""
    asleep_s: float
    """For how long it had not run before the first look; 0: unknown."""

    @property
    def pid(self) -> int:
        return self.member.kin.pid

    @property
    def is_worker(self) -> bool:
        return self.member.role in ("worker", "our-worker")

    @property
    def stage(self) -> str | None:
        """As `ProcessPicture.stage`."""
        calls = self.calls[-1]
        if not calls:
            return None
        if self.is_worker:
            return classify_stack.stage_of_worker(calls, line_of)
        return classify_stack.stage_of_trainer(calls) if self.member.role == "trainer" else None

    @property
    def cpu_share(self) -> float:
        return (self.facts[-1].cpu_s - self.facts[0].cpu_s) / self.span_s if self.span_s else 0.0

    @property
    def still_s(self) -> float:
        """As `ProcessPicture.still_s`."""
        first, last = self.facts[0], self.facts[-1]
        has_worked = self.cpu_share > IDLE_SHARE or last.io_bytes > first.io_bytes
        has_run = any(facts.state == "R" for facts in self.facts)
        stays = self._is_always(_lines) and (not self.is_worker or self._is_always(_sample))
        return self.span_s + self.asleep_s if stays and not has_worked and not has_run else 0.0

    @property
    def same_place_s(self) -> float:
        """As `ProcessPicture.same_place_s`."""
        if not all(self.calls):
            return 0.0
        return self.span_s if self._is_always(_sample if self.is_worker else _call_of_the_users) else 0.0

    @property
    def is_suspicious(self) -> bool:
        """Whether it stays where it is and is not just waiting for another one of the program."""
        return self.stage not in ("idle", "next", None) and bool(self.still_s or self.same_place_s)

    def _is_always(self, part: Callable[[Sequence[Call]], Hashable]) -> bool:
        return len({part(calls) for calls in self.calls if calls}) <= 1


def look_at(pids: Sequence[int], before: ProgramLook | None = None) -> ProgramLook:
    """Ask the kernel and py-spy about these, and workers of ours themselves where py-spy may not look."""
    at = time.monotonic()
    facts = {pid: seen for pid in pids if (seen := machine.process_facts(pid)) is not None}
    stacks = stacks_of(list(facts))
    for pid, spied in stacks.items():
        # The signal ends a sleep or a poll before its time, so a worker is asked once, and only if it does nothing.
        if any(words in spied.error for words in _MAY_NOT) and before and before.facts.get(pid) == facts[pid]:
            stacks[pid] = before.stacks[pid] if before.stacks[pid].threads else ask_worker(pid) or spied
    return ProgramLook(at, facts, stacks)


def histories_of(
    members: Sequence[Member], looks: Sequence[ProgramLook], asleep_s: dict[int, float]
) -> list[ProcessHistory]:
    """Of those that were there all the time."""
    return [
        ProcessHistory(
            member=member,
            facts=tuple(look.facts[member.kin.pid] for look in looks),
            calls=tuple(_own_calls(look, member.kin.pid) for look in looks),
            span_s=looks[-1].at - looks[0].at,
            asleep_s=asleep_s.get(member.kin.pid, 0.0),
        )
        for member in members
        if all(member.kin.pid in look.facts for look in looks)
    ]


def line_of(file: str, line: int) -> str:
    """The text of a line; nothing if it cannot be read from here."""
    return linecache.getline(file, line).strip()


def _own_calls(look: ProgramLook, pid: int) -> tuple[Call, ...]:
    main = look.stacks[pid].main(pid)
    return classify_stack.own_part(main.calls) if main else ()


def _lines(calls: Sequence[Call]) -> Hashable:
    return tuple((call.frame.file, call.frame.line) for call in calls)


def _sample(calls: Sequence[Call]) -> Hashable:
    """What a worker is at: where no index can be seen, the call of the user's code."""
    sample, batch = classify_stack.sample_at(calls), classify_stack.batch_at(calls)
    return (
        (sample, batch, classify_stack.stage_of_worker(calls, line_of))
        if sample or batch
        else _call_of_the_users(calls)
    )


def _call_of_the_users(calls: Sequence[Call]) -> Hashable:
    """The user's innermost function, and the lines that led there: it may loop, as long as it does not return."""
    frames = classify_stack.users_frames(calls)
    return tuple((frame.file, frame.function, frame.line if at else 0) for at, frame in enumerate(frames))
