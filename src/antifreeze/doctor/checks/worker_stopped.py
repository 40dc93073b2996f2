"""A worker is stopped: by a signal, by Ctrl-Z or by a debugger.

What happens: a process in the state "stopped" does nothing until it is told to go on. torch sees that the worker
exists, and waits. It looks like any other hang.

How we know: the kernel says so: state T (stopped) or t (traced).

What to do: `kill -CONT` with the pid of the worker, or leave the debugger. `antifreeze run train.py` replaces a worker
that stays stopped, and leaves one that is being debugged alone.

Looks like: AF103 sample-hangs, where the worker waits by itself.

Read on: https://man7.org/linux/man-pages/man7/signal.7.html (SIGSTOP, SIGTSTP, SIGCONT),
https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import with_workers
from antifreeze.doctor.facts import Facts, Outcome, Place, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import who

_LINE = Place("train.py", 30, "__getitem__")
_STOPPED = Stuck(role="worker", worker=1, pid=4243, sample="7", seconds=12, place=_LINE, stage="fetch", state="T")
SICK = Facts(trials=(with_workers(2, Outcome.HANG, stuck=(_STOPPED,)),))
HEALTHY = Facts(trials=(with_workers(2),))


@check("AF112", "worker-stopped", sick=SICK, healthy=HEALTHY)
def worker_stopped(case: LoaderCase) -> Iterator[Finding]:
    stopped = [each for trial in case.trials for each in trial.stuck if each.state in ("T", "t")]
    if not stopped:
        return
    stuck = stopped[0]
    is_traced = stuck.state == "t"
    pids = " ".join(str(each.pid) for each in stopped)
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{who(stuck)} is stopped, and the training waits for it",
        where=stuck.place,
        why=f"{'a debugger holds it' if is_traced else 'a signal (SIGSTOP, or Ctrl-Z) stopped it'}{at(stuck.place)}",
        fix=("leave the debugger, or let it continue",)
        if is_traced
        else (f"kill -CONT {pids}", "antifreeze run {script}"),
        evidence=(f"the kernel's state of pid {stuck.pid}: {stuck.state}",),
        seen=stuck,
    )
