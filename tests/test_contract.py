"""`make contract`, `make contract-stateful`: what they make of two runs of a suite. The suites themselves take minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract.__main__ import outcomes, report
from contract.compare import compare, listed
from contract.suites import ROOT, SUITES, Suite

STOCK = {"t.A::test_x": "passed", "t.B::test_x": "passed", "t.B::test_y": "passed", "t.B::test_z": "skipped"}


def test_only_what_passes_on_stock_is_asked_of_us() -> None:
    seen = compare(STOCK, {"t.A::test_x": "passed", "t.B::test_x": "failed"})
    assert seen.all == 3 and seen.kept == 1
    assert seen.broken == ["t.B::test_x", "t.B::test_y"]  # one was not even run


@pytest.mark.parametrize(("entry", "unlisted"), [("test_x", []), ("B::test_x", []), ("A::test_x", ["t.B::test_x"])])
def test_a_listed_test_may_fail_and_another_may_not(entry: str, unlisted: list[str]) -> None:
    ours = {**STOCK, "t.B::test_x": "failed"}
    assert compare(STOCK, ours, listed(f"| test | why |\n|---|---|\n| `{entry}` | because |\n")).unlisted == unlisted


def test_a_listed_test_that_passes_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(SUITES["torch"], compare(STOCK, STOCK)) == 0
    assert report(SUITES["torch"], compare(STOCK, STOCK, ["B::test_x"])) == 1
    assert "passes, and is listed  t.B::test_x" in capsys.readouterr().out


def test_too_many_listed_ones_are_an_error_too() -> None:
    assert report(SUITES["torchdata"], compare(STOCK, {}, ["test_x", "test_y"])) == 1


def test_outcomes_are_read_from_what_pytest_writes() -> None:
    junit = (
        '<testsuites><testsuite><testcase classname="t.A" name="test_x"/><testcase classname="t.A" name="test_y">'
        '<failure message="m">text</failure></testcase><testcase classname="t.A" name="test_z"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert outcomes(junit) == {"t.A::test_x": "passed", "t.A::test_y": "failed", "t.A::test_z": "skipped"}


def test_our_class_is_in_place_in_every_process_of_a_suite() -> None:
    path = os.pathsep.join(str(folder) for folder in (ROOT / "contract" / "boot", ROOT, ROOT / "src"))
    script = "from torch.utils.data import DataLoader as a, dataloader; print(a.__module__, dataloader.DataLoader is a)"
    environment = {**os.environ, "CONTRACT": "torch", "PYTHONPATH": path}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert ended.stdout.split() == ["antifreeze.loader", "True"], ended.stderr


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_reasons_stand_on_a_page(suite: Suite) -> None:
    assert suite.reasons.is_file()
