"""The training does not wait for data: it is somewhere else.

What happens: a program that stands still is often blamed on its loader, because workers are all that can be seen from
outside. But they may be idle, with finished batches waiting, while the main process computes without end, waits for a
lock of its own, for a server (an experiment tracker, a file upload), or for somebody to type into a debugger. Nothing
that is changed in the loader helps then.

How we know: the Python stack of the main process, seen several times over some seconds, is in your code and never in
the loader, and the workers wait to be given work. If it used no processor for ten seconds or more, we call it likely; a
step that computes may just be a long one, so that is no more than possible.

What to do: look at the line that is named. Look again a minute later (`antifreeze dump PID`): if it is still there, it
is that.

Looks like: AF103 sample-hangs, where the main process waits in the loader; AF601 waits-for-another-rank, where it waits
in a collective operation; AF406 data-bound, where it waits in the loader again and again.

Read on: https://github.com/benfred/py-spy, https://docs.python.org/3/library/faulthandler.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.collectives import collective_of
from antifreeze.doctor.facts import Facts, Place, ProcessPicture
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.pictures import LOOKED_S, workers_of

LONG_S = 10.0
"""No step that is going on leaves a process without any work for so long."""
RUNNING_SHARE = 0.1
"""On a machine where others want the processors, too."""

_LINE = Place("model.py", 88, "decode", "while not self.done(tokens):")
_IDLE = ProcessPicture(pid=4243, parent=4242, role="worker", worker=0, state="S", stage="idle", still_s=4.0)
SICK = Facts(
    processes=(
        ProcessPicture(
            pid=4242,
            parent=1,
            role="trainer",
            state="R",
            stage="step",
            cpu_share=0.99,
            place=_LINE,
            same_place_s=3.2,
        ),
        _IDLE,
    )
)
HEALTHY = Facts(
    processes=(
        ProcessPicture(pid=4242, parent=1, role="trainer", state="S", stage="next", waits_in="poll", still_s=9.0),
        _IDLE,
    )
)

_WAITS = {
    "lock": "it waits for a lock",
    "file lock": "it waits for a lock on a file",
    "socket": "it waits for an answer over the network",
    "pipe": "it waits for another process to write",
    "terminal": "it waits for somebody to type",
    "poll": "it waits for something to come",
    "sleep": "it sleeps",
    "disk": "it waits for a disk",
    "child": "it waits for a process that it started to end",
}


@program_check("AF111", "not-in-loading", sick=SICK, healthy=HEALTHY)
def not_in_loading(facts: Facts) -> list[Finding]:
    launchers = {process.parent for process in facts.processes if process.role == "trainer"}
    trainers = [each for each in facts.processes if each.role == "trainer" and each.pid not in launchers]
    alone = [trainer for trainer in trainers if not collective_of(trainer)]
    return [finding for trainer in alone for finding in _examine(trainer, facts)]


def _examine(trainer: ProcessPicture, facts: Facts) -> Iterator[Finding]:
    workers = workers_of(trainer, facts.processes)
    is_resting = bool(workers) and all(each.stage == "idle" and each.still_s >= LOOKED_S for each in workers)
    # A training that gets on takes a batch now and then, and a worker gets something to do.
    is_running = trainer.cpu_share >= RUNNING_SHARE and trainer.same_place_s >= LOOKED_S and is_resting
    is_blocked = trainer.still_s >= LOOKED_S and trainer.state in ("S", "D")
    if trainer.stage != "step" or trainer.place is None or not (is_running or is_blocked):
        return
    yield _finding(trainer, workers if is_resting else [], is_running=is_running)


def _finding(trainer: ProcessPicture, idle: list[ProcessPicture], *, is_running: bool) -> Finding:
    assert trainer.place is not None
    does = _WAITS.get(trainer.waits_in or "", "it waits") if not is_running else "it computes"
    if trainer.peer and not is_running:
        does += f" ({trainer.peer})"
    seconds = trainer.same_place_s if is_running else trainer.still_s
    sure = not is_running and trainer.still_s >= LONG_S and trainer.waits_in not in ("sleep", "disk", "child")
    loading = f"loading is healthy: all {len(idle)} workers are idle and wait for it" if idle else ""
    return Finding(
        weight=Weight.LIKELY if sure else Weight.POSSIBLE,
        what=f"the main process{_rank(trainer)} is in {trainer.place}, not in loading: {does}",
        where=trainer.place,
        why="; ".join(filter(None, [f"{trainer.place.function} has not returned for {seconds:.0f} s", loading])),
        fix=(
            f"antifreeze dump {trainer.pid}   (in a minute: if it is still at {trainer.place}, look there)",
            "num_workers and other settings of the loader will not help",
        ),
        evidence=(f"{100 * trainer.cpu_share:.0f} % CPU", trainer.channel or f"state {trainer.state}"),
        pid=trainer.pid,
        decide=None if sure else f"antifreeze dump {trainer.pid}",
    )


def _rank(trainer: ProcessPicture) -> str:
    return f" of rank {trainer.rank}" if trainer.rank is not None else ""
