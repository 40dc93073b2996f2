"""What a run leaves: one JSON file with every reading, and what machine and programs they were taken on.

A file can be filled by several runs (`merge`): each brings whole workloads, and all must agree on everything that a figure
depends on.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from engines import ENGINES, is_importable
from judge import Interval, Result, Seen, Verdict
from workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Facts:
    """What figures depend on, apart from what is measured."""

    cores: int
    """As many as this process may use."""
    processor: str
    memory_gib: int
    kernel: str
    python: str
    versions: dict[str, str]
    commit: str
    """Of antifreeze; `+` after it: with changes that are not committed."""
    workers: int
    prefetch_factor: int
    is_self_test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One run that contributed."""

    at: str
    load: float
    """Processes that were running or waiting for a core in the minute before it began."""
    pairs: int
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    facts: Facts
    calls: tuple[Call, ...]
    results: tuple[Result, ...]


class Mismatch(Exception):
    """Two runs cannot stand in one file."""


def merge(old: Report | None, new: Report) -> Report:
    """The old report with the workloads of the new one, in the order of the table. Raises Mismatch."""
    if old is None:
        return new
    require_same(old.facts, new.facts)
    fresh = {result.workload for result in new.results}
    results = [result for result in old.results if result.workload not in fresh] + list(new.results)
    place = {workload.name: number for number, workload in enumerate(WORKLOADS)}
    results.sort(key=lambda result: place.get(result.workload, len(place)))
    return Report(new.facts, (*old.calls, *new.calls), tuple(results))


def require_same(old: Facts, new: Facts) -> None:
    before, now = asdict(old), asdict(new)
    different = [f"{name}: {before[name]} and {now[name]}" for name in before if before[name] != now[name]]
    if different:
        raise Mismatch("taken on something else: " + "; ".join(different))


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(rounded(report)), indent=1, ensure_ascii=False) + "\n")


def rounded(report: Report) -> Report:
    """Seven digits are more than any clock here has, and make the file readable."""

    def seven(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.7g}")

    def of(seen: Seen) -> Seen:
        return replace(seen, readings=tuple(seven(value) for value in seen.readings))

    results = (
        replace(result, seen={name: of(seen) for name, seen in result.seen.items()}) for result in report.results
    )
    return replace(report, results=tuple(results))


def read(path: Path) -> Report:
    document = json.loads(path.read_text())
    return Report(
        Facts(**document["facts"]),
        tuple(Call(**call | {"workloads": tuple(call["workloads"])}) for call in document["calls"]),
        tuple(result_from(each) for each in document["results"]),
    )


def result_from(document: dict[str, Any]) -> Result:
    seen = {name: seen_from(each) for name, each in document["seen"].items()}
    changed = {"seen": seen, "notes": tuple(document["notes"]), "verdict": Verdict(**document["verdict"])}
    return Result(**document | changed)


def seen_from(document: dict[str, Any]) -> Seen:
    ratio = document["ratio"]
    changed = {
        "readings": tuple(document["readings"]),
        "ratio": None if ratio is None else Interval(**ratio),
        "extra": tuple(document["extra"]),
    }
    return Seen(**document | changed)


def facts_of_this_machine(*, workers: int, prefetch_factor: int, is_self_test: bool, commit: str | None) -> Facts:
    return Facts(
        cores=usable_cores(),
        processor=processor(),
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        kernel=platform.release(),
        python=platform.python_version(),
        versions=versions(),
        commit=commit or commit_here(),
        workers=workers,
        prefetch_factor=prefetch_factor,
        is_self_test=is_self_test,
    )


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the limit of its container if there is one."""
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    return allowed


def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.machine()


def versions() -> dict[str, str]:
    packages = dict.fromkeys(engine.package for engine in ENGINES.values() if is_importable(engine.module))
    found = {}
    for package in (*packages, "numpy", "pillow"):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def commit_here() -> str:
    """The commit of this checkout, as far as measuring goes."""
    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if git("status", "--porcelain", "--", "src", "benchmarks") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return ended.stdout.strip()
