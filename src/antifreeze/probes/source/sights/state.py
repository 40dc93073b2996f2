"""Attributes of the dataset that samples change: in a worker, that is a copy, and no other process sees the change."""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.persample import Anatomy, changed_attributes
from antifreeze.probes.source.program import Program

KIND = "changes-self"


def look(program: Program, body: Anatomy) -> Iterator[Sight]:
    """The first change of every attribute; who reads it outside is found later, when all loops are known."""
    seen = set[str]()
    for found in body.per_sample:
        changes = sorted(changed_attributes(found.node), key=lambda change: change[1].lineno)
        for name, node, _ in changes:
            if name not in seen:
                seen.add(name)
                yield Sight(kind=KIND, what=f"self.{name}", place=found.file.place(node))
