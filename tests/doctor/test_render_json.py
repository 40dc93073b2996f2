"""The report for programs: its fields are a promise."""

import json

from antifreeze.doctor.facts import Facts
from antifreeze.doctor.render.as_json import as_json
from doctor.frozen import DOUBT, FROZEN, POOL


def test_a_report_has_these_fields_and_no_others() -> None:
    report = json.loads(as_json(FROZEN, [POOL, DOUBT]))
    assert list(report) == ["schema", "patient", "areas", "findings", "trials", "verdicts", "advice", "counts"]
    assert report["schema"] == 1
    assert report["patient"] == {"kind": "script", "command": "project/train.py --epochs 3", "was_run": True}
    assert report["counts"] == {"certain": 1, "likely": 0, "possible": 1}
    assert [advice["loader"] for advice in report["advice"]] == [0]
    text = "train.py:41, num_workers=2 freezes — AF101 fork-after-threads"
    assert {"name": "loaders", "state": "bad", "text": text} in report["areas"]


def test_a_finding_has_these_fields_and_no_others() -> None:
    (finding,) = json.loads(as_json(FROZEN, [POOL]))["findings"]
    assert finding == {
        "code": "AF101",
        "name": "fork-after-threads",
        "severity": "error",
        "confidence": {"level": "certain", "evidence": ["reproduced: no batch for 12 s", "futex wait"]},
        "file": "project/data.py",
        "line": 88,
        "text": "return self.pool.map(read, parts)",
        "loader": 0,
        "worker": {"id": 1, "pid": 4243},
        "sample": "2",
        "what": "worker 1 never returned sample 2",
        "why": "data.py:12 makes a ThreadPoolExecutor in the trainer; its threads do not exist in a forked worker",
        "fix": ["antifreeze run project/train.py --epochs 3", "make the pool on first use: {'pool': None}"],
        "rivals": [],
        "decide": None,
        "explain": "antifreeze explain AF101",
    }


def test_of_a_machine_there_is_no_program() -> None:
    assert json.loads(as_json(Facts(machine=FROZEN.machine), []))["patient"] == {"kind": "machine"}
