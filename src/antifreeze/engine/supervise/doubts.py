"""From what workers have noticed: is a result silently wrong? Pure.

Each doubt rests on facts of this run, and carries the code of the disease and the name of its cure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from antifreeze.engine.arena.board import Noticed
from antifreeze.errors import named


def doubts_about(noticed: Sequence[Noticed], *, is_stream: bool, fixes: frozenset[str]) -> list[str]:
    """What is wrong, and how it can be put right."""
    doubts: list[str] = []
    if len(noticed) < 2 or any(each.has_asked for each in noticed):  # a dataset that asks knows that there are several
        return doubts
    if is_stream and "shard" not in fixes and _is_repeated(noticed):
        doubts.append(
            f"{named('AF502')}: {len(noticed)} workers read the same stream from its start, so samples come "
            f"{len(noticed)} times. The dataset does not ask get_worker_info() which part is whose. "
            'fix=("shard",) or --fix shard gives each worker its share'
        )
    if "rng" not in fixes and sum(each.has_drawn for each in noticed) > 1:
        doubts.append(
            f"{named('AF501')}: the dataset holds a random generator and draws from it in its workers. Each of the "
            f"{len(noticed)} has a copy in the same state, so different samples get the same draws, and each epoch begins "
            'with them again. fix=("rng",) or --fix rng gives every copy a seed of its own'
        )
    return doubts


def doubts_about_repeating(noticed: Noticed, *, first_item: int) -> list[str]:
    """Of a worker that has read the stream of another again, which began with this item."""
    if noticed.first_item in (0, first_item):  # 0: it did not have to
        return []
    what = (
        f"{named('AF504')}: a worker died, and its stream gave other items when it was read again, so that some came twice "
        "and others not at all. Seeds make a stream repeat itself; replay=False or --no-replay makes such a death an error"
    )
    return [what]


def _is_repeated(noticed: Sequence[Noticed]) -> bool:
    """Whether several workers have begun with the same item."""
    firsts = Counter(each.first_item for each in noticed if each.first_item)
    return any(count > 1 for count in firsts.values())
