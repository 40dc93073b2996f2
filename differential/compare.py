"""Differences between two runs of the same program, and which of them are declared."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from differential.declared import ADDED_LINES, DECLARED, Declared

NOTHING = "(nothing)"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that a user sees otherwise on antifreeze than on torch."""

    program: str
    """`loader 17 fork`, or `script exits/status_3 spawn`."""
    where: str
    """A kind of event of a loader (`batch`, `error`), or `stdout`, `status`, `file NAME`."""
    torch: str
    ours: str

    def is_declared_by(self, declared: Declared) -> bool:
        """Whether an entry of the table is about this."""
        fields = (self.program, self.where, self.torch, self.ours)
        patterns = (declared.program, declared.where, declared.torch, declared.ours)
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, fields, strict=True))

    @property
    def declared(self) -> Declared | None:
        """The entry of the table that is about this, if there is one."""
        return next((each for each in DECLARED if self.is_declared_by(each)), None)

    def __str__(self) -> str:
        lines = [f"{self.program}: {self.where}"]
        lines += [f"    torch  {line}" for line in self.torch.splitlines() or [""]]
        lines += [f"    ours   {line}" for line in self.ours.splitlines() or [""]]
        return "\n".join(lines)


def compare_traces(program: str, torch: Sequence[Sequence[str]], ours: Sequence[Sequence[str]]) -> Iterator[Difference]:
    """Differences between the traces of a loader."""
    first, second = [tuple(event) for event in torch], [(kind, without_added_lines(text)) for kind, text in ours]
    for a, b in _replaced(first, second):
        kind = (a or b or ("", ""))[0]
        yield Difference(program, kind, _said(a, kind), _said(b, kind))


def _said(event: tuple[str, str] | None, kind: str) -> str:
    if event is None:
        return NOTHING
    return event[1] if event[0] == kind else f"{event[0]}: {event[1]}"


def without_added_lines(text: str) -> str:
    """A text of ours without what we say in addition to what torch says."""
    return "\n".join(line for line in text.split("\n") if not any(re.fullmatch(each, line) for each in ADDED_LINES))


def compare_outputs(program: str, torch: str, ours: str) -> Iterator[Difference]:
    """Differences between what a script wrote to stdout."""
    for a, b in _replaced(torch.splitlines(), ours.splitlines()):
        yield Difference(program, "stdout", NOTHING if a is None else a, NOTHING if b is None else b)


def compare_files(program: str, torch: Mapping[str, bytes], ours: Mapping[str, bytes]) -> Iterator[Difference]:
    """Differences between the files that a script left."""
    for name in sorted({*torch, *ours}):
        if torch.get(name) != ours.get(name):
            yield Difference(program, f"file {name}", _content(torch.get(name)), _content(ours.get(name)))


def _content(content: bytes | None) -> str:
    return NOTHING if content is None else content.decode(errors="backslashreplace")


def _replaced(torch: Sequence[Any], ours: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """What stands in the place of what, one by one; None where one of them has nothing."""
    for tag, a, b, c, d in difflib.SequenceMatcher(None, torch, ours, autojunk=False).get_opcodes():
        if tag != "equal":
            for k in range(max(b - a, d - c)):
                yield torch[a + k] if a + k < b else None, ours[c + k] if c + k < d else None


def undeclared(differences: Iterable[Difference]) -> list[Difference]:
    """Those for which there is no entry in the table."""
    return [each for each in differences if each.declared is None]
