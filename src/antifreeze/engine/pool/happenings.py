"""What a wait can bring: a worker has said something, has ended, is dead at last; a stem has something to say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.wire.messages import Message, Unfit


class Heard(NamedTuple):
    """A worker has said something."""

    worker: Worker
    message: Message
    descriptors: list[int]
    """Popped by the object that keeps them (`Descriptors` closes the others)."""


class Lost(NamedTuple):
    """A worker has ended, and nobody had asked it to."""

    worker: Worker
    pid: int | None
    exitcode: int | None
    unborn: str | None = None
    """Why it could not be started, if its stem has said so."""


class Gone(NamedTuple):
    """A worker that was dismissed is dead."""

    worker: Worker


class StemSaid(NamedTuple):
    """A worker of a clean stem cannot rebuild the dataset."""

    stem: StemHandle
    message: Unfit


Happening = Heard | Lost | Gone | StemSaid


def close_descriptors(happened: Sequence[Happening]) -> None:
    """Nobody wants to hear these any more."""
    for happening in happened:
        if isinstance(happening, Heard):
            close_all(happening.descriptors)


def close_all(descriptors: list[int]) -> None:
    """Close these; they are in the list no more."""
    while descriptors:
        os.close(descriptors.pop())
