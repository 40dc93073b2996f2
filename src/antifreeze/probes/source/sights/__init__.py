"""Things in the code that runs per sample that may make it sick: one file per kind of trouble."""

from __future__ import annotations

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.persample import Anatomy
from antifreeze.probes.source.program import Program
from antifreeze.probes.source.sights import flow, locks, network, state, writes


def sights(program: Program, body: Anatomy) -> tuple[Sight, ...]:
    """All that is to be seen in a dataset class, by file and line."""
    seen = [sight for each in (flow, locks, network, state, writes) for sight in each.look(program, body)]
    return tuple(sorted(dict.fromkeys(seen), key=lambda sight: (sight.place.file, sight.place.line, sight.kind)))
