"""What came of every case, in every column, to and from JSON. Pure data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from chaos.report import Facts

COLUMNS = ("torch", "run", "doctor")
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class Ending:
    """How a case ended, on torch or under `antifreeze run`."""

    outcome: str
    """ok, hang, crash, error, wrong, leak or slow."""
    seconds: float
    words: str
    """The last line that says anything."""
    left: int
    """Processes that were there when it was over."""
    is_by_design: bool = False
    """It is not ok, and is not meant to be: torch's promise is kept, and what we add to it was there."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor said, and what is to be held against it."""

    seconds: float
    findings: tuple[Mapping[str, str], ...]
    """Code, weight and text of each."""
    faults: tuple[str, ...]
    left: int
    failure: str = ""
    """Its own last words, if it said nothing else."""

    @property
    def is_right(self) -> bool:
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case and what came of it."""

    id: str
    kind: str
    title: str
    sources: tuple[str, ...]
    is_survivable: bool
    expected: str
    """Code of the problem that it has."""
    flags: str
    """What `antifreeze run` was told."""
    torch: Ending | None = None
    run: Ending | None = None
    doctor: Diagnosis | None = None

    @property
    def is_survived(self) -> bool:
        """Whether all is well under `antifreeze run`, as far as that is possible."""
        return self.run is None or not self.is_survivable or self.run.outcome == "ok" or self.run.is_by_design


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, and when and where each column was made."""

    rows: tuple[Row, ...]
    made: Mapping[str, Facts] = field(default_factory=dict)

    @property
    def diagnosed(self) -> list[Row]:
        return [row for row in self.rows if row.doctor is not None]

    @property
    def share_right(self) -> float:
        """Of those that were diagnosed."""
        right = sum(row.doctor is not None and row.doctor.is_right for row in self.rows)
        return right / len(self.diagnosed) if self.diagnosed else 0.0

    def row(self, case: str) -> Row | None:
        return next((row for row in self.rows if row.id == case), None)

    def with_columns_of(self, other: Report) -> Report:
        """The same, with the columns of another one that this one has not made."""
        lacking = [column for column in COLUMNS if column not in self.made and column in other.made]
        rows = []
        for row in self.rows:
            there = other.row(row.id)
            rows.append(replace(row, **{name: getattr(there, name) for name in lacking}) if there else row)
        return Report(tuple(rows), {**self.made, **{name: other.made[name] for name in lacking}})


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Report:
    document = json.loads(text)
    made = {column: Facts(**facts) for column, facts in document["made"].items()}
    return Report(tuple(_row(each) for each in document["rows"]), made)


def _row(plain: dict[str, Any]) -> Row:
    endings = {name: Ending(**plain[name]) if plain[name] else None for name in ("torch", "run")}
    doctor = plain["doctor"]
    if doctor:
        doctor = Diagnosis(**{**doctor, "findings": tuple(doctor["findings"]), "faults": tuple(doctor["faults"])})
    return Row(**{**plain, **endings, "sources": tuple(plain["sources"]), "doctor": doctor})
