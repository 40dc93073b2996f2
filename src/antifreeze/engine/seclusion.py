"""Samplers draw random numbers of their own, so that nobody can tell from their order how far ahead they were asked.

torch asks a sampler some batches ahead, more with more workers. One that draws from the generators of the program as it
goes, where the model's dropout draws as well, would give another order with another number of workers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from antifreeze.engine.turns import free_in_children
from antifreeze.engine.worker.kinds import Shared, current_global, exchange_global
from antifreeze.observe.say import say_once

_DRAW_AT_ONCE = (DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)


def draws_at_once(sampler: Any) -> bool:
    """Whether it is known that a sampler draws nothing, or all that it will draw, when it is asked first."""
    if type(sampler) is BatchSampler:
        return draws_at_once(sampler.sampler)
    return type(sampler) in _DRAW_AT_ONCE or isinstance(sampler, Sequence)


# Longer than a sample takes. It is waited so long once: then somebody waits in there for who waits here.
PATIENCE_S = 60.0
_lock = threading.RLock()
_is_waited_for = True


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """While the generators of the program are lent out, no other thread lends them out to somebody else."""
    global _is_waited_for
    free_in_children(_lock)
    has_it = _is_waited_for and _lock.acquire(timeout=PATIENCE_S)
    if _is_waited_for and not has_it:
        _is_waited_for = False
        say_once(
            f"two threads load batches in this process that draw random numbers, and one has waited {PATIENCE_S:.0f} s for "
            "the other: they go on side by side, and batches may differ from those of a run with workers"
        )
    try:
        yield
    finally:
        if has_it:
            _lock.release()


class Secluded:
    """Asks a sampler, whose draws go on from where the first one left the generators of the program."""

    def __init__(self, next_index: Callable[[], Any]) -> None:
        self._next_index = next_index
        self._state: Shared | None = None

    def __call__(self) -> Any:
        """What the sampler gives next; whatever it raises passes through."""
        with alone():
            if self._state is None:
                index = self._next_index()
                self._state = current_global()
                return index
            of_the_program = exchange_global(self._state)
            try:
                return self._next_index()
            finally:
                self._state = exchange_global(of_the_program)
