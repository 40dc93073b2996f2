"""The stems that the workers of one iterator hang on: usually one, more after a stem has died."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from antifreeze.engine.backends.base import StemHandle


class Stems:
    """All that have ever been, the newest last: the lifelines of their workers are in our hands."""

    def __init__(self, grow: Callable[[], StemHandle]) -> None:
        self._grow = grow
        self.all: list[StemHandle] = []

    @property
    def current(self) -> StemHandle:
        """Where the next worker comes from: the newest one that lives; if none does, the last."""
        return next((stem for stem in reversed(self.all) if not stem.is_gone), self.all[-1])

    def grow(self) -> StemHandle:
        """One more."""
        return self.take(self._grow())

    def take(self, stem: StemHandle) -> StemHandle:
        """One that somebody else has grown; workers come from it from now on."""
        self.all.append(stem)
        return stem

    def stop(self, *, grace_s: float) -> None:
        """End them, each with so much time to leave by itself."""
        with contextlib.ExitStack() as stack:  # all of them, whatever one raises
            for stem in reversed(self.all):
                stack.callback(_stop, stem, grace_s)

    def close(self) -> None:
        """Let go of them."""
        with contextlib.ExitStack() as stack:
            for stem in reversed(self.all):
                stack.callback(stem.close)


def _stop(stem: StemHandle, grace_s: float) -> None:
    stem.stop(deadline=time.monotonic() + grace_s)
