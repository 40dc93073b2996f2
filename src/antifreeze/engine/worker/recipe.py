"""What a worker needs to make batches: inherited by a fork, or sent to a spawned worker, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from antifreeze.engine.wire.channel import Channel
from antifreeze.engine.worker.mends import Broken
from antifreeze.policy import Policy


@dataclass(frozen=True, slots=True)
class Identity:
    """What workers are to `multiprocessing`: the same as torch's workers would be."""

    start_method: str | None = None
    """What such a process makes the default, as the classes of processes have it; None: it leaves the default alone."""
    kind: str = "Process"
    """The class of process that torch would have used; processes are named after it."""
    parent: tuple[int, ...] = ()
    """The numbers of the trainer in the tree of processes that `multiprocessing` has started."""
    first: int = 1
    """The number of the first worker among the processes of the trainer."""
    is_spawned: bool = False
    """Whether it ends as a program does, and not in the way of a fork."""

    def of(self, worker: int) -> tuple[int, ...]:
        """The numbers of one worker in that tree."""
        return (*self.parent, self.first + worker)


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
    is_stream: bool = False
    """Whether the dataset is iterable: there are no indices, and each worker reads a stream of its own."""
    drop_last: bool = False
    """Whether a last batch of a stream that is not full is left out."""
    fixes: frozenset[str] = frozenset()
    """What of torch's silently wrong results is to be put right."""
    by_ticket: bool = False
    """Whether every ticket brings the seed that its random numbers follow from."""
    shared_seed: int | None = None
    """Of a data pipe, for all its workers; None: it is none."""
    is_marked: bool = False
    """Whether workers are asked where they are, so that others can begin there another time."""
    marks_all: bool = False
    """Whether they must say so every time: with in_order=False, nobody may be behind."""
    is_resumed: bool = False
    """Whether workers begin in the middle of a pass: a stream is not read before they have been told where."""
    identity: Identity = field(default_factory=Identity)
    broken: tuple[Broken, ...] = ()
    """What the fork has broken, and a worker mends."""


@dataclass(frozen=True, slots=True)
class SealedRecipe:
    """A recipe that every worker opens for itself, because the user asked for spawned workers."""

    worker_threads: int | None
    identity: Identity
    unseal: Callable[[Channel], Recipe | None]
    """Opens it; if it cannot be opened, the trainer is told over this channel."""
