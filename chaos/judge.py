"""What came of a trial: which faults hit, whether every batch came once and in order, how soon workers were back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chaos.faults import BY_NAME, Family, Fault


@dataclass(frozen=True, slots=True)
class Struck:
    """What a strike of the trainer did."""

    pids: tuple[int, ...]
    """Workers that it killed."""
    has_new_source: bool
    """Whether what was killed besides (the stem, the base) had to be started anew."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a trial when it has ended."""

    fired: Mapping[int, Mapping[str, Any]]
    """Of faults in workers, by number: worker, pid, and when."""
    struck: Mapping[int, Struck]
    births: Sequence[Mapping[str, Any]]
    records: Sequence[Mapping[str, Any]]
    """The ledger."""
    samples: Mapping[int, int]
    """The index that a fault was set at, by its number."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Batches beside those of a calm torch."""

    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    changed: int = 0
    """Parts of batches that the program kept, and that are not what they were."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All there is to say about a trial."""

    number: int
    seconds: float
    hits: tuple[tuple[str, str], ...]
    """Kind and point of every fault that hit."""
    missed: int
    """Faults that hit nothing."""
    compared: Compared
    raised: str = ""
    """The error that the user's loop was given, if any."""
    hang: str = ""
    """Where everybody was when the time was over."""
    leaks: tuple[str, ...] = ()
    back_s: tuple[float, ...] = field(default=())
    """For every SIGKILL: seconds until another worker was at work in that place."""

    @property
    def is_fine(self) -> bool:
        """Whether nothing went wrong."""
        return self.compared == Compared() and not (self.raised or self.hang or self.leaks)

    def as_json(self) -> dict[str, Any]:
        """To be written."""
        return asdict(self)


def outcome_from(document: Mapping[str, Any]) -> Outcome:
    """What `as_json` wrote."""
    return Outcome(
        **{
            **document,
            "compared": Compared(**document["compared"]),
            "hits": tuple((kind, point) for kind, point in document["hits"]),
            "leaks": tuple(document["leaks"]),
            "back_s": tuple(document["back_s"]),
        }
    )


def compare(ours: Sequence[Sequence[str]], calm: Sequence[Sequence[str]], *, changed: int = 0) -> Compared:
    """Batches by their fingerprints, epoch by epoch."""
    total: Counter[str] = Counter(changed=changed)
    for epoch, expected in enumerate(calm):
        got = ours[epoch] if epoch < len(ours) else ()
        unknown = [batch for batch in got if batch not in set(expected)]
        known = Counter(batch for batch in got if batch in set(expected))
        total["repeated"] += sum(count - 1 for count in known.values())
        in_order = [batch for batch in expected if batch in known]
        out_of_order = list(dict.fromkeys(batch for batch in got if batch in known)) != in_order
        total["wrong"] += len(unknown) + out_of_order
        total["lost"] += max(0, len(expected) - len(known) - len(unknown))
    return Compared(**total)


def hits(faults: Iterable[Fault], evidence: Evidence) -> list[Fault]:
    """The faults that did what they were meant to, as the ledger shows it."""
    has_lost_stem = any("stem" in fault.kind or "base" in fault.kind for fault in faults)
    return [fault for fault in faults if _has_hit(fault, evidence, may_be_unread=has_lost_stem)]


def _has_hit(fault: Fault, evidence: Evidence, *, may_be_unread: bool) -> bool:
    if fault.family is Family.STRIKE:
        struck = evidence.struck.get(fault.number)
        ended = {record["pid"] for record in _of_kind("worker-replaced", evidence)}
        return struck is not None and ended.issuperset(struck.pids) and struck.has_new_source
    fired = evidence.fired.get(fault.number)
    if fired is None:
        return False
    if fault.family is Family.RAISED:
        sample = repr(evidence.samples[fault.number])
        return any(record["sample"] == sample for record in _of_kind("sample-retried", evidence))
    if fault.family is Family.STUCK:
        return any(record["pid"] == fired["pid"] for record in _of_kind("stall", evidence))
    codes = {BY_NAME[fault.kind].exitcode, *([None] if may_be_unread else [])}
    return any(
        record["pid"] == fired["pid"] and record["exitcode"] in codes
        for record in _of_kind("worker-replaced", evidence)
    )


def _of_kind(kind: str, evidence: Evidence) -> list[Mapping[str, Any]]:
    return [record for record in evidence.records if record["kind"] == kind]


def times_to_be_back(hit: Iterable[Fault], evidence: Evidence) -> list[float]:
    """For every SIGKILL that hit: seconds until the next worker of that number was at work."""
    times = []
    for fault in hit:
        if fault.kind != "SIGKILL":
            continue
        end = evidence.fired[fault.number]
        later = [b["at"] - end["at"] for b in evidence.births if b["worker"] == end["worker"] and b["at"] > end["at"]]
        times.extend(sorted(later)[:1])
    return times


def pids(evidence: Evidence) -> set[int]:
    """All workers of a trial that are known."""
    known = (*evidence.births, *evidence.fired.values(), *evidence.records)
    return {facts["pid"] for facts in known if facts["pid"] is not None}


def is_ours(leftover: str, pids: set[int]) -> bool:
    """Whether a trial left this behind: others use shared memory, too, but torch writes its pid into the name."""
    name = leftover.removeprefix("/dev/shm/")
    return name == leftover or any(f"_{pid}_" in name for pid in pids)
