"""Is a worker at work, slow, or stuck? Pure: it is told what was seen, and how much time has passed.

Time is counted only while the trainer waits, in slices, so that a suspended machine, a paused container or a training
step that takes an hour costs nobody more than one slice. A worker is *stalled* when its sample takes far longer than this
loader's samples do and it is blocked: neither it nor anything that it started computes, reads or writes. One that is not
blocked is *slow*, however long it takes.

What always holds: a worker that works reaches no limit but that of a whole day. A blocked worker may be waiting for one
that works (for a lock on a file, say), so the time of both limits stands still while any silent worker works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.numbers import SeatNo

# From here on it is worth asking the kernel what a silent worker does.
CURIOUS_S = 2.0
# A sample may take this many times as long as the slowest one so far, once a handful are done.
FAR_LONGER, A_HANDFUL = 50, 5
# With no history, in multiples of `stall_after`: in a lock, which is the mark of a fork that went wrong; anywhere else.
FIRST_IN_A_LOCK, FIRST = 1.5, 6.0
# So long must it have been blocked, or stopped by a signal, at the least.
BLOCKED_S = 5.0
# Less than this share of a processor is the noise of waking up and waiting again.
IDLE_SHARE = 0.05
# A second of work takes back so many seconds of standstill: a worker that works now and then is never given up, but a
# thread that only writes a line every minute does not hide a standstill.
WORK_TAKES_BACK = 10
# No sample computes for a day. Without this limit, an endless loop in every worker would be waited for forever.
MAX_SILENT_S = 24 * 3600.0
# So long may a worker wait for shared memory: a shortage that passes has passed by then.
STARVED_S = 30.0


class State(Enum):
    """How a worker is."""

    FINE = auto()
    SLOW = auto()
    STALLED = auto()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the kernel says about a worker, and about all that it started."""

    cpu_s: float
    io_bytes: int
    is_traced: bool
    is_stopped: bool
    waits_in: str | None
    """What it waits for: `lock`, `socket`, `pipe`, `sleep`, `disk` …"""
    is_running: bool = False
    """Whether any of them has a processor, or waits for nothing but one."""


@dataclass(slots=True)
class _Watch:
    pulse: Pulse
    silent_s: float = 0.0
    blocked_s: float = 0.0
    counted_s: float = 0.0
    """Of `blocked_s`, what counts towards the limit: without the time in which another silent worker worked."""
    is_at_work: bool = False
    """Whether it worked between the last two closer looks."""
    others_got_on: bool = False
    last: Seen | None = None


