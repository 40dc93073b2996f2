"""Findings as annotations of GitHub Actions: they appear beside the lines of a pull request. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from antifreeze.codes import named
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.render.words import fixes, path_of

LEVELS = {Weight.CERTAIN: "error", Weight.LIKELY: "warning", Weight.POSSIBLE: "notice"}


def as_github(facts: Facts, findings: Sequence[Finding]) -> str:
    return "\n".join(_annotation(finding, facts) for finding in findings)


def _annotation(finding: Finding, facts: Facts) -> str:
    properties = {"title": named(finding.code)}
    if finding.where is not None:
        properties = {"file": path_of(finding.where, facts), "line": str(finding.where.line), **properties}
    listed = ",".join(f"{name}={_escaped(value, also=':,')}" for name, value in properties.items())
    return f"::{LEVELS[finding.weight]} {listed}::{_escaped(_message(finding, facts))}"


def _message(finding: Finding, facts: Facts) -> str:
    evidence = f" ({', '.join(finding.evidence)})" if finding.evidence else ""
    return "\n".join(
        [
            f"{finding.what}.",
            f"why: {finding.why}",
            *(f"fix: {fix}" for fix in fixes(finding, facts)),
            f"{finding.weight.word}{evidence}; antifreeze explain {finding.code}",
        ]
    )


def _escaped(text: str, *, also: str = "") -> str:
    """As its runner reads them: `%` first, or what was escaped is escaped again."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
