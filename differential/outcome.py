"""What came of one program that was run on both engines."""

from __future__ import annotations

from dataclasses import dataclass

from differential.compare import Difference, undeclared

# Of one program: what comes after the first ones mostly follows from them.
MAX_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one program that was run on both engines."""

    program: str
    differences: tuple[Difference, ...] = ()
    failure: str = ""
    """Why there is nothing to compare, if that is our fault: a hang, or a crash."""
    no_comparison: str = ""
    """Why there is nothing to compare, if torch itself hung or crashed, or a library is not installed."""
    said: str = ""
    """What it wrote to stderr on our engine."""

    @property
    def is_fine(self) -> bool:
        """Whether everything that differs is declared."""
        return not self.failure and not undeclared(self.differences)

    def __str__(self) -> str:
        if self.no_comparison:
            return f"not compared  {self.program}: {self.no_comparison}"
        if self.is_fine:
            return f"{'declared' if self.differences else 'same':<13} {self.program}"
        lines = [f"DIFFERS       {self.program}" + (f": {self.failure}" if self.failure else "")]
        found = undeclared(self.differences)
        lines += [f"  {each}" for each in found[:MAX_SHOWN]]
        if len(found) > MAX_SHOWN:
            lines.append(f"  … and {len(found) - MAX_SHOWN} more")
        lines += [f"    stderr {line}" for line in self.said.splitlines()]
        return "\n".join(lines)
