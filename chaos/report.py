"""What a run leaves: every outcome, and what machine and commit it was, as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from chaos.judge import Outcome, outcome_from

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Facts:
    """Where and when."""

    date: str
    processor: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    torch: str
    commit: str
    """Of antifreeze; `+` after it: with changes that are not committed."""
    load: float
    """Processes that were running or waiting for a core in the minute before the beginning."""


@dataclass(frozen=True, slots=True)
class Report:
    """One run."""

    facts: Facts
    seed: int
    jobs: int
    seconds: int
    outcomes: tuple[Outcome, ...]
    quiet: tuple[Outcome, ...]
    """With nothing else going on."""
    kinds: tuple[str, ...] = ()
    """The kinds of faults that were played; those that need what a machine has not got are left out."""


def write(report: Report, path: Path) -> None:
    """Write it; texts of failures are not what the file is for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(report), separators=(",", ":")).replace('{"number"', '\n{"number"') + "\n")


def read(path: Path) -> Report:
    """What `write` wrote."""
    document: Mapping[str, Any] = json.loads(path.read_text())
    outcomes, quiet = (tuple(outcome_from(each) for each in document[name]) for name in ("outcomes", "quiet"))
    known = {"facts": Facts(**document["facts"]), "kinds": tuple(document.get("kinds", ()))}
    return Report(**{**document, **known, "outcomes": outcomes, "quiet": quiet})


def facts_of_this_machine() -> Facts:
    """As they are now."""
    return Facts(
        date=time.strftime("%Y-%m-%d"),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        kernel=platform.release(),
        python=platform.python_version(),
        torch=metadata.version("torch"),
        commit=_commit(),
        load=round(os.getloadavg()[0], 2),
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _commit() -> str:
    package = util.find_spec("antifreeze")
    if package is None or package.origin is None or not Path(package.origin).is_relative_to(ROOT / "src"):
        return "no commit (another copy of the package was used)"
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--", "src", "chaos") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return ended.stdout.strip()
