"""Plays random loaders on both engines, each in a lane, and compares their traces."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from differential.compare import compare_traces
from differential.engines import ENGINES, ROOT, environment
from differential.methods import draw_method
from differential.outcome import Outcome

TIMEOUT_S = 60.0
# Beyond the case's own time-out, for which the lane answers: then the lane itself hangs.
LANE_GRACE_S = 30.0
# Shown of what the engine said on stderr beside a failure.
MAX_SAID = 2000


class Lane:
    """The runner's end of a lane."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self._popen: subprocess.Popen[str] | None = None

    def give(self, seed: int, method: str, timeout_s: float) -> None:
        """Have it play this case; a lane that has ended is started again."""
        if self._popen is None or self._popen.poll() is not None:
            self._popen = self._start()
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"seed": seed, "method": method, "timeout_s": timeout_s}) + "\n")
        self._popen.stdin.flush()

    def take(self, seed: int, timeout_s: float) -> list[list[str]] | str:
        """The trace, or why there is none."""
        assert self._popen is not None and self._popen.stdout is not None
        if not select.select([self._popen.stdout], [], [], timeout_s + LANE_GRACE_S)[0]:
            self.end()
            return "the lane gave no answer"
        line = self._popen.stdout.readline()
        if not line:
            return f"the lane ended with status {self._popen.wait()}"
        failure = json.loads(line)["failure"]
        at = self.folder / f"{seed}.{self.engine}"
        return str(failure) if failure else json.loads(at.read_text())

    def said(self, seed: int) -> str:
        """What the case wrote to stderr."""
        at = self.folder / f"{seed}.{self.engine}.err"
        return at.read_text(errors="replace")[-MAX_SAID:] if at.exists() else ""

    def end(self) -> None:
        """End it, and all that it started."""
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.communicate()
            self._popen = None

    def _start(self) -> subprocess.Popen[str]:
        state = self.folder / f"state-{self.engine}-{threading.get_ident()}"
        state.mkdir(exist_ok=True, mode=0o700)
        return subprocess.Popen(
            [sys.executable, "-m", "differential.loaders.lane", self.engine, str(self.folder)],
            cwd=ROOT,
            env=environment(self.engine, state),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def play_all(
    seeds: Iterable[int],
    *,
    method: str | None,
    jobs: int,
    folder: Path,
    tell: Callable[[Outcome], None],
) -> None:
    """Play these seeds in so many pairs of lanes, and tell what came of each."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)

    def serve() -> None:
        lanes = [Lane(engine, folder) for engine in ENGINES]
        try:
            while True:
                seed = waiting.get_nowait()
                tell(_play(seed, method or draw_method(seed), lanes, TIMEOUT_S))
        except queue.Empty:
            return
        finally:
            for lane in lanes:
                lane.end()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _play(seed: int, method: str, lanes: list[Lane], timeout_s: float) -> Outcome:
    """Play one case on both engines at the same time; a case that hangs is played again alone before it is believed."""
    program = f"loader {seed} {method}"
    for lane in lanes:
        lane.give(seed, method, timeout_s)
    traces = [lane.take(seed, timeout_s) for lane in lanes]
    for place, lane in enumerate(lanes):
        if isinstance(traces[place], str):
            lane.end()
            lane.give(seed, method, 2 * timeout_s)
            traces[place] = lane.take(seed, 2 * timeout_s)
    torch, ours = traces
    if isinstance(torch, str):
        return Outcome(program, no_comparison=f"torch: {torch}")
    if isinstance(ours, str):
        return Outcome(program, failure=f"ours: {ours}", said=lanes[1].said(seed))
    differences = tuple(compare_traces(program, torch, ours))
    return Outcome(program, differences, said=lanes[1].said(seed) if differences else "", events=len(torch))
