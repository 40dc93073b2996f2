"""How a diagnosis of a case of the zoo is judged: the rule of `zoo_expected.toml`, for facts by hand and for real runs."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from antifreeze.doctor.finding import Finding, Weight

EXPECTED: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    (Path(__file__).resolve().parents[1] / "zoo_expected.toml").read_text(encoding="utf-8")
)


def text_of(finding: Finding) -> str:
    """Everything that a finding says."""
    parts = [finding.what, str(finding.where), finding.why, *finding.fix, *finding.evidence]
    return "\n".join(parts)


def objections(case: str, findings: Iterable[Finding]) -> list[str]:
    """Why the diagnosis is a miss; nothing: it is right."""
    expected = EXPECTED[case]
    found = list(findings)
    named = [finding for finding in found if finding.code == expected["code"]]
    if not named:
        return [f"no {expected['code']}, but {[finding.code for finding in found]}"]
    missing = [text for text in expected.get("holds", ()) if not any(text in text_of(finding) for finding in named)]
    allowed = {expected["code"], *expected.get("also", ())}
    wrong = [
        f"{finding.code} is {finding.weight.word}: {finding.what}"
        for finding in found
        if finding.weight is not Weight.POSSIBLE
        and finding.code not in allowed
        and not (finding.code.startswith("AF9"))
    ]
    return [f"{text!r} is not in {expected['code']}" for text in missing] + wrong