class Watchdog:
    """Keeps the time for all workers of an iterator."""

    def __init__(self, *, stall_after_s: float, one_blocked_s: float, all_blocked_s: float) -> None:
        self._stall_after_s = stall_after_s
        self._sample_limit_s = one_blocked_s
        self._standstill_limit_s = all_blocked_s
        self._standstill_s = 0.0
        self._watches: dict[SeatNo, _Watch] = {}

    @property
    def is_at_a_standstill(self) -> bool:
        """Whether all workers have been blocked, or silent, for so long that there is no hope left."""
        return self._standstill_s >= self._standstill_limit_s or self._all_silent_s >= MAX_SILENT_S

    @property
    def standstill_s(self) -> float:
        """How long all workers have been blocked, as far as we have waited; or silent, if that is what ends it."""
        return max(self._standstill_s, self._all_silent_s if self._all_silent_s >= MAX_SILENT_S else 0.0)

    @property
    def _all_silent_s(self) -> float:
        return min((watch.silent_s for watch in self._watches.values()), default=0.0)

    @property
    def is_calm(self) -> bool:
        """Whether nobody is being watched."""
        return not self._watches

    def note_done(self, seat: SeatNo) -> None:
        """This worker has finished a ticket, or has been given up."""
        self._standstill_s = 0.0
        self._watches.pop(seat, None)
        for watch in self._watches.values():
            watch.others_got_on = True

    def note_others_got_on(self, seat: SeatNo) -> None:
        """While this worker is silent, others have done all that they had to do."""
        watch = self._watches.get(seat)
        if watch is not None:
            watch.others_got_on = True

    def look(self, seat: SeatNo, pulse: Pulse, *, passed_s: float) -> bool:
        """A look at the pulse of a worker that has something to do; whether it is worth a closer look."""
        watch = self._watches.get(seat)
        if watch is None or watch.pulse != pulse:
            if watch is not None:
                self._standstill_s = 0.0
            self._watches[seat] = _Watch(pulse)
            return False
        watch.silent_s += passed_s
        if pulse.step is Step.WAITING:  # for memory: it is not stuck, and has a limit of its own
            self._standstill_s = 0.0
            return False
        return watch.silent_s >= min(CURIOUS_S, self._stall_after_s / 2)

    def look_closer(self, seat: SeatNo, seen: Seen | None, *, passed_s: float) -> None:
        """Take in what the kernel says about a silent worker; None: it says nothing, so nothing shows that it works."""
        watch = self._watches[seat]
        before, watch.last = watch.last, seen or watch.last
        watch.is_at_work = seen is not None and before is not None and is_working(before, seen, passed_s)
        was_traced = before is not None and before.is_traced
        # Somebody is debugging it, or has been until just now: how much of this slice was theirs is not known.
        if was_traced or (seen is not None and seen.is_traced):
            watch.silent_s = watch.blocked_s = watch.counted_s = self._standstill_s = 0.0
        elif watch.is_at_work or (seen is not None and before is None):
            watch.blocked_s = watch.counted_s = 0.0
        else:
            watch.blocked_s += passed_s

    def note_waited(self, passed_s: float) -> None:
        """Count a slice in which the trainer waited and nothing came; only after all looks of this slice."""
        watches = self._watches.values()
        if any(watch.is_at_work for watch in watches):
            self._standstill_s = max(0.0, self._standstill_s - WORK_TAKES_BACK * passed_s)
            return
        for watch in watches:
            if watch.blocked_s:
                watch.counted_s += passed_s
        if all(watch.blocked_s for watch in watches):
            self._standstill_s += passed_s

    def forget(self, seat: SeatNo) -> None:
        """This worker has ended, or has nothing to do."""
        self._watches.pop(seat, None)

    def judge(self, seat: SeatNo, *, samples_done: int, slowest_s: float) -> State:
        """How a worker is, given what its samples have taken so far."""
        watch = self._watches.get(seat)
        if watch is None or watch.last is None:
            return State.FINE
        enough_s = min(BLOCKED_S, self._stall_after_s / 2)
        if watch.last.is_stopped and watch.blocked_s >= enough_s:
            return State.STALLED
        overdue_s = watch.silent_s - self._patience_s(watch, samples_done, slowest_s)
        if overdue_s >= 0 and watch.blocked_s >= enough_s:
            return State.STALLED
        # Whoever is blocked has shown it by then.
        return State.SLOW if overdue_s >= 2 * enough_s else State.FINE

    def is_beyond_hope(self, *seats: SeatNo) -> bool:
        """Whether all of these have been blocked for longer than any sample may take, while others got on."""
        watches = [self._watches.get(seat) for seat in seats]
        return all(
            watch is not None and watch.others_got_on and watch.counted_s >= self._sample_limit_s for watch in watches
        )

    def hangs_whoever_tries(self, first: SeatNo, second: SeatNo, *, second_got_on: bool) -> bool:
        """Whether two workers, one after the other, are blocked at one sample, and only there.

        An outage blocks everybody, so another worker that is blocked, too, speaks against it. For it speaks that others
        have got on since, and that the second worker has fetched other samples itself; if it has not, it is given longer.
        """
        one, other = self._watches.get(first), self._watches.get(second)
        if one is None or other is None or not one.others_got_on:
            return False
        if any(watch.blocked_s for seat, watch in self._watches.items() if seat not in (first, second)):
            return False
        enough_s = min(BLOCKED_S, self._stall_after_s / 2) if second_got_on else FIRST * self._stall_after_s
        return min(one.counted_s, other.counted_s) >= enough_s

    def left_s(self, *seats: SeatNo) -> float:
        """How much longer these workers, which are blocked, are waited for if nothing changes."""
        watches = [watch for seat in seats if (watch := self._watches.get(seat)) is not None]
        until_standstill_s = self._standstill_limit_s - self._standstill_s
        if not all(watch.others_got_on for watch in watches):
            return max(0.0, until_standstill_s)
        counted_s = min((watch.counted_s for watch in watches), default=0.0)
        return max(0.0, min(until_standstill_s, self._sample_limit_s - counted_s))

    def is_starved(self, seat: SeatNo) -> bool:
        """Whether this worker has waited for shared memory for too long."""
        watch = self._watches.get(seat)
        return watch is not None and watch.pulse.step is Step.WAITING and watch.silent_s >= STARVED_S

    def is_stillborn(self, seat: SeatNo) -> bool:
        """Whether what is to bring this one to life has been blocked for longer than any first sample may be."""
        watch = self._watches.get(seat)
        return watch is not None and watch.blocked_s >= FIRST * self._stall_after_s

    def silent_s(self, seat: SeatNo) -> float:
        """How long this worker has been at the same sample, as far as we have waited for it."""
        watch = self._watches.get(seat)
        return watch.silent_s if watch else 0.0

    def waits_in(self, seat: SeatNo) -> str | None:
        """What this worker waits for, as the kernel names it."""
        watch = self._watches.get(seat)
        return watch.last.waits_in if watch and watch.last else None

    def is_stopped(self, seat: SeatNo) -> bool:
        """Whether a signal has stopped it."""
        watch = self._watches.get(seat)
        return bool(watch and watch.last and watch.last.is_stopped)

    def _patience_s(self, watch: _Watch, samples_done: int, slowest_s: float) -> float:
        if samples_done >= A_HANDFUL:
            # At most half as long as a sample may be blocked: the slowest may have been a worker that somebody had
            # stopped, and a hedge needs its time.
            return max(self._stall_after_s, min(FAR_LONGER * slowest_s, self._sample_limit_s / 2))
        in_a_lock = watch.last is not None and watch.last.waits_in == "lock"
        return self._stall_after_s * (FIRST_IN_A_LOCK if in_a_lock else FIRST)


def is_working(before: Seen, now: Seen, passed_s: float) -> bool:
    """Whether a process, or anything that it started, has worked between two looks."""
    # On a busy machine one that could run may not get its share of the processors, twice in a row.
    is_waiting_for_processor = before.is_running and now.is_running
    has_computed = now.cpu_s - before.cpu_s > IDLE_SHARE * passed_s
    return has_computed or is_waiting_for_processor or now.io_bytes > before.io_bytes
