"""Samplers draw random numbers of their own, so that nobody can tell from their order how far ahead they were asked.

torch asks a sampler some batches ahead, more with more workers. One that draws from the generators of the program as it
goes, where the model's dropout draws as well, would give another order with another number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from antifreeze.engine.worker.kinds import global_state, restore_global

_DRAW_AT_ONCE = (DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)


def draws_at_once(sampler: Any) -> bool:
    """Whether it is known that a sampler draws nothing, or all that it will draw, when it is asked first."""
    if type(sampler) is BatchSampler:
        return draws_at_once(sampler.sampler)
    return type(sampler) in _DRAW_AT_ONCE or isinstance(sampler, Sequence)


class Secluded:
    """Asks a sampler, whose draws go on from where the first one left the generators of the program."""

    def __init__(self, next_index: Callable[[], Any]) -> None:
        self._next_index = next_index
        self._state: tuple[Any, Any, Any] | None = None

    def __call__(self) -> Any:
        """What the sampler gives next; whatever it raises passes through."""
        if self._state is None:
            index = self._next_index()
            self._state = global_state()
            return index
        of_the_program = global_state()
        restore_global(*self._state)
        try:
            return self._next_index()
        finally:
            self._state = global_state()
            restore_global(*of_the_program)
