"""What two runs of the same tests say about each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tests that pass on stock, and what becomes of them on antifreeze."""

    ours: dict[str, str]
    """Their outcomes; "missing" for one that was not even run."""
    listed: Collection[str] = ()
    """Those that we say we do not pass, on purpose: `test_…` or `Class::test_…`."""

    @property
    def all(self) -> int:
        """How many there are."""
        return len(self.ours)

    @property
    def broken(self) -> list[str]:
        """Those that do not pass."""
        return sorted(name for name, outcome in self.ours.items() if outcome != "passed")

    @property
    def unlisted(self) -> list[str]:
        """Those that do not pass, and nobody has said why."""
        return [name for name in self.broken if not self.is_listed(name)]

    @property
    def outdated(self) -> list[str]:
        """Those that are listed, and pass."""
        return sorted(name for name, outcome in self.ours.items() if outcome == "passed" and self.is_listed(name))

    @property
    def kept(self) -> int:
        """How many pass."""
        return self.all - len(self.broken)

    @property
    def share(self) -> float:
        """How many pass, of all."""
        return self.kept / self.all if self.all else 0.0

    def is_listed(self, name: str) -> bool:
        """Whether a test, `file.Class::test_…`, is listed."""
        return any(name.endswith((f"::{entry}", f".{entry}")) for entry in self.listed)


def compare(stock: Mapping[str, str], ours: Mapping[str, str], listed: Collection[str] = ()) -> Comparison:
    """Hold our outcomes against those of stock."""
    passing = [name for name, outcome in stock.items() if outcome == "passed"]
    return Comparison({name: ours.get(name, "missing") for name in passing}, listed)


def listed(page: str) -> frozenset[str]:
    """The tests that a page says we do not pass: `test_…` or `Class::test_…` in the first column of its table."""
    return frozenset(re.findall(r"^\| `((?:\w+::)?test_\w+)` ", page, flags=re.MULTILINE))
