"""What a check says: a problem by its code, where it is, why we think so, what to do, and how sure we are. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from antifreeze.doctor.facts import Death, Place, Raised, Stuck


class Weight(IntEnum):
    """How sure we are; the surest sorts first."""

    CERTAIN = 0
    """Reproduced, or the kernel's own evidence: a signal, an exit status, a counter."""
    LIKELY = 1
    """The evidence fits this problem and we know of no other that it fits as well."""
    POSSIBLE = 2
    """It may be; `rivals` says what else, `decide` what would tell."""

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that a program has."""

    code: str = ""
    """Filled in by the check that it comes from, and so is `loader` by one that judges loaders."""
    weight: Weight
    what: str
    """What happens, in one sentence that a user without knowledge of processes understands."""
    where: Place | None = None
    """The line to change; never a line that is not known to be the user's."""
    why: str
    """The cause, with the names of this program: attribute paths, further lines, sample indices."""
    fix: tuple[str, ...]
    """What to do, the best first; commands and code that can be pasted as they stand."""
    evidence: tuple[str, ...] = ()
    """What was seen, in a few words each: `reproduced: no batch for 12 s`, `64 MB < 2×4×24 MB`."""
    seen: Stuck | Death | Raised | None = field(default=None, repr=False)
    """What it was seen in: the check fills in worker, pid and sample from it."""
    loader: int | None = None
    """Number of the loader in `Facts.loaders`."""
    worker: int | None = None
    pid: int | None = None
    sample: str | None = None
    """Index of the sample, as `repr` writes it."""
    rivals: tuple[str, ...] = ()
    """Codes that fit the evidence nearly as well; at most two, and only if it is no more than possible."""
    decide: str | None = None
    """The one command that would decide between them."""
    is_cause: bool = field(default=True, repr=False)
    """Whether it explains what `precedence.py` says that its code explains; False: this time it does not go so far."""
