"""All checks over all facts → findings, the surest first, without those that another one explains. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from antifreeze.doctor.checks import CHECKS
from antifreeze.doctor.facts import Facts, Outcome
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.precedence import explains


def diagnose(facts: Facts, *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Finding]:
    """What the target has; `select` and `ignore` are codes or beginnings of codes (`AF3`)."""
    found = _once([finding for check in CHECKS for finding in check.examine(facts)])
    told = [
        finding
        for finding in found
        if not any(explains(other, finding) for other in found) and not _is_hushed(finding, facts)
    ]
    wanted = [
        finding
        for finding in told
        if (not select or finding.code.startswith(tuple(select))) and not finding.code.startswith(tuple(ignore))
    ]
    wanted = [replace(finding, fix=_tried(finding, facts)) for finding in wanted]
    return sorted(wanted, key=lambda finding: (finding.weight, finding.loader or 0, finding.code))


def _once(found: Iterable[Finding]) -> list[Finding]:
    """One finding per code, loader and line: the surest."""
    best: dict[tuple[str, int | None, str], Finding] = {}
    for finding in found:
        key = (finding.code, finding.loader, str(finding.where))
        if key not in best or finding.weight < best[key].weight:
            best[key] = finding
    return list(best.values())


def _tried(finding: Finding, facts: Facts) -> tuple[str, ...]:
    """Its fixes, without our engine where that was tried and failed; last of all where it hung, for it may take longer."""
    ours = [trial.outcome for trial in facts.trials if trial.engine == "antifreeze" and trial.loader == finding.loader]
    run = [fix for fix in finding.fix if fix.split("   ")[0] == "antifreeze run {script}"]
    others = [fix for fix in finding.fix if fix not in run]
    if not others or not ours or not all(each in (Outcome.ERROR, Outcome.CRASH, Outcome.HANG) for each in ours):
        return finding.fix
    return (*others, *(run if Outcome.HANG in ours else ()))


def _is_hushed(finding: Finding, facts: Facts) -> bool:
    """Whether a comment in the line asks us not to tell it."""
    if facts.source is None or finding.where is None:
        return False
    codes = facts.source.ignored.get(str(finding.where), ())
    return "*" in codes or finding.code in codes
