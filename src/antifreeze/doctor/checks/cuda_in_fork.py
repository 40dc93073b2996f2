"""A forked worker uses the GPU that the training process has already opened.

What happens: CUDA does not survive a fork. A worker that touches a CUDA tensor or asks for a device fails with "Cannot
re-initialize CUDA in forked subprocess".

How we know: the error itself, in a trial; or the trainer has initialised CUDA, workers are forked, and the dataset
holds CUDA tensors.

What to do: keep samples on the CPU in the dataset and move whole batches in the training loop (`batch.to("cuda",
non_blocking=True)` with `pin_memory=True`). If workers must use the GPU: `multiprocessing_context="spawn"`.

Looks like: AF301 cannot-cross, which is what you may meet next, with spawn.

Read on: https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#poison-fork-in-multiprocessing,
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Facts, Held, Loader, Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

MESSAGE = "re-initialize CUDA in forked subprocess"

_TENSOR = Held(path="dataset.x", kind="cuda", what="a tensor on cuda:0", place=Place("train.py", 20))
SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", held=(_TENSOR,), is_cuda_initialized=True),
    as_written(
        Outcome.ERROR,
        raised=Raised(
            type="RuntimeError",
            message="Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use …",
            stage="fetch",
            place=Place("train.py", 27),
            sample="0",
        ),
    ),
)
HEALTHY = Facts(loaders=(Loader(number=0, num_workers=2, start_method="fork", is_cuda_initialized=True),))


@check("AF105", "cuda-in-fork", sick=SICK, healthy=HEALTHY)
def cuda_in_fork(case: LoaderCase) -> Iterator[Finding]:
    raised = next((trial.raised for trial in case.trials if trial.raised and MESSAGE in trial.raised.message), None)
    tensors = [held for held in case.held if held.kind == "cuda"]
    is_coming = case.loader.is_cuda_initialized and case.is_forked and case.num_workers and tensors
    if raised is None and not is_coming:
        return
    place = raised.place if raised else tensors[0].place
    held = f", and the dataset holds {whose(tensors[0])}" if tensors else ""
    yield Finding(
        weight=Weight.CERTAIN if raised else Weight.LIKELY,
        what="a worker cannot use the GPU: the training process had opened it before the worker was forked",
        where=place or case.built_at,
        why=f"CUDA was initialised in the training process{held}, and a worker uses "
        f"it{at(raised.place if raised else None)}",
        fix=(
            'keep samples on the CPU, and move whole batches: batch.to("cuda", non_blocking=True)',
            'DataLoader(…, multiprocessing_context="spawn")',
        ),
        evidence=(f"reproduced: {first_line(raised.message)}",) if raised else (),
        seen=raised,
    )
