"""The name of the directory for temporary files is so long that torch's workers cannot hand over their batches.

What happens: with its first batch, a worker of torch's opens a socket in the directory for temporary files, from which the
trainer fetches the memory that the batch is in. The name of a socket may have 107 characters. On clusters, TMPDIR is often
long (/scratch/project/user/slurm/job …): then the worker fails with "AF_UNIX path too long", in a thread of its own that
prints the error and drops the batch, and the training waits for that batch for ever.

How we know: a worker failed with these words in a trial; or TMPDIR is longer than the 75 characters that leave room.

What to do: `TMPDIR=/tmp python train.py`, or any directory with a short name. `antifreeze run train.py`: our workers open
no such sockets.

Looks like: AF305 result-cannot-be-sent, where it is the batch that cannot be sent.

Read on: https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir,
https://man7.org/linux/man-pages/man7/unix.7.html (the size of `sun_path`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from antifreeze.doctor.check import program_check
from antifreeze.doctor.examples import as_written
from antifreeze.doctor.facts import Facts, Loader, Machine, Outcome, Raised
from antifreeze.doctor.finding import Finding, Weight

WORDS = "AF_UNIX path too long"
# Of a socket's name, without its last byte, and what Python puts behind the directory: /pymp-xxxxxxxx/listener-xxxxxxxx.
LONGEST = 107 - 32

_FACTS = Facts(
    machine=Machine(cpus=8, usable_cpus=8, temporary_directory="/tmp"),
    loaders=(Loader(number=0, num_workers=2),),
)
SICK = replace(_FACTS, trials=(as_written(Outcome.HANG, raised=Raised(type="OSError", message=WORDS, stage="send")),))
HEALTHY = _FACTS


@program_check("AF906", "long-temporary-directory", sick=SICK, healthy=HEALTHY)
def long_temporary_directory(facts: Facts) -> Iterator[Finding]:
    directory = facts.machine.temporary_directory if facts.machine else None
    failed = [trial for trial in facts.trials if trial.raised and WORDS in trial.raised.message]
    is_long = directory is not None and len(directory) > LONGEST
    if not failed and (not is_long or facts.processes):
        return
    length = f"TMPDIR has {len(directory)} characters" if directory and is_long else "the directory has a long name"
    yield Finding(
        weight=Weight.CERTAIN if failed else Weight.POSSIBLE,
        what="torch's workers cannot open the socket that batches are fetched through, and training hangs",
        why=f"{length}, and the name of a socket in it would have more than 107",
        fix=("TMPDIR=/tmp python {script}", "antifreeze run {script}"),
        evidence=(f"reproduced: {WORDS}",) if failed else (f"TMPDIR={directory}",),
        loader=failed[0].loader if failed else None,
        decide=None if failed else "antifreeze doctor {script}",
    )
