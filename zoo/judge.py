"""Was the doctor right about a case? Pure.

The finding that is expected must be there, with any weight, and hold all the texts that name the cause; and no other
problem may be rated certain or likely, unless it is true of the case as well. Findings about the machine (AF9xx) count
only where one is expected: they are true of every case that runs there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LOUD = ("certain", "likely")
OF_THE_MACHINE = "AF9"
TIME_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What has to be said about a case, as `tests/zoo_expected.toml` has it."""

    code: str
    holds: tuple[str, ...] = ()
    """Texts that the finding must contain."""
    also: tuple[str, ...] = ()
    """Codes that are true of the case as well."""


@dataclass(frozen=True, slots=True)
class Said:
    """A finding of the doctor's, in its JSON form."""

    code: str
    weight: str
    text: str
    """All that it says, one part a line."""

    @property
    def is_loud(self) -> bool:
        """Whether it would be believed."""
        return self.weight in LOUD


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be held against a diagnosis; nothing: it is right."""

    faults: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not self.faults


def read_expected(text: str) -> dict[str, Expected]:
    """Case → what has to be said about it."""
    return {
        case: Expected(code=wanted["code"], holds=tuple(wanted.get("holds", ())), also=tuple(wanted.get("also", ())))
        for case, wanted in tomllib.loads(text).items()
    }


def read_findings(document: Mapping[str, Any]) -> list[Said]:
    """What `antifreeze doctor --format json` printed."""
    return [
        Said(finding["code"], finding["confidence"]["level"], "\n".join(_parts(finding)))
        for finding in document["findings"]
    ]


def _parts(finding: Mapping[str, Any]) -> Iterator[str]:
    if finding.get("file"):
        yield f"{finding['file']}:{finding.get('line')}"
    if finding.get("sample") is not None:
        yield f"sample {finding['sample']}"
    yield from _texts(finding)


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping):
        for each in part.values():
            yield from _texts(each)
    elif isinstance(part, Sequence):
        for each in part:
            yield from _texts(each)


def judge(said: Sequence[Said], expected: Expected, *, seconds: float) -> Verdict:
    """Hold a diagnosis against what is true of the case."""
    faults = []
    named = [finding for finding in said if finding.code == expected.code]
    if not named:
        faults.append(f"{expected.code} is missing")
    else:
        lacking = min((_lacking(finding, expected) for finding in named), key=len)
        faults += [f"{expected.code} does not say {text!r}" for text in lacking]
    faults += [f"{finding.code} is rated {finding.weight}" for finding in alarms(said, {expected.code, *expected.also})]
    if seconds > TIME_LIMIT_S:
        faults.append(f"took {seconds:.0f} s")
    return Verdict(tuple(faults))


def _lacking(finding: Said, expected: Expected) -> list[str]:
    return [text for text in expected.holds if text not in finding.text]


def alarms(said: Iterable[Said], known: Iterable[str] = ()) -> list[Said]:
    """Findings that would be believed and are about something else than what is known to be true."""
    true = set(known)
    return [
        finding
        for finding in said
        if finding.is_loud and finding.code not in true and not finding.code.startswith(OF_THE_MACHINE)
    ]
