"""The report for programs; what each field means stands in docs/doctor.md. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from antifreeze.codes import NAMES
from antifreeze.doctor.advice import advise, verdicts
from antifreeze.doctor.facts import Facts, Trial
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.render.areas import Mark, areas_of
from antifreeze.doctor.render.github import LEVELS
from antifreeze.doctor.render.words import command_of, filled, fixes, path_of, sureness
from antifreeze.doctor.speeds import rate

SCHEMA = 1
_STATES = {Mark.GOOD: "good", Mark.NOTE: "note", Mark.BAD: "bad"}


def as_json(facts: Facts, findings: Sequence[Finding]) -> str:
    report = {
        "schema": SCHEMA,
        "patient": _patient(facts),
        "areas": [
            {"name": area.name, "state": _STATES[area.mark], "text": area.text} for area in areas_of(facts, findings)
        ],
        "findings": [_finding(finding, facts) for finding in findings],
        "trials": [_trial(trial) for trial in facts.trials],
        "verdicts": verdicts(facts, findings),
        "advice": [dataclasses.asdict(advice) for advice in advise(facts)],
        "counts": sureness(findings),
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def _patient(facts: Facts) -> dict[str, Any]:
    if facts.processes:
        return {"kind": "process", "pid": facts.processes[0].pid, "command": facts.processes[0].command}
    if facts.run or facts.source:
        return {"kind": "script", "command": command_of(facts), "was_run": facts.run is not None}
    return {"kind": "machine"}


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "loader": trial.loader,
        "engine": trial.engine,
        "workers": trial.workers,
        "is_as_written": trial.is_as_written,
        "outcome": trial.outcome,
        "epochs": trial.epochs,
        "batches": trial.batches,
        "samples": trial.samples,
        "samples_per_s": rate(trial),
        "first_batch_s": trial.first_batch_s,
        "fetch_s": trial.fetch_s,
        "collate_s": trial.collate_s,
        "lock_share": trial.lock_share,
        "shutdown_s": trial.shutdown_s,
        "batch_bytes": trial.batch_bytes,
        "worker_bytes": max((each.last_bytes for each in trial.memory), default=None),
        "slowest": [dataclasses.asdict(each) for each in trial.slowest],
        "non_finite": trial.non_finite,
    }


def _finding(finding: Finding, facts: Facts) -> dict[str, Any]:
    where = finding.where
    return {
        "code": finding.code,
        "name": NAMES[finding.code],
        "severity": LEVELS[finding.weight],
        "confidence": {"level": finding.weight.word, "evidence": finding.evidence},
        "file": path_of(where, facts) if where else None,
        "line": where.line if where else None,
        "text": where.text if where else None,
        "loader": finding.loader,
        "worker": {"id": finding.worker, "pid": finding.pid},
        "sample": finding.sample,
        "what": finding.what,
        "why": finding.why,
        "fix": fixes(finding, facts),
        "rivals": finding.rivals,
        "decide": filled(finding.decide, facts) if finding.decide else None,
        "explain": f"antifreeze explain {finding.code}",
    }
