"""How things are called in all forms: sizes, the patient, how a trial went."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from antifreeze.doctor.facts import Facts, Outcome, Place
from antifreeze.doctor.finding import Finding

ANY_SCRIPT = "train.py"
OUTCOMES = {
    Outcome.OK: "works",
    Outcome.HANG: "freezes",
    Outcome.ERROR: "fails",
    Outcome.CRASH: "crashes",
    Outcome.SHORT: "loses samples",
    Outcome.SLOW: "is slow",
}
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """Bytes, in the unit that leaves a number of at most three digits."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {UNITS[unit]}" if value >= 10 or not unit else f"{value:.2g} {UNITS[unit]}"


def count_of(number: int, thing: str, *, many: str = "") -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {many or thing + 's'}"


def has_program(facts: Facts) -> bool:
    """Whether there is a patient beside the machine."""
    return bool(facts.source or facts.run or facts.loaders or facts.processes)


def command_of(facts: Facts) -> str:
    """The script and its words, as its user would type them."""
    if facts.run is not None and facts.run.command:
        return facts.run.command
    if facts.processes:
        return next(filter(None, (_script_in(each.command) for each in facts.processes)), ANY_SCRIPT)
    return facts.source.script if facts.source is not None else ANY_SCRIPT


def _script_in(command: str) -> str:
    """The script and its words, of a command line that names an interpreter and its options first."""
    words = command.split()
    first = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    return "" if first is None else " ".join(words[first:])


def path_of(place: Place, facts: Facts) -> str:
    """The file from where the command was given; a `Place` counts from the directory of the script."""
    script = facts.source.script if facts.source is not None else command_of(facts).partition(" ")[0]
    return posixpath.join(posixpath.dirname(script), place.file)


def filled(text: str, facts: Facts) -> str:
    """With the patient's script in the place of `{script}`; other braces are the text's own."""
    return text.replace("{script}", command_of(facts))


def fixes(finding: Finding, facts: Facts) -> list[str]:
    return [filled(fix, facts) for fix in finding.fix]


def sureness(findings: Iterable[Finding]) -> dict[str, int]:
    """How many of each weight."""
    counts = {"certain": 0, "likely": 0, "possible": 0}
    for finding in findings:
        counts[finding.weight.word] += 1
    return counts
