"""Asks the doctor about the healthy scripts, which it must say nothing against."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from antifreeze.probes.bounded import run_bounded
from zoo.judge import Said, alarms, read_findings

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "healthy"
SCRIPTS = tuple(sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_")))
TIME_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Checkup:
    """What the doctor said about a script that is well."""

    script: Path
    seconds: float
    findings: tuple[Said, ...]
    failure: str = ""
    """Its last words, if there is no report."""

    @property
    def alarms(self) -> list[Said]:
        return alarms(self.findings)

    @property
    def is_fine(self) -> bool:
        return not self.alarms and not self.failure

    def __str__(self) -> str:
        said = "; ".join(f"{each.code} {each.weight}" for each in self.findings) or "nothing"
        return f"{'  ' if self.is_fine else '!!'} {self.script.stem:<26} {self.seconds:>5.1f} s  {self.failure or said}"


def check_up(script: Path, *options: str) -> Checkup:
    """Run `antifreeze doctor` on a script."""
    command = [sys.executable, "-m", "antifreeze", "doctor", "--format", "json", *options, str(script)]
    # What a script makes there it would clear away at its end, to which it does not come.
    with tempfile.TemporaryDirectory(prefix="h-") as scratch:
        ended = run_bounded(command, timeout_s=TIME_LIMIT_S, environ={**os.environ, "TMPDIR": scratch})
    try:
        findings = tuple(read_findings(json.loads(ended.stdout)))
    except ValueError:
        return Checkup(script, ended.seconds, (), f"no report: {ended.last_words}")
    return Checkup(script, ended.seconds, findings)
