"""What a worker notices about the way its dataset is used: facts that tell a silently wrong result from a right one.

They stand on its board, for the trainer to hold against those of other workers.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch

from antifreeze.engine.arena.board import Board
from antifreeze.torch_side import workers as torch_side

# An item that is larger says enough in its first bytes.
MOST_BYTES = 1 << 16
# Streams that differ may begin alike: with the first state of an environment, say.
FEW_ITEMS = 4


Holder = Literal["dataset", "collate_fn", "module"]
"""What holds a generator: one of these two, or a module of the user's whose global their code names."""
HOLDERS: tuple[Holder, ...] = ("dataset", "collate_fn", "module")


class Notices:
    """One worker's, on its board."""

    def __init__(self, board: Board) -> None:
        self._words = board.notices
        self._shares_itself_out: bool | None = None
        self._checksum = 0
        self.items_wanted = 0
        """So many more items of the stream are to be noted."""

    @property
    def has_asked(self) -> bool:
        """Whether the dataset, or worker_init_fn, has asked which worker this is."""
        return bool(self._words[0])

    @property
    def shares_itself_out(self) -> bool:
        """Whether it had asked by the time its first item was there; who asks later, for a message, say, does not share."""
        if self._shares_itself_out is None:
            self._shares_itself_out = self.has_asked
        return self._shares_itself_out

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

    def note_drawn(self, states: Sequence[bytes], holder: Holder) -> None:
        """Generators have been drawn from that began as they are in all workers, and their states are these now."""
        self._words[2] = zlib.crc32(b"".join(states)) + 1
        self._words[3] = HOLDERS.index(holder)


def watch_questions(notices: Notices) -> Callable[[], None]:
    """Notice when somebody first asks torch which worker this is; returns what ends the watch.

    If the program has put another function, or a mock, in the place of `get_worker_info`, the question cannot be noticed:
    then it counts as asked, so that no doubt is raised and no stream is shared out a second time.
    """
    stop = torch_side.watch_questions(notices.note_asked)
    if stop is None:
        notices.note_asked()
        return _do_nothing
    return stop


def _do_nothing() -> None:
    """There is no watch to end."""


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
            if self._notices.shares_itself_out or number % self._workers == self._worker:
                return item
