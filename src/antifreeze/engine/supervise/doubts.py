"""From what workers have noticed: is a result silently wrong? Pure.

Each doubt rests on facts of this run, and carries the code of the disease and the name of its cure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from antifreeze.codes import named
from antifreeze.engine.arena.board import Noticed

# By their number (`Noticed.holder`).
_HOLDERS = (
    "the dataset holds a random generator",
    "collate_fn holds a random generator",
    "a module has a random generator as a global, which the code of the dataset or of collate_fn uses",
)


def doubts_about(noticed: Sequence[Noticed], *, is_stream: bool, fixes: frozenset[str]) -> list[str]:
    """What is wrong, and how it can be put right."""
    doubts: list[str] = []
    if len(noticed) < 2 or any(each.has_asked for each in noticed):  # a dataset that asks knows that there are several
        return doubts
    if is_stream and "shard" not in fixes and _are_alike(each.first_items for each in noticed):
        doubts.append(
            f"{named('AF502')}: {len(noticed)} workers read the same stream from its start, so samples come "
            f"{len(noticed)} times. The dataset does not ask get_worker_info() which part is whose. "
            'fix=("shard",) or --fix shard gives each worker its share'
        )
    # After as many batches, copies that were drawn from alike are alike; those that are seeded for every sample are not.
    if "rng" not in fixes and _are_alike(each.drawn for each in noticed):
        doubts.append(
            f"{named('AF501')}: {_HOLDERS[max(each.holder for each in noticed)]}, which is drawn from in workers. Each of "
            f"the {len(noticed)} has a copy in the same state, so different samples get the same draws, and each epoch "
            'begins with them again. fix=("rng",) or --fix rng gives every copy a seed of its own'
        )
    return doubts


def doubts_about_repeating(noticed: Noticed, *, first_items: int) -> list[str]:
    """Of a worker that has read the stream of another again, which began with these items."""
    # Nothing can be said about different numbers of them; none: it did not have to read it.
    if noticed.first_items == first_items or noticed.first_items >> 32 != first_items >> 32:
        return []
    what = (
        f"{named('AF504')}: a worker died, and its stream gave other items when it was read again, so that some came twice "
        "and others not at all. Seeds make a stream repeat itself; replay=False or --no-replay makes such a death an error"
    )
    return [what]


def _are_alike(checksums: Iterable[int]) -> bool:
    """Whether several workers have the same one."""
    return any(count > 1 for checksum, count in Counter(checksums).items() if checksum)
