"""The container gives fewer processors than it shows, and something here goes by what it shows.

What happens: `os.cpu_count()` and the native libraries count the processors of the machine. A container, or a job of a
cluster, is often given the time of a few of them only. Threads and workers beyond these get nothing done: they take turns,
and the kernel stops all of them whenever the time of a period is used up. With the time of one processor on a machine that
shows two, torch starts two threads, and 60 products of matrices took 1.4 to 4.5 s here; 1.0 to 1.2 s with one thread.

How we know: the quota of the cgroup and the processors that this process may be put on, against the environment variables
that size thread pools, and, where no such variable is set, against the number of threads that OpenMP then starts: one for
each processor that it sees.

What to do: say how many threads there are to be, before Python starts: `export OMP_NUM_THREADS=4`. In code, count with
`len(os.sched_getaffinity(0))` rather than `os.cpu_count()`, and mind the quota, which neither of them knows. Workers of
antifreeze have one thread each, whatever the variables say.

Looks like: AF404 too-many-workers, which is about `num_workers`.

Read on: https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files (`cpu.max`),
https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import Facts, Machine
from antifreeze.doctor.finding import Finding, Weight

SICK = Facts(machine=Machine(cpus=64, usable_cpus=4, cpu_quota=4.0, thread_settings={"OMP_NUM_THREADS": "64"}))
HEALTHY = Facts(machine=Machine(cpus=64, usable_cpus=4, cpu_quota=4.0, thread_settings={"OMP_NUM_THREADS": "4"}))


@program_check("AF901", "few-processors", sick=SICK, healthy=HEALTHY)
def few_processors(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine is None or machine.usable_cpus >= machine.cpus:
        return
    too_many = _too_many(machine)
    if not too_many:
        return
    usable = f"its affinity allows {machine.usable_cpus}"
    if machine.cpu_quota:
        usable = f"the cgroup grants the time of {machine.cpu_quota:g}"
    yield Finding(
        weight=Weight.POSSIBLE,
        what="more threads than processors take turns, and slow each other down",
        why=f"the machine shows {machine.cpus} processors, and {usable} of them; {', '.join(too_many)}",
        fix=(f"export OMP_NUM_THREADS={machine.usable_cpus}",),
        evidence=(f"{machine.usable_cpus} of {machine.cpus} processors usable",),
    )


def _too_many(machine: Machine) -> list[str]:
    """What goes by the processors of the machine, in words."""
    sized = {name: int(value) for name, value in machine.thread_settings.items() if value.isdecimal()}
    found = [f"{name}={threads}" for name, threads in sized.items() if threads > machine.usable_cpus]
    # OpenMP counts the processors that it may be put on, and does not know of quotas.
    if machine.cpu_quota and "OMP_NUM_THREADS" not in machine.thread_settings:
        found.append("OMP_NUM_THREADS is not set")
    return found
