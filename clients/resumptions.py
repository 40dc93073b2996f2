"""A training that is stopped in mid-epoch and resumed in another process by a library's own checkpoints, on our loader.

The scripts `resume_*.py` print every loss as `loss step <number> <float.hex()>`: in one go, with `--stop-after N`, and with
`--resume`. Both halves must say what the whole says.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from trials import HERE, TIME_LIMIT_S, Losses, environment_for, kill_marked, last_error, losses_in, wait_gone

# In the middle of the second of three epochs of eight batches.
STOP_AFTER = 11


@dataclass(frozen=True, slots=True)
class Resumption:
    """A script, and what its checkpoints are made with."""

    name: str
    package: str
    script: str

    def version(self) -> str | None:
        """None: it is not installed."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


RESUMPTIONS = (
    Resumption("Lightning, stopped and resumed", "lightning", "resume_lightning.py"),
    Resumption("accelerate, stopped and resumed", "accelerate", "resume_accelerate.py"),
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What came of it."""

    resumption: Resumption
    whole: Losses
    halves: tuple[Losses, Losses]
    troubles: tuple[str, ...] = ()
    """Runs that failed, and processes that were left behind."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this is not as it must be; empty if it is."""
        if self.troubles:
            return self.troubles
        first, second = self.halves
        if len(second) != len(self.whole) - STOP_AFTER:
            return (f"{len(second)} losses after the resume, of {len(self.whole)} in all",)
        other = [step for half in self.halves for step in half if half[step] != self.whole.get(step)]
        if {*first, *second} != {*self.whole}:
            return ("steps are missing",)
        return (f"losses differ from {other[0]} on",) if other else ()


def run_resumption(resumption: Resumption, *, time_limit_s: float = TIME_LIMIT_S) -> Resumed:
    """In one go, as far as a checkpoint, and from there on."""
    with tempfile.TemporaryDirectory(prefix="clients-drive-") as folder:
        runs = [
            _run(resumption, Path(folder), words, time_limit_s)
            for words in ([], ["--stop-after", str(STOP_AFTER)], ["--resume"])
        ]
    whole, first, second = (losses for losses, _ in runs)
    return Resumed(resumption, whole, (first, second), tuple(trouble for _, found in runs for trouble in found))


def _run(resumption: Resumption, folder: Path, words: list[str], time_limit_s: float) -> tuple[Losses, list[str]]:
    mark = uuid.uuid4().hex
    environment = environment_for(mark, tmp=folder, cache=folder) | {"ANTIFREEZE": "require"}
    said = " ".join(words) or "in one go"
    with (folder / "stdout").open("w+") as stdout, (folder / "stderr").open("w+") as stderr:
        try:
            command = [sys.executable, str(HERE / resumption.script), *words]
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=folder,
                timeout=time_limit_s,
                check=False,
            )
            troubles = [f"{said}: left behind: {thing}" for thing in wait_gone(mark)]
            if ended.returncode:
                troubles.append(
                    f"{said}: exit status {ended.returncode}: {last_error((folder / 'stderr').read_text())}"
                )
        except subprocess.TimeoutExpired:
            troubles = [f"{said}: still running after {time_limit_s:.0f} s, and stopped"]
        finally:
            kill_marked(mark)
    return losses_in((folder / "stdout").read_text()), troubles
