"""`make zoo`: what is pure about it. (The zoo itself is not part of this repository.)"""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos.report import Facts
from zoo import page
from zoo.cases import BY_DESIGN, FLAGS, Zoo, last_words
from zoo.judge import Expected, Said, alarms, judge, read_expected, read_findings
from zoo.results import Diagnosis, Ending, Report, Row, from_json, to_json

from antifreeze.codes import NAMES

ROOT = Path(__file__).resolve().parents[1]
LOCK = Expected(code="AF107", holds=("dataset.lock", "sample 9"), also=("AF311",))
THEN = Facts("2026-11-15", "a processor", 2, 24, "6.8", "3.11.7", "2.13.0+cpu", "4a4501f", 0.4)
WELL = Ending("ok", 3.2, "", 0)
NAMED = Said("AF107", "possible", "who holds dataset.lock is dead\nsample 9")


def test_a_case_is_right_if_its_problem_is_named_with_all_that_belongs_to_it() -> None:
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
def test_another_problem_that_would_be_believed_makes_it_a_miss(weight: str) -> None:
    wrong = Said("AF204", weight, "…")
    assert judge([NAMED, wrong], LOCK, seconds=20).faults == (f"AF204 is rated {weight}",)


def test_another_problem_is_no_miss_if_it_is_possible_or_true_as_well_or_about_the_machine() -> None:
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


def test_what_is_expected_of_the_zoo_names_problems_that_exist() -> None:
    expected = read_expected((ROOT / "tests" / "zoo_expected.toml").read_text())
    assert len(expected) >= 57
    for case, wanted in expected.items():
        assert {wanted.code, *wanted.also} <= set(NAMES), case
        assert wanted.holds, f"{case}: any finding with this code would do"


def row(**columns: Any) -> Row:
    facts: dict[str, Any] = {
        "id": "061_mp_lock",
        "kind": "fork-lock",
        "title": "a lock | whose holder is <dead>",
        "sources": ("https://github.com/pytorch/pytorch/issues/41064", "https://discuss.pytorch.org/t/1"),
        "is_survivable": True,
        "expected": "AF107",
        "flags": "",
    }
    return Row(**(facts | columns))


def diagnosis(*faults: str) -> Diagnosis:
    return Diagnosis(12.0, ({"code": "AF107", "weight": "certain", "text": "dataset.lock"},), faults, 0)


def test_what_was_seen_comes_back_from_json_as_it_was() -> None:
    report = Report(
        (row(torch=Ending("hang", 20.0, "…", 2), run=WELL, doctor=diagnosis("AF107 is missing")),), {"run": THEN}
    )
    assert from_json(to_json(report)) == report


def test_columns_that_were_not_run_come_from_an_earlier_report_with_its_circumstances() -> None:
    earlier = Report((row(torch=Ending("hang", 20.0, "", 0), run=WELL),), {"torch": THEN, "run": THEN})
    now = Report((row(doctor=diagnosis()), row(id="999_new")), {"doctor": THEN})
    first, new = now.with_columns_of(earlier).rows
    assert (first.torch, first.run, first.doctor) == (earlier.rows[0].torch, WELL, diagnosis())
    assert (new.torch, new.run) == (None, None)
    assert set(now.with_columns_of(earlier).made) == {"torch", "run", "doctor"}


def test_a_column_that_was_run_again_is_not_taken_from_an_earlier_report() -> None:
    earlier = Report((row(doctor=diagnosis("AF107 is missing")),), {"doctor": THEN})
    now = Report((row(doctor=diagnosis()),), {"doctor": THEN})
    assert now.with_columns_of(earlier) == now


def test_a_case_is_survived_if_it_ends_well_or_cannot_or_ends_as_it_was_designed_to() -> None:
    failed = Ending("error", 3.2, "…", 0)
    assert row(run=WELL).is_survived
    assert row(run=failed, is_survivable=False).is_survived
    assert row(run=Ending("error", 3.2, "…", 0, is_by_design=True)).is_survived
    assert not row(run=failed).is_survived


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        (
            "Traceback …\n  File …\nKeyError: 'boxes'\nantifreeze: worker 0 (pid 1), batch 2, sample 5",
            "KeyError: 'boxes'",
        ),
        ("antifreeze.errors.WorkerCrashed: worker 1 ended\n  where  batch 3\n  try    something", None),
        ("StopIteration", "StopIteration"),
        ("Killed by the night\n", "Killed by the night"),
        ("", ""),
    ],
)
def test_the_last_words_are_the_error_and_not_the_advice_below_it(stderr: str, words: str | None) -> None:
    assert last_words(stderr) == (words if words is not None else stderr.splitlines()[0])


def test_the_share_is_of_the_cases_that_were_diagnosed() -> None:
    report = Report((row(doctor=diagnosis()), row(doctor=diagnosis("took 61 s")), row(run=WELL)))
    assert report.share_right == 0.5
    assert "right in 1 of 2 (50%)" in page.summary(report)


def test_the_page_shows_each_case_with_its_reports_outcomes_and_diagnosis() -> None:
    report = Report(
        (row(torch=Ending("hang", 20.0, "", 0), run=WELL, flags="--fix rng", doctor=diagnosis()),), {"run": THEN}
    )
    text = page.markdown(report)
    assert (
        "| **061** a lock \\| whose holder is &lt;dead> | [pytorch#41064](https://github.com/pytorch/pytorch/issues/41064),"
        " [discuss.pytorch.org](https://discuss.pytorch.org/t/1) | hang | OK, with `--fix rng` | AF107 certain, 12 s |"
    ) in text
    assert "`antifreeze run SCRIPT`: 2026-11-15, antifreeze at 4a4501f" in text


def test_a_miss_stands_out_in_the_page_and_in_the_terminal() -> None:
    missed = row(run=WELL, doctor=diagnosis("AF107 does not say 'sample 9'"))
    assert page.terminal_line(missed).startswith("!!")
    assert "**MISS, 12 s: AF107 does not say 'sample 9'**" in page.markdown(Report((missed,)))


@pytest.mark.skipif(not page.FIGURES.exists(), reason="nothing was seen yet")
def test_the_page_is_what_was_seen() -> None:
    assert page.main(check=True) == 0


@pytest.mark.skipif(not (ROOT.parent / "shared" / "zoo" / "drive.py").exists(), reason="the zoo itself is not here")
def test_every_case_of_the_zoo_has_something_to_be_said_about_it() -> None:
    expected = read_expected((ROOT / "tests" / "zoo_expected.toml").read_text())
    zoo = Zoo(ROOT.parent / "shared" / "zoo", expected)
    assert set(zoo.cases()) == set(expected)
    assert {case[:3] for case in zoo.cases()} >= {*FLAGS, *BY_DESIGN}
    assert zoo.cases(("fork-lock",)) == zoo.cases(("061",)) == zoo.cases(("mp_lock",))
