"""Plays random loaders on both engines, each in a lane, and compares their traces."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from differential.compare import compare_traces
from differential.engines import ENGINES
from differential.lanes import HUNG, Lane
from differential.methods import draw_method
from differential.outcome import Outcome

TIMEOUT_S = 60.0
# Shown of what the engine said on stderr beside a failure.
MAX_SAID = 2000

Trace = list[list[str]]


def play_all(
    seeds: Iterable[int], *, method: str | None, jobs: int, folder: Path, tell: Callable[[Outcome], None]
) -> None:
    """Play these seeds in so many pairs of lanes, and tell what came of each."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)

    def serve() -> None:
        pair = Pair(folder)
        try:
            while True:
                seed = waiting.get_nowait()
                tell(pair.compare(seed, method or draw_method(seed)))
        except queue.Empty:
            return
        finally:
            pair.end()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Pair:
    """A lane for each engine, and the folder with their traces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lanes = {engine: Lane(engine, _command(engine, folder), folder) for engine in ENGINES}

    def compare(self, seed: int, method: str) -> Outcome:
        """Play a case on both engines at the same time; what hangs or crashes is played again before it is believed."""
        program = f"loader {seed} {method}"
        order = {"seed": seed, "method": method, "timeout_s": TIMEOUT_S}
        for lane in self._lanes.values():
            lane.give(order)
        statuses = {engine: lane.take(TIMEOUT_S) for engine, lane in self._lanes.items()}
        for engine, lane in self._lanes.items():
            if statuses[engine] != 0:
                lane.end()
                lane.give(order)
                statuses[engine] = lane.take(TIMEOUT_S)
        if statuses["torch"] != 0:
            return Outcome(program, no_comparison=f"torch: {describe(statuses['torch'])}")
        if statuses["ours"] != 0:
            return Outcome(program, failure=f"ours: {describe(statuses['ours'])}", said=self._said(seed))
        differences = tuple(compare_traces(program, self._trace(seed, "torch"), self._trace(seed, "ours")))
        return Outcome(program, differences, said=self._said(seed) if differences else "")

    def end(self) -> None:
        """End both lanes."""
        for lane in self._lanes.values():
            lane.end()

    def _trace(self, seed: int, engine: str) -> Trace:
        return json.loads((self._folder / f"{seed}.{engine}").read_text())

    def _said(self, seed: int) -> str:
        """What the case wrote to stderr on our engine."""
        at = self._folder / f"{seed}.ours.err"
        return at.read_text(errors="replace")[-MAX_SAID:] if at.exists() else ""


def _command(engine: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "differential.loaders.lane", engine, str(folder)]


def describe(status: int | str) -> str:
    """Why there is no trace, in words."""
    if status == HUNG:
        return f"no end after {TIMEOUT_S:.0f} s"
    return f"the process ended with status {status}"
