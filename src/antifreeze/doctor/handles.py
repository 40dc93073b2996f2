"""Handles that forked workers share: which one is to blame for wrong samples or errors in workers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from antifreeze.doctor.cases import LoaderCase, first_line, loads_elsewhere, raised_in, touches
from antifreeze.doctor.facts import Held, Place, Raised
from antifreeze.doctor.finding import Weight

SHARED = ("file", "archive", "hdf5", "socket", "lmdb", "sqlite")

# How to open what is described with this word.
OPENS = {
    "lmdb": "lmdb.open(path, readonly=True, lock=False)",
    "h5py": "h5py.File(path)",
    "hdf5": "h5py.File(path)",
    "sqlite": "sqlite3.connect(path)",
    "npz": "numpy.load(path)",
    "gzip": "gzip.open(path)",
    "zip": "zipfile.ZipFile(path)",
    "tar": "tarfile.open(path)",
    "descriptor": "os.open(path, os.O_RDONLY)",
    "socket": "socket.create_connection(address)",
    "file": "open(path, 'rb')",
    "_io.": "open(path, 'rb')",
}


@dataclass(frozen=True, slots=True)
class Harm:
    """What came of sharing a handle."""

    held: Held
    weight: Weight
    evidence: tuple[str, ...]
    raised: Raised | None = None
    sample: str | None = None


def harm_of(case: LoaderCase, *kinds: str) -> Harm | None:
    """What sharing a handle of these kinds did, as far as it was seen; None: nothing, or another handle did it."""
    suspects = [held for held in case.held if held.kind in kinds and (held.kind != "hdf5" or held.shares_position)]
    if not suspects or not case.is_forked or case.num_workers < 1:
        return None
    if case.works_without_workers is False:
        return None
    wrong = [trial for trial in case.trials if trial.wrong]
    failed = [trial for trial in raised_in(case, "fetch", "collate") if trial.workers]
    raised = failed[0].raised if failed else None
    held = _blamed(case, suspects, raised)
    if held is None:
        return None
    if wrong:
        samples = wrong[0].wrong
        seen = f"reproduced: {len(samples)} sample{'s' * (len(samples) > 1)} differ from what the trainer reads"
        is_alone = _is_alone(case, kinds)
        return Harm(held, Weight.CERTAIN if is_alone else Weight.LIKELY, (seen,), raised, samples[0])
    # A sample that fails in workers may just not have been reached without them.
    if raised and case.works_without_workers and loads_elsewhere(case, raised.sample):
        seen = f"reproduced: {raised.type}: {first_line(raised.message)}"
        return Harm(held, Weight.LIKELY, (seen, "without workers it works"), raised, raised.sample)
    return None


def _blamed(case: LoaderCase, suspects: list[Held], raised: Raised | None) -> Held | None:
    """The one that the failing lines name; else the only candidate."""
    lines = [raised.place, *raised.frames] if raised else []
    named = [held for held in suspects if touches(held, lines)]
    if named:
        return named[0]
    others = [held for held in case.held if held.kind in SHARED and held not in suspects]
    if any(touches(held, lines) for held in others):
        return None
    return suspects[0]


def opener(what: str) -> str | None:
    """The call that opens such a thing."""
    kind = what.lower().partition("'")[0]  # and not the name of the file
    return next((call for word, call in OPENS.items() if re.search(rf"(?<![a-z]){word}", kind)), None)


def own_name(path: str, place: Place | None) -> str:
    """How the class that holds it calls it: `dataset.dataset.archive` is its `self.archive`."""
    assigned = re.search(r"\bself\.\w+(?=[^=]*=(?!=))", place.text) if place else None
    if assigned:
        return assigned.group()
    root, _, last = re.sub(r"\[[^\]]*\]", "", path).rpartition(".")
    return last if root in ("", "__main__") else f"self.{last}"


def _is_alone(case: LoaderCase, kinds: tuple[str, ...]) -> bool:
    return all(held.kind in kinds for held in case.held if held.kind in SHARED)
