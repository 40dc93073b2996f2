"""`make matrix`: what it makes of results, and that the page and the table of known releases follow from its rows."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matrix.__main__ import KNOWN, PAGE, read_rows
from matrix.environment import Environment, clean_variables, constraints_with, run_within
from matrix.page import known_releases, known_source, page
from matrix.releases import RELEASES, in_order
from matrix.rows import (
    Ratio,
    SelfCheckResult,
    SuiteResult,
    VersionRow,
    as_json,
    from_json,
    last_line,
    ratios_from_bench,
    suite_from_junit,
)

from antifreeze.torch_side.known import KNOWN_TORCH

ROW = VersionRow(
    torch="2.9.1",
    date="2026-11-17",
    commit="abc",
    python="3.11.7",
    load=0.5,
    cores=2,
    is_whole=True,
    self_check=SelfCheckResult("2.9.1+cu128", None, 0.61),
    drop_in=SuiteResult(1000, 3),
    faults=SuiteResult(200, 0),
    ratios={"ints": Ratio(9.0, 10.0, 11.0)},
)
FAILED = replace(ROW, torch="2.10.0", faults=SuiteResult(199, 0, {"tests.processes.test_x::test_y": "it | broke"}))
NOT_INSTALLED = VersionRow(
    "2.8.0", "2026-11-17", "abc", "3.11.7", 0.5, 2, True, problem="could not be installed: pip …"
)

JUNIT = """<testsuites><testsuite>
<testcase classname="t.A" name="test_a"/>
<testcase classname="t.A" name="test_b"><failure message="ValueError: x&#10;second line">text</failure></testcase>
<testcase classname="t.A" name="test_c"><skipped message="no GPU"/></testcase>
<testcase classname="t.A" name="test_d"/>
<testcase classname="t.A" name="test_d"><error message="left behind by this test"/></testcase>
</testsuite></testsuites>"""


def test_a_suite_is_read_from_what_pytest_writes() -> None:
    suite = suite_from_junit(JUNIT)
    assert suite == SuiteResult(1, 1, {"t.A::test_b": "ValueError: x", "t.A::test_d": "left behind by this test"})
    assert not suite.has_passed


@pytest.mark.parametrize("suite", [SuiteResult(), SuiteResult(5, problem="did not end within 3 s"), SuiteResult(0, 9)])
def test_a_suite_that_did_not_run_has_not_passed(suite: SuiteResult) -> None:
    assert not suite.has_passed


def test_ratios_are_read_from_what_the_benchmarks_write() -> None:
    ratio = {"low": 1.004, "median": 2.0, "high": 3.0}
    ours = {"antifreeze": {"ratio": ratio}, "torch": {"ratio": None}}
    results = [
        {"workload": "ints", "figure": "rate", "ours": "antifreeze", "seen": ours},
        {"workload": "failed", "figure": "rate", "ours": "antifreeze", "seen": {"torch": {"ratio": None}}},
    ]
    assert ratios_from_bench({"results": results}) == {"ints": Ratio(1.0, 2.0, 3.0)}


@pytest.mark.parametrize("row", [ROW, FAILED, NOT_INSTALLED], ids=["passed", "failed", "not installed"])
def test_a_row_is_read_as_it_was_written(row: VersionRow) -> None:
    assert from_json(as_json(row)) == row


def test_the_page_shows_the_newest_release_first_and_what_was_not_run() -> None:
    lines = page([ROW, FAILED, NOT_INSTALLED], ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| 2.")]
    assert [cells[0] for cells in rows] == ["| 2.11.0", "| 2.9.1+cu128", "| 2.9.1+cu128", "| 2.8.0"]
    assert rows[0][1] == "not run"
    assert rows[1][3] == "199, **1 failed**"
    assert rows[2][1:5] == ["passed, 0.6 s", "1000, 3 skipped", "200", "10.0 × [9.0, 11.0]"]
    assert rows[3][1].startswith("could not be installed")
    assert "- 2.10.0: `tests.processes.test_x::test_y`: `it | broke`" in lines
    assert len({line.count(" | ") for line in lines if line.startswith("| ")}) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"self_check": None},
        {"self_check": SelfCheckResult("", "it stumbles", 0.0)},
        {"faults": None},
        {"drop_in": SuiteResult(9, 0, {"test": "text"})},
    ],
    ids=str,
)
def test_only_a_release_that_passed_everything_needs_no_trial(changed: dict[str, object]) -> None:
    assert known_releases([ROW, replace(ROW, torch="2.10.0")]) == ["2.9.1", "2.10.0"]
    assert known_releases([replace(ROW, **changed)]) == []


@pytest.mark.parametrize("releases", [[], ["2.9.1"], ["2.9.1", "2.10.0"]])
def test_the_table_of_known_releases_is_written(releases: list[str]) -> None:
    found: dict[str, object] = {}
    source = known_source("one = 1\nKNOWN_TORCH = frozenset({'1'})\ntwo = 2\n", releases)
    exec(source, found)
    assert found["KNOWN_TORCH"] == set(releases) and (found["one"], found["two"]) == (1, 2)
    assert known_source(source, ["3"]) == 'one = 1\nKNOWN_TORCH = frozenset({"3"})\ntwo = 2\n'
    with pytest.raises(ValueError):
        known_source("one = 1\n", releases)


def test_the_page_and_the_table_are_what_the_rows_say() -> None:
    """Else: `make matrix MATRIX=--page`."""
    rows = read_rows()
    assert PAGE.read_text() == page(rows, RELEASES)
    assert known_source(KNOWN.read_text(), known_releases(rows)) == KNOWN.read_text()
    assert set(known_releases(rows)) == KNOWN_TORCH


def test_releases_stand_in_order_and_there_is_one_of_each_minor() -> None:
    assert list(RELEASES) == sorted(RELEASES, key=in_order)
    assert [in_order(release)[:2] for release in RELEASES] == [(2, minor) for minor in range(6, 6 + len(RELEASES))]


def test_last_words_are_those_of_the_last_line_that_has_any() -> None:
    assert last_line("one\ntwo\n\n  \n") == "two"
    assert last_line("") == "no output"


def test_an_environment_has_our_constraints_but_for_what_its_torch_decides() -> None:
    ours = "torch==2.13.0\ntorchdata==0.11.0\nsetuptools==84.2.1\n"
    assert constraints_with("2.12.1", ours) == "torch==2.12.1\ntorchdata==0.11.0\n"


def test_a_program_is_killed_at_its_deadline(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        assert run_within(0.5, command, environment=clean_variables(), output=log.fileno()) is None
        command = [sys.executable, "-c", "raise SystemExit(3)"]
        assert run_within(60, command, environment=clean_variables(), output=log.fileno()) == 3


def test_a_self_check_finds_no_result_of_an_earlier_one(tmp_path: Path) -> None:
    environment = Environment(tmp_path, tmp_path / "log")
    environment.cache.mkdir()
    (environment.cache / "result").write_text("kept")
    environment.forget()
    assert not environment.cache.exists()
    environment.forget()
