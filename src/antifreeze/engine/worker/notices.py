"""What a worker notices about the way its dataset is used: facts that tell a silently wrong result from a right one.

They stand on its board, for the trainer to hold against those of other workers.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data._utils import worker as torch_worker

from antifreeze.engine.arena.board import Board

# A first item that is larger says enough in its first bytes.
MOST_BYTES = 1 << 16


class Notices:
    """One worker's, on its board."""

    def __init__(self, board: Board) -> None:
        self._words = board.notices
        self._shares_itself_out: bool | None = None

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

    def forget_first(self) -> None:
        """A pass begins, and its first item is still to come."""
        self._words[1] = 0

    def note_first(self, item: Any) -> None:
        """The first item of this worker's stream."""
        try:
            raw = item.numpy(force=True).tobytes() if isinstance(item, torch.Tensor) else pickle.dumps(item, 5)
        except Exception:  # an item of the user's own kind, that does not show what it is
            return
        self._words[1] = zlib.crc32(raw[:MOST_BYTES]) + 1

    def note_drawn(self) -> None:
        """A generator that the dataset holds has been drawn from, and began in the state that it has in all workers."""
        self._words[2] = 1


def watch_questions(notices: Notices) -> None:
    """Notice when somebody first asks torch which worker this is.

    `get_worker_info` has been imported by its name, everywhere, before this process came to be: only the code inside it
    can still be exchanged. It is put back when the question has come.
    """
    asked = torch_worker.get_worker_info
    original = asked.__code__

    def note() -> None:
        asked.__code__ = original
        notices.note_asked()

    vars(torch_worker)["_antifreeze_note_question"] = note
    asked.__code__ = _answer_and_note.__code__


def _answer_and_note() -> Any:
    # Runs as torch's function, in torch's module: these are names there.
    _antifreeze_note_question()  # type: ignore[name-defined]  # noqa: F821
    return _worker_info  # type: ignore[name-defined]  # noqa: F821


def shared_out(items: Iterator[Any], notices: Notices, *, worker: int, workers: int) -> Iterator[Any]:
    """This worker's share of a stream that every worker reads whole; all of it if the dataset shares itself out."""
    for number, item in enumerate(items):
        if notices.shares_itself_out or number % workers == worker:
            yield item
