"""`make zoo`: what is pure about it. (The zoo itself is not part of this repository.)"""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zoo.judge import Expected, Said, alarms, judge, read_expected, read_findings

from antifreeze.codes import DISEASES

ROOT = Path(__file__).resolve().parents[1]
LOCK = Expected(code="AF107", holds=("dataset.lock", "sample 9"), also=("AF311",))
NAMED = Said("AF107", "possible", "who holds dataset.lock is dead\nsample 9")


def test_a_case_is_right_if_its_disease_is_named_with_all_that_belongs_to_it() -> None:
    assert judge([NAMED], LOCK, seconds=20).is_right


def test_the_weight_of_the_right_finding_does_not_matter() -> None:
    for weight in ("certain", "likely", "possible"):
        assert judge([Said("AF107", weight, NAMED.text)], LOCK, seconds=20).is_right


def test_a_case_without_its_finding_is_a_miss() -> None:
    assert judge([], LOCK, seconds=20).faults == ("AF107 is missing",)


def test_a_finding_that_does_not_name_the_cause_is_a_miss_and_the_verdict_says_what_it_lacks() -> None:
    vague = Said("AF107", "certain", "somebody holds dataset.lock")
    assert judge([vague], LOCK, seconds=20).faults == ("AF107 does not say 'sample 9'",)


def test_all_texts_must_stand_in_one_finding() -> None:
    halves = [Said("AF107", "likely", "dataset.lock"), Said("AF107", "likely", "sample 9")]
    assert not judge(halves, LOCK, seconds=20).is_right
    assert judge([*halves, NAMED], LOCK, seconds=20).is_right


@pytest.mark.parametrize("weight", ["certain", "likely"])
def test_another_disease_that_would_be_believed_makes_it_a_miss(weight: str) -> None:
    wrong = Said("AF204", weight, "…")
    assert judge([NAMED, wrong], LOCK, seconds=20).faults == (f"AF204 is rated {weight}",)


def test_another_disease_is_no_miss_if_it_is_possible_or_true_as_well_or_about_the_machine() -> None:
    others = [Said("AF204", "possible", "…"), Said("AF311", "certain", "…"), Said("AF902", "certain", "…")]
    assert judge([NAMED, *others], LOCK, seconds=20).is_right


def test_a_finding_about_the_machine_can_be_the_one_that_is_expected() -> None:
    twice = Expected(code="AF905", holds=("train.py:31",))
    assert judge([Said("AF905", "certain", "train.py:31")], twice, seconds=20).is_right
    assert judge([], twice, seconds=20).faults == ("AF905 is missing",)


def test_a_right_diagnosis_that_takes_more_than_a_minute_is_a_miss() -> None:
    assert judge([NAMED], LOCK, seconds=61).faults == ("took 61 s",)


def test_a_healthy_script_has_an_alarm_for_every_finding_that_would_be_believed() -> None:
    said = [Said("AF101", "likely", ""), Said("AF110", "possible", ""), Said("AF901", "certain", "")]
    assert [finding.code for finding in alarms(said)] == ["AF101"]


def test_the_texts_of_a_finding_are_all_its_parts_and_its_place_and_sample() -> None:
    finding: dict[str, Any] = {
        "code": "AF313",
        "name": "poison-sample",
        "confidence": {"level": "certain", "evidence": ["SIGSEGV twice"]},
        "file": "train.py",
        "line": 24,
        "sample": "13",
        "what": "a sample kills every worker",
        "why": "ctypes at address 0",
        "fix": ["leave it out", "antifreeze run --on-error skip train.py"],
    }
    (said,) = read_findings({"schema": 1, "findings": [finding]})
    assert (said.code, said.weight) == ("AF313", "certain")
    for text in ("train.py:24", "sample 13", "SIGSEGV twice", "address 0", "--on-error skip"):
        assert text in said.text


def test_what_is_expected_of_the_zoo_names_diseases_that_exist() -> None:
    expected = read_expected((ROOT / "tests" / "zoo_expected.toml").read_text())
    assert len(expected) >= 57
    for case, wanted in expected.items():
        assert {wanted.code, *wanted.also} <= set(DISEASES), case
        assert wanted.holds, f"{case}: any finding with this code would do"
