"""What two runs of the same tests say about each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tests that pass on torch, and what becomes of them on antifreeze."""

    ours: dict[str, str]
    """Their outcomes; "missing" for one that was not even run."""

    @property
    def all(self) -> int:
        """How many there are."""
        return len(self.ours)

    @property
    def broken(self) -> list[str]:
        """Those that do not pass."""
        return sorted(name for name, outcome in self.ours.items() if outcome != "passed")

    @property
    def kept(self) -> int:
        """How many pass."""
        return self.all - len(self.broken)

    @property
    def share(self) -> float:
        """How many pass, of all."""
        return self.kept / self.all if self.all else 0.0


def compare(stock: Mapping[str, str], ours: Mapping[str, str]) -> Comparison:
    """Hold our outcomes against torch's."""
    return Comparison({name: ours.get(name, "missing") for name, outcome in stock.items() if outcome == "passed"})


def listed(page: str) -> frozenset[str]:
    """The tests that a page says we do not pass, on purpose: `test_…` in the first column of its table."""
    return frozenset(re.findall(r"^\| `(test_\w+)` ", page, flags=re.MULTILINE))
