"""One sample waits for something that never comes, and everything waits for it.

What happens: a read from the network, a pipe, a dead file server or a sleep does not return. Nothing in torch's loader
limits the time that a sample may take; it only looks whether the worker process exists. So the training waits, for
ever, without a message.

How we know: in a trial, or in the program as it stands, a worker sits in one call of the dataset, uses no processor,
and has been there far longer than samples take.

What to do: `antifreeze run train.py`: another worker takes the sample over, and the line is named. In your code: give
the call a time-out (`timeout=10`), and try again when it strikes. `DataLoader(timeout=60)` turns the hang into an
error, which does not say where.

Looks like: AF101 fork-after-threads, AF102 lost-native-pool and AF104 inherited-lock, where the worker waits for a lock
that nobody will release; AF108 sample-never-ends, where it computes. The popular explanation that workers who read the
same file block each other is wrong: 2,000 concurrent reads of one file by four workers were fine.

Read on: https://docs.python.org/3/library/socket.html#notes-on-socket-timeouts,
https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader (`timeout`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, comes_again
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, stuck_worker, tried
from antifreeze.doctor.facts import Outcome, Place, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import (
    Wait,
    frames_above,
    hangs_alone,
    never_returned,
    state_of,
    stuck_in,
)

LONG_S = 10.0
_FOR = {
    "socket": "an answer from the network",
    "pipe": "another process to write",
    "terminal": "somebody to type",
    "poll": "an answer",
    "sleep": "a sleep to end, or for what a loop looks for between its sleeps,",
    "disk": "the disk or file server",
    "lock": "a lock",
    "file lock": "a lock on a file",
    "child": "a program that it started",
}

_LINE = Place("train.py", 46, "__getitem__", "return int(s.recv(16))")
SICK = tried(
    FORKED,
    as_written(Outcome.HANG, stuck=(stuck_worker(_LINE, worker=1, sample="7", typical_s=0.01, waits_in="socket"),)),
)
HEALTHY = tried(FORKED, as_written())


@check("AF103", "sample-hangs", sick=SICK, healthy=HEALTHY)
def sample_hangs(case: LoaderCase) -> Iterator[Finding]:
    seen = list(stuck_in(case, Wait.OUTSIDE))
    unsure = list(stuck_in(case, Wait.UNKNOWN))
    inside = list(stuck_in(case, Wait.THREAD, Wait.LOCK, Wait.NATIVE))
    if any(hangs_alone(case, stuck) for _, stuck in inside):
        seen += inside
    elif not case.is_forked:  # a lock that nobody inherited
        unsure += inside
    if not seen and not unsure:
        return
    _, stuck = (seen or unsure)[0]
    # In a program that runs, an answer that takes a few seconds may still come.
    is_sure = bool(seen) and (not case.is_live or stuck.seconds >= LONG_S)
    yield Finding(
        weight=case.sure(is_proven=_is_far_beyond(stuck)) if is_sure else Weight.POSSIBLE,
        what=never_returned(stuck, case),
        where=stuck.place,
        why=_why(case, stuck),
        fix=_fix(case, stuck),
        evidence=(case.counted({each.workers: each for each, _ in (seen or unsure)}.values()), state_of(stuck)),
        seen=stuck,
        rivals=() if is_sure else ("AF406",) if seen else ("AF108",),
        decide=None if is_sure else f"antifreeze dump {stuck.pid}",
    )


def _is_far_beyond(stuck: Stuck) -> bool:
    return stuck.waits_in != "sleep" and (stuck.typical_s is None or stuck.seconds > 20 * stuck.typical_s)


def _why(case: LoaderCase, stuck: Stuck) -> str:
    above = frames_above(stuck)
    call = f", in {above[-1].function}" if above and above[-1].function else ""
    thing = _FOR.get(stuck.waits_in or "", "something")
    if stuck.waits_in == "lock" and hangs_alone(case, stuck):
        thing = "a lock or a thread of its own process"
    return f"it waits for {thing}{at(stuck.place)}{call}, and nothing limits how long"


def _fix(case: LoaderCase, stuck: Stuck) -> tuple[str, ...]:
    bound = {
        "disk": "look at the file server: the kernel waits for it, and no time-out can interrupt that",
        "sleep": "bound a loop that sleeps: for attempt in range(100): … else: raise TimeoutError(index)",
        "lock": "find who holds the lock, or take it with a time-out: lock.acquire(timeout=10)",
    }
    own = bound.get(stuck.waits_in or "", "give the call a timeout, and try again when it strikes: timeout=10")
    stops = "DataLoader(…, timeout=60) makes it an error instead of a hang"
    is_its_own_lock = stuck.waits_in == "lock" and hangs_alone(case, stuck)
    if is_its_own_lock or comes_again(case, stuck.sample, lambda trial: [each.sample for each in trial.stuck]):
        return (own, "antifreeze run --on-error skip {script}   (leaves the sample out after 5 minutes)", stops)
    return ("antifreeze run {script}", own, stops)
