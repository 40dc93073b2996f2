"""The suites that we hold ourselves to: what they are, what of theirs we replace, and where our reasons stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a loader, for which ours is put in its place."""

    stock: str
    """The package whose loader they test; also what `contract/boot` replaces."""
    where: str
    """Where its repository has them: a file, or a folder."""
    page: str
    """The page in `docs/design` that says which tests we do not pass, and why."""
    goal: float
    """How many must pass, of those that pass on stock."""

    @property
    def reasons(self) -> Path:
        return ROOT / "docs" / "design" / self.page

    def files(self, place: Path) -> list[Path]:
        """Its test files; each is run in a process of its own, for one of torchdata's sets the start method for all."""
        return sorted(place.glob("test_*.py")) if place.is_dir() else [place]


SUITES = {
    "torch": Suite("torch", "pytorch/test/test_dataloader.py", "torch-test-suite.md", goal=0.98),
    "torchdata": Suite("torchdata", "data/test/stateful_dataloader", "torchdata-test-suite.md", goal=0.95),
}
