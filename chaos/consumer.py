"""What the user's program does with the batches of a trial.

Whatever it keeps must stay as it was when `next()` returned, until the program drops it: that is checked when a kept part
is dropped, at the end of every epoch and after the workers have ended.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from chaos.patient import digest

# More than the window of most trials, so that slots would be used again while the program still reads them.
MAX_KEPT = 12


@dataclass(frozen=True, slots=True)
class Kept:
    """A part of a batch that the program holds on to."""

    part: Any
    before: str
    """Its fingerprint when the batch came."""

    @property
    def has_changed(self) -> bool:
        """Whether somebody wrote to memory that the program can read."""
        return fingerprint(self.part) != self.before


class Consumer:
    """Takes every batch, keeps parts of it, and counts the parts that changed."""

    def __init__(self, kind: str, seed: int) -> None:
        self._keep = _WAYS.get(kind, _keep_whole)
        self._dice = random.Random(seed)
        self._kept: deque[Kept] = deque()
        self._limit = self._dice.randint(0, MAX_KEPT)
        self.changed = 0

    def take(self, batch: Any) -> None:
        """Receive a batch, and let go of the oldest parts that are kept."""
        for part in self._keep(batch, self._dice):
            self._kept.append(Kept(part, fingerprint(part)))
        while len(self._kept) > self._limit:
            self.changed += self._kept.popleft().has_changed

    def check(self) -> None:
        """Look at all that is kept now."""
        self.changed += sum(kept.has_changed for kept in self._kept)

    def drop(self) -> None:
        """Check and let go of everything."""
        self.check()
        self._kept.clear()
        gc.collect()


def fingerprint(part: Any) -> str:
    """A fingerprint of what the program reads there."""
    if isinstance(part, memoryview):
        return digest(bytes(part.cast("B")) if part.nbytes else b"")
    if isinstance(part, torch.UntypedStorage):  # to iterate over it would take a second
        return digest(torch.empty(0, dtype=torch.uint8, device="cpu").set_(part))
    return digest(part)


def leaves(batch: Any) -> Iterator[torch.Tensor | np.ndarray[Any, Any]]:
    """All tensors and arrays of a batch."""
    if isinstance(batch, torch.Tensor | np.ndarray):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from leaves(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from leaves(value)


def _keep_whole(batch: Any, _: random.Random) -> list[Any]:
    return [batch]


def _keep_views(batch: Any, dice: random.Random) -> list[Any]:
    """Views alone, of any kind; the batch itself is dropped."""
    return [dice.choice(_VIEWS)(_as_tensor(leaf)) for leaf in leaves(batch)]


def _share(batch: Any, dice: random.Random) -> list[Any]:
    """Move tensors to torch's shared memory, as `mp.Queue` and `share_memory_()` do, with views taken before and after.

    (A tensor over an array of the program is left alone: torch lets go of the array, and views of the tensor dangle.)
    """
    parts: list[Any] = []
    for tensor in (leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)):
        parts.append(dice.choice(_VIEWS)(tensor))
        tensor.share_memory_()
        parts.append(dice.choice((tensor, tensor.numpy())))
    return parts


def _pickle(batch: Any, dice: random.Random) -> list[Any]:
    """Copy a batch in one of the ways that programs do; the copy must be the batch."""
    copied = dice.choice(_COPIES)(batch)
    if digest(copied) != digest(batch):
        raise AssertionError("a copy of a batch is not the batch")
    return [copied, batch]


def _as_tensor(leaf: torch.Tensor | np.ndarray[Any, Any]) -> torch.Tensor:
    return leaf if isinstance(leaf, torch.Tensor) else torch.from_numpy(leaf)


def _saved_and_loaded(batch: Any) -> Any:
    file = io.BytesIO()
    torch.save(batch, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


_VIEWS: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda tensor: tensor.numpy(),
    lambda tensor: memoryview(tensor.numpy()),
    torch.from_dlpack,
    np.from_dlpack,
    lambda tensor: torch.from_numpy(tensor.numpy()),
    lambda tensor: np.asarray(tensor.numpy()).view(np.uint8),
    lambda tensor: tensor.untyped_storage(),
    lambda tensor: tensor.detach()[::2],
    lambda tensor: tensor.flatten()[:3].numpy(),
)
_COPIES: tuple[Callable[[Any], Any], ...] = (
    lambda batch: pickle.loads(pickle.dumps(batch, protocol=5)),
    lambda batch: pickle.loads(pickle.dumps(batch, protocol=2)),
    copy.deepcopy,
    _saved_and_loaded,
)
_WAYS: dict[str, Callable[[Any, random.Random], list[Any]]] = {
    "views": _keep_views,
    "shares": _share,
    "pickles": _pickle,
}
