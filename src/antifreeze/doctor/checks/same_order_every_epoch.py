"""A `DistributedSampler` shuffles every epoch in the same way, because nobody tells it which epoch it is.

What happens: the order that it makes depends on its seed and on the epoch number that `sampler.set_epoch(epoch)` gives it.
Without that call the number stays 0: every epoch has the same order, every process gets the same part of the data each
time, and every batch consists of the same samples. There is no error; models only train worse than they could.

How we know: the source. A `DistributedSampler` that shuffles is given to a loader that is iterated in a loop over epochs,
and `set_epoch` occurs in none of the program's files. Lightning, accelerate, the Trainer of transformers and the like call
it themselves; a program that imports one of them is not told so.

What to do: `sampler.set_epoch(epoch)` at the beginning of every epoch, before the loader is iterated.

Looks like: AF505 fixed-worker-seed, where augmentation repeats from epoch to epoch; AF503 stale-dataset, where
`set_epoch` of a dataset is called and does not reach the workers.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import DistributedOrder, Facts, LoaderCall, LoaderLoop, Place, Source
from antifreeze.doctor.finding import Finding, Weight

_CALL = LoaderCall(
    place=Place("train.py", 31),
    workers=2,
    distributed=DistributedOrder(place=Place("train.py", 30), shuffles=True),
)
_LOOP = LoaderLoop(place=Place("train.py", 35), loader=_CALL.place, epochs=Place("train.py", 34))
_SOURCE = Source(script="train.py", loaders=(_CALL,), loops=(_LOOP,))
SICK = Facts(source=_SOURCE)
HEALTHY = Facts(source=replace(_SOURCE, tells_epochs=True))


@check("AF602", "same-order-every-epoch", sick=SICK, healthy=HEALTHY)
def same_order_every_epoch(case: LoaderCase) -> Iterator[Finding]:
    order = case.call.distributed if case.call else None
    epochs = next((loop.epochs for loop in case.loops if loop.epochs), None)
    if case.call is None or order is None or epochs is None or case.call.is_in_loop or case.source.tells_epochs:
        return
    is_likely = order.shuffles is True and not case.source.unreadable
    yield Finding(
        weight=Weight.LIKELY if is_likely else Weight.POSSIBLE,
        what="every epoch has the same order, and every process the same part of the data",
        where=order.place,
        why=f"the loop over epochs at {epochs} never calls set_epoch, so the sampler shuffles as in its first epoch",
        fix=(f"sampler.set_epoch(epoch)   # first in the loop at {epochs}",),
        evidence=("read in the source: set_epoch occurs nowhere",),
        rivals=() if is_likely else ("AF505",),
    )
