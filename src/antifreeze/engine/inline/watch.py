"""A batch that the trainer makes itself makes no progress: say which sample it is, and where.

Nothing can help the trainer out, but a report shows what it waits for. A thread watches, and only if the user has set
`stall_after=` or `sample_timeout=`: it lives while a batch is made, so that the program has no thread of ours when it
forks between two batches. It is blind while C code holds the interpreter's lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from traceback import walk_stack

from antifreeze.engine.arena.board import Board, Step
from antifreeze.observe.report import Frame

JOIN_S = 1.0
"""So long a batch waits for a report that is being written: stderr may be a pipe that is not read."""
Report = Callable[[float, Sequence[Frame]], None]
"""Is given the seconds without progress and the stack of the thread that is watched, the innermost first."""


class Watch:
    """While this lasts, the thread that has entered it is watched; what it makes no progress with is reported once."""

    def __init__(self, board: Board, after_s: float, report: Report) -> None:
        self._pulse = board.pulse
        self._after_s = after_s
        self._report = report
        self._watched = threading.get_ident()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="antifreeze watch", daemon=True)
        self.has_reported = False

    def __enter__(self) -> Watch:
        try:
            self._thread.start()
        except BaseException:  # of a signal that came meanwhile: the thread may have been started
            self._is_over.set()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(JOIN_S)

    def _look(self) -> None:
        seen, since = self._pulse.tolist(), time.monotonic()
        while not self._is_over.wait(self._after_s):
            now = self._pulse.tolist()
            if now == seen and now[0] != Step.IDLE:
                self.has_reported = True
                self._report(time.monotonic() - since, stack_of(self._watched))
                return
            seen, since = now, time.monotonic()


def stack_of(thread: int) -> list[Frame]:
    """The Python stack of a thread of this process, the innermost first; empty if there is no such thread."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return []
    return [Frame(each.f_code.co_filename, line, each.f_code.co_qualname) for each, line in walk_stack(frame)]
