"""Every worker reads the whole stream, so every sample comes `num_workers` times.

What happens: an `IterableDataset` is copied into each worker, and each iterates its copy from the start. Unless
`__iter__` asks `get_worker_info()` which part is its own, an epoch has all samples several times. Nothing fails.
Shares that do not add up are as silent: `n // num_workers` items for each lose the rest.

How we know: in a trial several workers began with the same items, and the dataset never asked for its worker's number.
Or an epoch of several workers had another number of items than one of a single worker and one without.

What to do: `antifreeze run --fix shard train.py` gives each worker its share. In your code, in `__iter__`: `info =
get_worker_info()`, then `itertools.islice(items, info.id, None, info.num_workers)` if info is not None.

Looks like: a stream that is infinite and random, where repetition is meant and items differ between workers.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset,
https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.get_worker_info
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Place
from antifreeze.doctor.finding import Finding, Weight

FIX = (
    "antifreeze run --fix shard {script}",
    "in __iter__: info = get_worker_info(); islice(items, info.id if info else 0, None, info.num_workers if info else 1)",
)

_LOADER = Loader(
    number=0, num_workers=2, is_iterable=True, dataset="Stream", dataset_at=Place("train.py", 19), start_method="fork"
)
SICK = tried(_LOADER, as_written(same_items=2, has_asked_for_worker_info=False))
HEALTHY = tried(_LOADER, as_written(same_items=0, has_asked_for_worker_info=True))


@check("AF502", "unsharded-stream", sick=SICK, healthy=HEALTHY)
def unsharded_stream(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _uneven(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    seen = [t for t in case.trials if (t.same_items or 0) > 1 and t.has_asked_for_worker_info is not True]
    if not seen or case.num_workers < 2:
        return
    count = seen[0].same_items or 0
    place = case.loader.dataset_at
    name = case.loader.dataset or "the dataset"
    yield Finding(
        weight=Weight.CERTAIN if seen[0].has_asked_for_worker_info is False else Weight.LIKELY,
        what=f"every sample comes {case.num_workers} times: each worker reads the whole stream",
        where=place or case.built_at,
        why=f"{name}{f' at {place}' if place else ''} does not ask get_worker_info() which part is whose",
        fix=FIX,
        evidence=(f"reproduced: {count} workers began with the same items",),
    )


def _uneven(case: LoaderCase) -> Iterator[Finding]:
    """Shares that are asked for and do not add up to the stream."""
    whole = {trial.workers: trial.samples for trial in case.trials if trial.engine == "torch" and trial.is_whole_epoch}
    written = next((trial for trial in case.trials if trial.is_as_written), None)
    if not case.loader.is_iterable or written is None or case.num_workers < 2:
        return
    if case.loader.batch_size is None or case.loader.drop_last:  # each worker has a last batch of its own, or drops it
        return
    came, one, alone = whole.get(case.num_workers, 0), whole.get(1, 0), whole.get(0, 0)
    # Read alone, the stream may have been read twice; any other number, and its length is not always the same.
    if not came or not one or alone not in (one, 2 * one) or came == one or not written.has_asked_for_worker_info:
        return
    place = case.loader.dataset_at
    lost = f"{one - came:,} of {one:,} samples never come" if came < one else f"{came - one:,} samples come twice"
    yield Finding(
        weight=Weight.POSSIBLE,  # what a stream packs together depends on where it begins
        what=f"{lost}: the shares of {case.num_workers} workers do not add up to the stream",
        where=place or case.built_at,
        why=f"{case.loader.dataset or 'the dataset'}{f' at {place}' if place else ''} divides it by get_worker_info(): an "
        f"epoch of {case.num_workers} workers has {came:,} samples, one of a single worker {one:,}",
        fix=(FIX[1],),
        evidence=(f"counted: {came:,} with {case.num_workers} workers, {one:,} with 1, {one:,} with 0",),
    )


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        several = case.has_workers(more_than=1)
        if not dataset.is_iterable or dataset.asks_for_worker_info is not False or several is False:
            continue
        yield Finding(
            # A stream of random samples needs no shares, and the share may come from what it is given.
            weight=Weight.POSSIBLE,
            what="every sample would come once from each worker: each reads the whole stream",
            where=dataset.place,
            why=f"{dataset.name} at {dataset.place} does not ask get_worker_info() which part is whose, and the "
            f"loader at {case.built_at} has several workers",
            fix=FIX,
            evidence=("as the source has it",),
            decide="antifreeze doctor {script}",
        )
