"""Native code crashed in a worker.

What happens: a library (an image or video decoder, a database, an extension) read memory that it must not, or aborted.
The process is ended by SIGSEGV, SIGABRT, SIGFPE or SIGBUS; there is no Python traceback. torch says "DataLoader worker
(pid …) is killed by signal: Segmentation fault" and the training ends.

How we know: the signal that ended the worker, and the Python line it was at, which faulthandler wrote down.

What to do: `antifreeze run train.py`: another worker takes over; a sample that crashes every time is named and can be
skipped. To find the cause: load the sample that is named alone, update the library, look whether it is used by several
threads.

Looks like: AF313 poison-sample, where the same sample does it each time; AF205 shared-memory-overcommitted, a SIGBUS of
/dev/shm; AF311 worker-killed, where somebody else ended it.

Read on: https://docs.python.org/3/library/faulthandler.html, https://man7.org/linux/man-pages/man7/signal.7.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import OWN_FAULT, deaths_in, of_worker, signal_of
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Death, Outcome, Place
from antifreeze.doctor.finding import Finding, Weight

MEANINGS = {
    "SIGSEGV": "native code read or wrote memory that is not its own",
    "SIGABRT": "native code gave up (abort)",
    "SIGFPE": "native code divided by zero",
    "SIGILL": "native code is not made for this processor",
    "SIGBUS": "memory that is mapped from a file had no page: the file was cut short, or its disk is full",
}

_DEATH = Death(worker=1, pid=4243, exitcode=-11, how="SIGSEGV", sample="13", place=Place("train.py", 35))
SICK = tried(FORKED, as_written(Outcome.CRASH, deaths=(_DEATH,)))
HEALTHY = tried(FORKED, as_written())


@check("AF312", "worker-crashed", sick=SICK, healthy=HEALTHY)
def worker_crashed(case: LoaderCase) -> Iterator[Finding]:
    crashed = [(trial, death) for trial, death in deaths_in(case) if signal_of(death) in OWN_FAULT]
    if not crashed:
        return
    _, death = crashed[0]
    signal = signal_of(death) or ""
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{of_worker(death)} crashed with {signal}, and torch ends the training with it",
        where=death.place or case.built_at,
        why=f"{MEANINGS.get(signal, f'it was ended by {signal}')}{at(death.place)}",
        fix=(
            "antifreeze run {script}",
            f"load sample {death.sample} alone, under python -X faulthandler"
            if death.sample is not None
            else "python -X faulthandler {script}",
            "update the library that this line calls",
        ),
        evidence=(case.counted({t.workers: t for t, _ in crashed}.values()), f"pid {death.pid}: {signal}"),
        seen=death,
    )
