"""Runs a case of the zoo: on torch, under `antifreeze run`, and before the doctor. The zoo's own driver does the work.

It gives each case the environment, limits and `/dev/shm` that its header asks for, a directory and a session of its own,
and counts what is left behind. The doctor gets a copy of the script without its header, called train.py: no answer leaks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from zoo.judge import TIME_LIMIT_S, Expected, judge, read_findings
from zoo.results import Diagnosis, Ending, Row

ASK_DOCTOR = Path(__file__).resolve().parent / "ask_doctor.py"
REPORT_VARIABLE = "ZOO_REPORT"
# Two cores that others use as well.
SLACK = 2.0
# After its time the doctor may take this long to say that it was too long.
GRACE_S = 30.0

# What the user has to say for a case to end well: torch's own result is silently wrong there, or an error is to be mended.
FLAGS = {
    "101": "--retry 1",
    "130": "--fix rng,shard,stale",
    "140": "--fix rng,shard,stale",
    "181": "--fix rng,shard,stale",
}
# torch's `timeout=` keeps its meaning; its error gains these.
BY_DESIGN = {"093": ("DataLoader timed out after 3 seconds", "worker", "sample")}


class Zoo:
    """The cases in a directory, and their driver."""

    def __init__(self, folder: Path, expected: Mapping[str, Expected]) -> None:
        self._drive = _import(folder / "drive.py")
        self._expected = expected
        self._paths = {path.stem: path for path in sorted(folder.glob("[0-9][0-9][0-9]_*.py"))}
        self._headers = {case: self._drive.header(path) for case, path in self._paths.items()}

    def cases(self, words: Sequence[str] = ()) -> list[str]:
        """Those whose number begins with a word, whose class is one, or whose name has one in it; all if there are none."""
        return [
            case
            for case, header in self._headers.items()
            if not words
            or any(case.startswith(word) or word == header["class"] or word in case.partition("_")[2] for word in words)
        ]

    def row(self, case: str) -> Row:
        """What its header says."""
        header = self._headers[case]
        return Row(
            id=case,
            kind=header["class"],
            title=header["title"],
            sources=tuple(header["source"]),
            is_survivable=header["survivable"],
            expected=self._expected[case].code if case in self._expected else "",
            flags=FLAGS.get(case[:3], ""),
        )

    def on_torch(self, case: str) -> Ending:
        return self._ending(case, self._drive_case(case, prefix=""))

    def under_run(self, case: str) -> Ending:
        prefix = f"antifreeze run {FLAGS.get(case[:3], '')}".strip()
        with _environment(ANTIFREEZE="require"):
            return self._ending(case, self._drive_case(case, prefix=prefix))

    def before_doctor(self, case: str) -> Diagnosis:
        with tempfile.TemporaryDirectory(prefix="zoo-report-") as folder:
            report = Path(folder, "report.json")
            with _environment(**{REPORT_VARIABLE: str(report)}):
                ended = self._drive_case(
                    case, prefix=str(ASK_DOCTOR), strip=True, timeout=TIME_LIMIT_S + GRACE_S, slack=1.0
                )
            document = _read(report)
        failure = "" if document else (ended["msg"] or f"no report; {ended['got']}, exit status {ended['rc']}")
        said = read_findings(document) if document else []
        expected = self._expected[case]
        faults = [*judge(said, expected, seconds=ended["secs"]).faults, *([failure] if failure else [])]
        faults += [f"left {ended['left']} processes behind"] if ended["left"] else []
        findings = tuple({"code": each.code, "weight": each.weight, "text": each.text} for each in said)
        return Diagnosis(ended["secs"], findings, tuple(faults), ended["left"], failure)

    def _drive_case(
        self, case: str, *, prefix: str, strip: bool = False, timeout: float | None = None, slack: float = SLACK
    ) -> dict[str, Any]:
        options = argparse.Namespace(
            python=sys.executable,
            prefix=prefix,
            strip=strip,
            timeout=timeout,
            slack=slack,
            fix=False,
            nw0=False,
            stacks=False,
        )
        ended: dict[str, Any] = self._drive.run(self._paths[case], self._headers[case], options)
        return ended

    @staticmethod
    def _ending(case: str, ended: Mapping[str, Any]) -> Ending:
        added = BY_DESIGN.get(case[:3])
        is_by_design = added is not None and ended["got"] == "error" and all(text in ended["stderr"] for text in added)
        words = last_words(ended["stderr"]) if ended["got"] in ("error", "crash") else ended["msg"]
        if ended["got"] == "hang":
            words = f"stopped after {ended['secs']:.0f} s"
        return Ending(ended["got"], ended["secs"], words, ended["left"], is_by_design)


def last_words(stderr: str) -> str:
    """The line that names the error; notes and advice may follow it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"([a-z_]\w*\.)*[A-Z]\w*(: |$)", line)]
    return next(iter(errors[-1:] or lines[-1:]), "")[:300]


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("zoo_drive", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(report: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(report.read_text())
    except (OSError, ValueError):
        return None
    return document


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """The driver hands our own environment on."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
