"""The demo says only what it has seen, and fails when it is not so."""

import json
import sys
from pathlib import Path

import pytest

from antifreeze.cli import demo
from antifreeze.cli.main import main

ARTICLE = {"samples": 100, "batches": 10, "checksum": "abc"}
RATES = [
    {"workload": "small", "checksum": "s", "batches_per_s": 10.0},
    {"workload": "large", "checksum": "l", "batches_per_s": 20.0},
]

STAND_IN = """
import json, sys
script, *words = sys.argv[1:]
answers = json.loads({answers!r})
answer = answers["throughput" if "throughput" in script else words[0]]
if answer == "hang":
    import time
    time.sleep(60)
for each in answer if isinstance(answer, list) else sys.exit(answer):
    print(json.dumps(each))
"""
FAST_OURS = [{**rate, "batches_per_s": 45.0} for rate in RATES]
TORCH = {"spawn": "PicklingError: a lambda", "fork": [ARTICLE], "throughput": RATES}
OURS = {"spawn": [ARTICLE], "throughput": FAST_OURS}
DIAGNOSIS = "AF101 fork-after-threads      certain (reproduced)\n  thread_pool.py:30   return …"
SAY = "import sys; print({text!r}); sys.exit({status})"


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(demo, "PATIENCE_WITH_TORCH_S", 1.0)


def show(
    monkeypatch: pytest.MonkeyPatch,
    *,
    torch: dict[str, object] = TORCH,
    ours: dict[str, object] = OURS,
    diagnosis: str = DIAGNOSIS,
    status: int = 1,
) -> int:
    """The demo with programs in the place of the engines, and of the doctor, that give these answers."""
    doctor = SAY.format(text=diagnosis, status=status)
    monkeypatch.setattr(demo, "DOCTOR", demo.Engine((sys.executable, "-c", doctor), mode="0"))
    for name, answers in (("TORCH", torch), ("OURS", ours)):
        program = STAND_IN.format(answers=json.dumps(answers))
        monkeypatch.setattr(demo, name, demo.Engine((sys.executable, "-c", program), mode="0"))
    return main(["demo"])


def test_when_all_holds_it_ends_well_and_its_last_line_is_the_next_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(monkeypatch) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[-1] == "now yours: antifreeze run train.py"
    for text in ("PicklingError: a lambda", "4.5×", "identical: every sample", DIAGNOSIS.splitlines()[0]):
        assert text in said.out


def test_a_torch_that_hangs_is_stopped_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(monkeypatch, torch={**TORCH, "spawn": "hang"}, ours=OURS) == 0
    assert "not a batch within 1 s: stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("torch", "ours", "reason"),
    [
        ({**TORCH, "spawn": [ARTICLE]}, OURS, "torch was expected to fail"),
        (TORCH, {**OURS, "spawn": [{**ARTICLE, "checksum": "xyz"}]}, "xyz"),
        (TORCH, {**OURS, "spawn": "Fallback: no engine"}, "Fallback: no engine"),
        ({**TORCH, "fork": [{**ARTICLE, "samples": 99}]}, {**OURS, "spawn": [{**ARTICLE, "samples": 99}]}, "99"),
        (TORCH, {**OURS, "throughput": [{**FAST_OURS[0], "checksum": "?"}, FAST_OURS[1]]}, "the batches differ"),
        (TORCH, {**OURS, "throughput": "boom"}, "boom"),
    ],
)
def test_a_claim_that_does_not_hold_is_named_and_is_status_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    torch: dict[str, object],
    ours: dict[str, object],
    reason: str,
) -> None:
    assert show(monkeypatch, torch=torch, ours=ours) == 1
    said = capsys.readouterr().out
    assert any("✗" in line and reason in line for line in said.splitlines())
    assert said.splitlines()[-1] == "this demo failed: 1 of its claims did not hold, see ✗"


@pytest.mark.parametrize(
    ("diagnosis", "status"),
    [("nothing found", 0), (DIAGNOSIS.replace("AF101", "AF103"), 1), (DIAGNOSIS.replace("certain", "likely"), 1)],
)
def test_a_doctor_that_does_not_name_the_cause_is_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], diagnosis: str, status: int
) -> None:
    assert show(monkeypatch, diagnosis=diagnosis, status=status) == 1
    assert "✗ the doctor was expected to name AF101" in capsys.readouterr().out


def test_the_articles_lines_are_as_they_were_printed() -> None:
    block = Path(__file__).parents[2] / "examples" / "articles" / "blocks" / "runtime_errors_2_pickling.txt"
    assert block.read_text().strip() in demo.ARTICLE.read_text()
