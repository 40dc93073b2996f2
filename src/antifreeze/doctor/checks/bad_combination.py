"""A setting or a version here is known not to do what people expect of it.

What happens: one of these, each seen by us.
`TOKENIZERS_PARALLELISM=true`, one of the two values that the warning of tokenizers offers, makes forked workers use a pool
whose threads they do not have: they hang at the first text that is tokenized after the trainer has tokenized some.
`OPENCV_OPENMP_NUM_THREADS` has no effect on the usual builds of OpenCV.
The default start method of Python 3.14 is forkserver: datasets, collate_fn and worker_init_fn are pickled, and lambdas,
local functions and open files, which a fork just took along, are errors.
With a torch older than 2.6, antifreeze leaves loaders to torch's own iterator, as they are without it.

How we know: the environment variables, the versions that are installed, and Python's default start method.

What to do: `export TOKENIZERS_PARALLELISM=false`; `OPENCV_FOR_THREADS_NUM=1`, or `cv2.setNumThreads(1)`;
`antifreeze run train.py`, which brings lambdas and open files to workers under any start method.

Looks like: AF102 lost-native-pool, which has seen workers hang in such a pool; AF301 cannot-cross, which names what cannot
be pickled.

Read on: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import Facts, Machine
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.options import OLDEST_TORCH

_VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "tokenizers": "0.23.3"}
_TOKENIZES = Machine(
    cpus=8,
    usable_cpus=8,
    start_method="fork",
    versions=_VERSIONS,
    thread_settings={"TOKENIZERS_PARALLELISM": "true"},
)
SICK = Facts(machine=_TOKENIZES)
HEALTHY = Facts(machine=Machine(cpus=8, usable_cpus=8, start_method="fork", versions=_VERSIONS))


@program_check("AF904", "bad-combination", sick=SICK, healthy=HEALTHY)
def bad_combination(facts: Facts) -> list[Finding]:
    if facts.machine is None:
        return []
    machine = facts.machine
    return [*_tokenizers(facts, machine), *_opencv(machine), *_start_method(facts, machine), *_torch(machine)]


def _tokenizers(facts: Facts, machine: Machine) -> Iterator[Finding]:
    value = machine.thread_settings.get("TOKENIZERS_PARALLELISM", "")
    forks = {loader.start_method for loader in facts.loaders if loader.num_workers} or {machine.start_method}
    if "tokenizers" not in machine.versions or "fork" not in forks or value.lower() not in ("true", "1"):
        return
    yield _possible(
        what="workers may hang when they tokenize, if the trainer has done so before them",
        why=f"TOKENIZERS_PARALLELISM={value} makes forked workers use a pool whose threads they do not have",
        fix=("export TOKENIZERS_PARALLELISM=false",),
        seen=f"TOKENIZERS_PARALLELISM={value}",
    )


def _opencv(machine: Machine) -> Iterator[Finding]:
    value = machine.thread_settings.get("OPENCV_OPENMP_NUM_THREADS")
    if value is None or not any(name.startswith("opencv-") for name in machine.versions):
        return
    yield _possible(
        what="OpenCV starts as many threads as ever",
        why="OPENCV_OPENMP_NUM_THREADS has no effect on builds that do not use OpenMP, as those of PyPI are",
        fix=(f"export OPENCV_FOR_THREADS_NUM={value}", f"cv2.setNumThreads({value})"),
        seen=f"OPENCV_OPENMP_NUM_THREADS={value}",
    )


def _start_method(facts: Facts, machine: Machine) -> Iterator[Finding]:
    """Only as long as nobody has tried what a loader makes of it."""
    if machine.start_method != "forkserver" or facts.loaders or facts.processes:
        return
    python = machine.versions.get("python", "")
    yield _possible(
        what="lambdas, local functions and open files in a dataset are errors when workers start",
        why=f"Python {python} starts processes with forkserver, and has to pickle what they get",
        fix=("antifreeze run {script}", 'torch.multiprocessing.set_start_method("fork")'),
        seen="the default start method is forkserver",
    )


def _torch(machine: Machine) -> Iterator[Finding]:
    version = machine.versions.get("torch", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= OLDEST_TORCH:
        return
    oldest = ".".join(map(str, OLDEST_TORCH))
    yield _possible(
        what="with antifreeze, loaders still run on torch's own iterator",
        why=f"this is torch {version}, and antifreeze needs {oldest} or later",
        fix=(f"pip install 'torch>={oldest}'",),
        seen=f"torch {version}",
    )


def _possible(*, what: str, why: str, fix: tuple[str, ...], seen: str) -> Finding:
    return Finding(weight=Weight.POSSIBLE, what=what, why=why, fix=fix, evidence=(seen,))
