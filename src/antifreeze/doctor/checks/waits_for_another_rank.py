"""A process of a distributed training waits for the others.

What happens: every collective operation (`barrier`, `all_reduce`, the backward pass of DistributedDataParallel,
`init_process_group`) waits until all ranks have come to it. If one rank never does, because it crashed, has no more
batches, took another branch, or sits in its own loader, all others wait for it, often for ten or thirty minutes until a
time-out, at 0 % or 100 % CPU. Those who wait are not the ones who are sick.

How we know: the stack of the main process is in `torch.distributed`, or in native code of NCCL, gloo or c10d, and stays
there. If other ranks run on this machine, we look at them, too, and say where each is. After ten seconds, or if such a
rank does not move, we call it likely: a rank that is busy may just be saving a checkpoint.

What to do: look at the rank that is not there: `antifreeze dump PID` of that one. If ranks have different numbers of
batches, give all of them the same (`DistributedSampler`, `drop_last=True`) or wrap the loop in `with model.join():`. A
shorter `init_process_group(timeout=…)` turns the wait into an error.

Looks like: AF111 not-in-loading, where a single process waits or computes; AF103 sample-hangs, which may be what the
missing rank has.

Read on: https://docs.pytorch.org/docs/stable/distributed.html#monitored-barrier,
https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (`join`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.collectives import collective_of
from antifreeze.doctor.facts import Facts, Place, ProcessPicture, ThreadPicture
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.pictures import LOOKED_S, stays_s

LONG_S = 10.0
"""Ranks that get on at the same speed do not wait for each other for so long."""
_STARTING = ("init_process_group", "rendezvous", "_create_c10d_store", "_store_based_barrier")

_LINE = Place("train.py", 30, "train", "dist.barrier()")
_FRAMES = (Place("/x/site-packages/torch/distributed/distributed_c10d.py", 4900, "barrier"), _LINE)
_WAITING = ProcessPicture(
    pid=4242,
    parent=4000,
    role="trainer",
    state="S",
    stage="step",
    waits_in="lock",
    place=_LINE,
    still_s=42.0,
    rank=0,
    world_size=2,
    threads=(ThreadPicture(id=4242, is_main=True, frames=_FRAMES),),
)
_ELSEWHERE = ProcessPicture(
    pid=4250, parent=4000, role="trainer", rank=1, place=Place("train.py", 21, "evaluate"), stage="step", state="R"
)
SICK = Facts(processes=(_WAITING, _ELSEWHERE))
HEALTHY = Facts(processes=(_ELSEWHERE,))


@program_check("AF601", "waits-for-another-rank", sick=SICK, healthy=HEALTHY)
def waits_for_another_rank(facts: Facts) -> Iterator[Finding]:
    trainers = [process for process in facts.processes if process.role == "trainer"]
    waiting = [trainer for trainer in trainers if collective_of(trainer) and stays_s(trainer) >= LOOKED_S]
    if not waiting:
        return
    here = {trainer.pid for trainer in waiting}
    yield _finding(waiting, [each for each in trainers if each.pid not in here and each.rank is not None])


def _finding(waiting: list[ProcessPicture], others: list[ProcessPicture]) -> Finding:
    first = waiting[0]
    call = collective_of(first)
    long = max(map(stays_s, waiting))
    # A rank that is busy may be saving a checkpoint, and come.
    is_sure = long >= LONG_S or any(other.still_s >= LOOKED_S for other in others)
    whose = ", ".join(_name(trainer) for trainer in waiting)
    return Finding(
        weight=Weight.LIKELY if is_sure else Weight.POSSIBLE,
        what=f"{whose} wait{'s' * (len(waiting) == 1)} for another rank in {call}",
        where=first.place,
        why=_why(first, waiting, others, is_start=call in _STARTING),
        fix=(
            *(f"antifreeze dump {other.pid}   (rank {other.rank})" for other in others[:4]),
            *(() if others else ("antifreeze dump PID   (on the machine and for the process of each other rank)",)),
            "give all ranks the same number of batches: DistributedSampler, drop_last=True, or: with model.join():",
            "dist.init_process_group(…, timeout=datetime.timedelta(minutes=5)) makes it an error",
        ),
        evidence=(f"in the same place for {long:.0f} s, {100 * first.cpu_share:.0f} % CPU",),
        pid=first.pid,
        decide=None if is_sure else f"antifreeze dump {first.pid}",
    )


def _why(first: ProcessPicture, waiting: list[ProcessPicture], others: list[ProcessPicture], *, is_start: bool) -> str:
    if others:
        return "; ".join(f"{_name(other)} is {_whereabouts(other)}" for other in others)
    missing = (
        "" if first.world_size is None else f" ({len(waiting)} of {first.world_size} ranks are in view, and all wait)"
    )
    what = "not all ranks have been started, or they cannot reach each other" if is_start else "a rank that is not here"
    return f"{what}{missing}"


def _whereabouts(other: ProcessPicture) -> str:
    if other.stage == "next":
        return f"waiting for its loader{f' at {other.place}' if other.place else ''}"
    return f"at {other.place} in {other.place.function}" if other.place else f"in state {other.state}"


def _name(trainer: ProcessPicture) -> str:
    return f"rank {trainer.rank} (pid {trainer.pid})" if trainer.rank is not None else f"the process {trainer.pid}"
