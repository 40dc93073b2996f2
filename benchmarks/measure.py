"""Readings on request: starts the server that they are forked from, asks it, and believes nothing it says unseen.

A reading of antifreeze counts only if the engine itself noted that it carried every loader (`ANTIFREEZE_USAGE`), a reading
of any other engine only if it carried none.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines import OURS
from reading import Reading, Setting
from workloads import Crossing, workload_named

# No reading takes nearly as long on a machine that is free; one that does hangs.
READING_LIMIT_S = 180.0
# Importing torch takes 2 to 6 s on a machine that is free.
ANSWER_LIMIT_S = READING_LIMIT_S + 60.0
STOP_LIMIT_S = 20.0


class ReadingFailed(Exception):
    """An engine did not get through a workload, or was not the engine that it was to be."""


@contextmanager
def started() -> Iterator[Server]:
    """A server that is there while it is needed; nothing of it is left afterwards."""
    server = Server(Path(tempfile.mkdtemp(prefix="antifreeze-bench-")))
    try:
        yield server
    finally:
        server.stop()


class Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIFREEZE")}
        environment |= {"ANTIFREEZE": "require", "ANTIFREEZE_USAGE": str(folder / "usage.jsonl")}
        # numpy would start a thread as soon as it is imported, and what is forked is to have none.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        # torch warns when there are more workers than cores; that is known and chosen here.
        environment["PYTHONWARNINGS"] = "ignore:This DataLoader will create:UserWarning"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py")), str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours to act on
        )

    def take(self, setting: Setting) -> Reading:
        """Take one reading, in a process of its own. Raises ReadingFailed."""
        usage = self._folder / "usage.jsonl"
        usage.unlink(missing_ok=True)
        answer = self._ask({"setting": asdict(setting), "limit_s": READING_LIMIT_S})
        if "error" in answer:
            raise ReadingFailed(answer["error"])
        if not isinstance(workload_named(setting.workload).kind, Crossing):  # which has no loader
            require_engine(setting.engine, usage.read_text() if usage.exists() else "")
        for command in answer["left_behind"]:
            print(f"{setting.engine} left a process behind: {command}", file=sys.stderr, flush=True)
        if answer["threads"] != 1:
            print(f"readings are forked from a process with {answer['threads']} threads", file=sys.stderr, flush=True)
        return Reading(**answer["reading"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        # The server writes whole lines, one per request.
        if not select.select([self._process.stdout], [], [], ANSWER_LIMIT_S)[0]:
            raise SystemExit(f"the measuring server did not answer for {ANSWER_LIMIT_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the measuring server ended")
        return dict(json.loads(line))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_LIMIT_S)
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # the server does so unless it was killed


def require_engine(engine: str, usage: str) -> None:
    """The record that antifreeze wrote of its loaders must fit the engine that was to be measured."""
    carried = [json.loads(line)["engine"] for line in usage.splitlines()]
    if engine == OURS and set(carried) != {"antifreeze"}:
        raise ReadingFailed(
            f"this was to measure antifreeze, but its loaders ran on {sorted(set(carried)) or 'nothing'}"
        )
    if engine != OURS and carried:
        raise ReadingFailed(f"this was to measure {engine}, but antifreeze had a part in it")
