"""Where a worker is, in parts, most of which do not change from batch to batch: only what has changed is sent.

A few draws from a generator of this kind (MT19937: torch's, `random`'s, numpy's older one) change its position alone; its
words, 2.5 KB, change once in 624 draws. So nearly every message stays within a page.
"""

from __future__ import annotations

import _random
import array
import ctypes
import pickle
import random
from collections.abc import Sequence
from typing import Any

import torch

from antifreeze.engine.worker.kinds import plain_bytes
from antifreeze.engine.worker.place import Place, load_place
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

Parts = tuple[bytes | None, ...]
"""The place but for generators, words and rest of torch's, of `random`'s, of numpy's, and the generators that are held.
None: as it was when the worker last said so. Empty: nothing has changed at all."""

_WORDS = 624
# Of torch's state: a head, the words as numbers of 64 bits, of which 32 are used, and a tail.
_TORCH_BYTES = 5056
_TORCH_WORDS = slice(24, 24 + 8 * _WORDS)
_UNUSED = bytes(4 * _WORDS)
_NUMPY_BYTES = 4 * _WORDS + 4
_PAIRS = 3
_NOTHING = pickle.dumps({}, 5)


class Teller:
    """Says where a worker is, and remembers what it said."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.forget()

    def forget(self) -> None:
        """Say everything the next time."""
        self._said: list[bytes | None] = [None] * (2 + 2 * _PAIRS)
        self._torch = b""
        self._random: Any = None
        self._numpy: Any = None

    def tell(self, place: bytes) -> Parts:
        """What has changed; `place` is all but the generators."""
        held = self._randomness.saved()
        pairs = (*self._of_torch(), *self._of_random(), *self._of_numpy())
        now = (place, *pairs, pickle.dumps(held, 5) if held else _NOTHING)
        said = self._said
        changed = tuple(None if part is None or part == known else part for part, known in zip(now, said, strict=True))
        if not any(part is not None for part in changed):
            return ()
        self._said = [known if part is None else part for part, known in zip(changed, said, strict=True)]
        return changed

    def _of_torch(self) -> tuple[bytes | None, bytes | None]:
        raw = plain_bytes(torch.default_generator.get_state())
        if raw == self._torch:
            return None, None
        self._torch = raw
        words = memoryview(raw[_TORCH_WORDS]).cast("I")
        if len(raw) != _TORCH_BYTES or words[1::2].tobytes() != _UNUSED:
            return b"", raw
        return words[::2].tobytes(), raw[: _TORCH_WORDS.start] + raw[_TORCH_WORDS.stop :]

    def _of_random(self) -> tuple[bytes | None, bytes | None]:
        own: Any = random._inst
        state = _random.Random.getstate(own), own.gauss_next
        if state == self._random:
            return None, None
        self._random = state
        (*words, position), gauss = state
        return array.array("I", words).tobytes(), pickle.dumps((position, gauss), 5)

    def _of_numpy(self) -> tuple[bytes | None, bytes | None]:
        if not HAS_NUMPY:
            return b"", b""
        # Reading all of it takes 35 µs, and a look at its memory next to nothing; which does not show a number that is left
        # over from a pair.
        raw = _numpy_memory()
        if raw is not None and self._numpy == (raw, 0):
            return None, None
        state: Any = np.random.get_state(legacy=True)
        name, key, position, has_gauss, gauss = state
        self._numpy = raw, has_gauss
        return key.tobytes(), pickle.dumps((name, int(position), int(has_gauss), float(gauss)), 5)


def _numpy_memory() -> bytes | None:
    bits = np.random.mtrand._rand._bit_generator
    return ctypes.string_at(bits.ctypes.state_address, _NUMPY_BYTES) if type(bits) is np.random.MT19937 else None


def merged(before: bytes | Parts | None, now: Parts) -> Parts:
    """What is so after a worker has said what has changed."""
    if not isinstance(before, tuple) or not now:
        return now or (before if isinstance(before, tuple) else ())
    return tuple(old if new is None else new for old, new in zip(before, now, strict=True))


def place_of(said: bytes | Parts) -> Place:
    """The place that a worker has told of, whole or in parts."""
    if isinstance(said, bytes):
        return load_place(said)
    rest, *generators, held = said
    assert rest is not None and held is not None
    position, *users = pickle.loads(rest)
    state = pickle.dumps((*_states(generators), pickle.loads(held)), 5)
    return Place(position, state, *users)


def _states(parts: Sequence[bytes | None]) -> tuple[bytes, Any, Any]:
    words, rest, random_words, random_rest, numpy_words, numpy_rest = (part or b"" for part in parts)
    of_torch = rest
    if words:
        wide = array.array("Q", array.array("I", words)).tobytes()
        of_torch = rest[: _TORCH_WORDS.start] + wide + rest[_TORCH_WORDS.start :]
    position, gauss = pickle.loads(random_rest)
    of_random = random.Random.VERSION, (*array.array("I", random_words), position), gauss
    of_numpy = None
    if numpy_rest:
        name, *others = pickle.loads(numpy_rest)
        of_numpy = name, np.frombuffer(numpy_words, dtype=np.uint32).copy(), *others
    return of_torch, of_random, of_numpy
