"""What a worker notices about the way its dataset is used: facts that tell a silently wrong result from a right one.

They stand on its board, for the trainer to hold against those of other workers.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data._utils.worker import WorkerInfo

from antifreeze.engine.arena.board import Board

# An item that is larger says enough in its first bytes.
MOST_BYTES = 1 << 16
# Streams that differ may begin alike: with the first state of an environment, say.
FEW_ITEMS = 4


class Notices:
    """One worker's, on its board."""

    def __init__(self, board: Board) -> None:
        self._words = board.notices
        self._checksum = 0
        self.items_wanted = 0
        """So many more items of the stream are to be noted."""

    @property
    def has_asked(self) -> bool:
        """Whether the dataset, or worker_init_fn, has asked which worker this is."""
        return bool(self._words[0])

    def note_asked(self) -> None:
        """It has."""
        self._words[0] = 1

    def begin_stream(self) -> None:
        """This worker reads its stream from the start."""
        self._words[1] = self._checksum = 0
        self.items_wanted = FEW_ITEMS

    def note_items(self, items: Sequence[Any]) -> None:
        """The next items of this worker's stream, of which the first few are wanted."""
        for item in items[: self.items_wanted]:
            try:
                raw = item.numpy(force=True).tobytes() if isinstance(item, torch.Tensor) else pickle.dumps(item, 5)
            except Exception:  # an item of the user's own kind, that does not show what it is
                self._words[1] = self.items_wanted = 0
                return
            self.items_wanted -= 1
            self._checksum = zlib.crc32(raw[:MOST_BYTES], self._checksum)
        # With their number: as long as one worker has read fewer than another, nothing can be said.
        self._words[1] = (FEW_ITEMS - self.items_wanted) << 32 | self._checksum

    def note_drawn(self, state: bytes) -> None:
        """Generators that the dataset holds have been drawn from, began as they are in all workers, and are now here."""
        self._words[2] = zlib.crc32(state) + 1


class WatchedInfo(WorkerInfo):
    """torch's `WorkerInfo`, which notices the first question for who this is, and costs nothing after that."""

    def __init__(self, notices: Notices, **facts: Any) -> None:
        super().__init__(**facts)
        hidden = {name: getattr(self, name) for name in ("id", "num_workers", "seed")}
        object.__setattr__(self, "_antifreeze", (notices, hidden))  # torch's own ways to set them are closed
        for name in hidden:
            object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:  # only for what is not there
        notices, hidden = object.__getattribute__(self, "_antifreeze")
        if name not in hidden:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        notices.note_asked()
        for each, value in hidden.items():
            object.__setattr__(self, each, value)
        return hidden[name]

    def __reduce__(self) -> tuple[Any, ...]:
        _, hidden = self._antifreeze
        return _plain_info, ({**hidden, "dataset": self.dataset},)


WatchedInfo.__qualname__ = WatchedInfo.__name__ = WorkerInfo.__name__  # which it shows itself by


def _plain_info(facts: dict[str, Any]) -> WorkerInfo:
    return WorkerInfo(**facts)


class Share:
    """This worker's share of a stream that every worker reads whole; all of it if the dataset shares itself out.

    (No generator: that would end with the first exception of the stream.)
    """

    def __init__(self, items: Iterator[Any], notices: Notices, *, worker: int, workers: int) -> None:
        self._items = items
        self._notices = notices
        self._worker = worker
        self._workers = workers
        self.number = 0
        """Of the item of the whole stream that is read next."""

    def __next__(self) -> Any:
        while True:
            item, number = next(self._items), self.number
            self.number += 1
            if self._notices.has_asked or number % self._workers == self._worker:
                return item
