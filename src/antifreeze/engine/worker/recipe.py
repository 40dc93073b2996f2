"""What a worker needs to make batches: inherited by a fork, or sent across to a clean stem, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from antifreeze.settings import Policy


@dataclass(frozen=True, slots=True)
class Recipe:
    """How indices become a batch, and how a worker is to be set up for it."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    auto_collation: bool
    """Whether an index is a list of indices, to be made into a batch."""
    worker_init_fn: Callable[[int], Any] | None
    base_seed: int
    num_workers: int
    worker_threads: int | None
    """How many threads the pools of native libraries may use in a worker; None: as many as they like."""
    policy: Policy = field(default_factory=Policy)
    """What is done about a sample that fails."""
