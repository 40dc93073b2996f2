"""A row of the matrix, and how its parts are read from what the programs write. Pure."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Of the text of a failure, which is in the log as a whole.
MAX_TEXT = 200


@dataclass(frozen=True, slots=True)
class SelfCheckResult:
    """The self-check of antifreeze, without the table of known releases and without a kept result."""

    build: str
    """torch.__version__, as `2.15.0+cu132`."""
    failed: str | None
    """What failed, in words; None: nothing."""
    seconds: float


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What came of some test files."""

    passed: int = 0
    skipped: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """The names of the tests that failed, each with the first line of its text."""
    problem: str | None = None
    """Why the suite did not run to its end."""

    @property
    def has_passed(self) -> bool:
        return self.passed > 0 and not self.failures and self.problem is None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as torch, with the interval that the benchmark gives."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class VersionRow:
    """All that is known of one release."""

    torch: str
    """The release, as pip was asked for it."""
    date: str
    commit: str
    """Of antifreeze; `+` after it: with changes that are not committed."""
    python: str
    load: float
    """Processes that were running or waiting for a core in the minute before it began."""
    cores: int
    is_whole: bool
    """Whether the tests that take long were run, too."""
    problem: str | None = None
    """Why there is no environment, and so nothing else."""
    self_check: SelfCheckResult | None = None
    drop_in: SuiteResult | None = None
    faults: SuiteResult | None = None
    ratios: dict[str, Ratio] = field(default_factory=dict)
    """By the name of the benchmark; one that failed is missing."""

    @property
    def has_passed(self) -> bool:
        """Whether the self-check and both suites have passed. Ratios depend on what else the machine does."""
        suites = (self.drop_in, self.faults)
        return self.is_fit and all(suite is not None and suite.has_passed for suite in suites)

    @property
    def is_fit(self) -> bool:
        """Whether the self-check has passed."""
        return self.self_check is not None and self.self_check.failed is None


def as_json(row: VersionRow) -> str:
    return json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> VersionRow:
    """What `as_json` wrote."""
    document = json.loads(text)

    def part(name: str, kind: Any) -> Any:
        return None if document[name] is None else kind(**document[name])

    parts = {name: part(name, SuiteResult) for name in ("drop_in", "faults")}
    parts["self_check"] = part("self_check", SelfCheckResult)
    parts["ratios"] = {name: Ratio(**ratio) for name, ratio in document["ratios"].items()}
    return VersionRow(**document | parts)


def suite_from_junit(junit: str) -> SuiteResult:
    """The result of a suite, from the file that pytest writes with --junitxml.

    A test whose fixture fails after it has itself passed or failed appears twice there: it counts once, as failed.
    """
    outcomes: dict[str, str] = {}
    failures: dict[str, str] = {}
    for case in ET.fromstring(junit).iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        for child in case:
            if child.tag in ("failure", "error"):
                failures.setdefault(name, _first_line(child.get("message") or child.text or ""))
            elif child.tag == "skipped":
                outcomes[name] = "skipped"
        outcomes.setdefault(name, "passed")
    counted = [outcome for name, outcome in outcomes.items() if name not in failures]
    return SuiteResult(counted.count("passed"), counted.count("skipped"), dict(sorted(failures.items())))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:MAX_TEXT]


def ratios_from_bench(document: Mapping[str, Any]) -> dict[str, Ratio]:
    """The ratio of antifreeze to torch in each workload, from the file that benchmarks/run.py writes with --json."""
    found = {}
    for result in document["results"]:
        seen = result["seen"].get(result["ours"])
        if seen is not None and seen["ratio"] is not None:
            found[result["workload"]] = Ratio(**{name: round(value, 2) for name, value in seen["ratio"].items()})
    return found


def last_line(log: str) -> str:
    """The last words of a program, for a row that says why something did not run."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "no output")[:MAX_TEXT]
