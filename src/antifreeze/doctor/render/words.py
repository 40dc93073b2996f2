"""How things are called in all forms: sizes, the target, how a trial went."""

from __future__ import annotations

import posixpath
import re
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
    """Whether there is a target beside the machine."""
    return bool(facts.source or facts.run or facts.loaders or facts.processes)


def never_loaded(facts: Facts) -> bool:
    """Whether the script was run, and failed before it came to a batch."""
    return facts.run is not None and not facts.loaders and facts.run.outcome is not Outcome.OK


def command_of(facts: Facts) -> str:
    """The target, as its user has typed it."""
    if facts.run is not None and facts.run.command:
        return facts.run.command
    if facts.source is not None:
        return facts.source.script
    return next(filter(None, (_script_in(each.command) for each in facts.processes)), ANY_SCRIPT)


def script_of(facts: Facts) -> str:
    """The script and its words, as they may follow `antifreeze run`; of a loader in a module, any."""
    command = command_of(facts)
    return ANY_SCRIPT if re.fullmatch(r"[\w.]+:[\w.]+", command) else command


def _script_in(command: str) -> str:
    """What a command line of Python's runs, without the interpreter and its options; nothing if it is another's."""
    words = command.split()
    if not words or not posixpath.basename(words[0]).startswith("python"):
        return ""
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2 if rest[0] in ("-X", "-W") else 1 :]
    return " ".join(rest)


def path_of(place: Place, facts: Facts) -> str:
    """The file from where the command was given; places of a script's count from its directory."""
    source = facts.source
    if source is not None and source.files:
        return source.script.removesuffix(source.files[0]) + place.file
    script = command_of(facts).partition(" ")[0]
    return posixpath.join(posixpath.dirname(script), place.file)


def filled(text: str, facts: Facts) -> str:
    """With the target's script in the place of `{script}`; other braces are the text's own."""
    return text.replace("{script}", script_of(facts))


def fixes(finding: Finding, facts: Facts) -> list[str]:
    return [filled(fix, facts) for fix in finding.fix]


def sureness(findings: Iterable[Finding]) -> dict[str, int]:
    """How many of each weight."""
    counts = {"certain": 0, "likely": 0, "possible": 0}
    for finding in findings:
        counts[finding.weight.word] += 1
    return counts
