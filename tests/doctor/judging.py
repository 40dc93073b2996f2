"""The diagnosis of a case of the zoo, judged by the rule that scores real runs (`zoo/judge.py`), from its JSON report."""

import json
from pathlib import Path

from zoo.judge import judge, read_expected, read_findings

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.render.as_json import as_json

EXPECTED = read_expected((Path(__file__).resolve().parents[1] / "zoo_expected.toml").read_text(encoding="utf-8"))


def faults(case: str, facts: Facts) -> tuple[str, ...]:
    """What is to be held against it; nothing: it is right."""
    said = read_findings(json.loads(as_json(facts, diagnose(facts))))
    return judge(said, EXPECTED[case], seconds=0).faults
