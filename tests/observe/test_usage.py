"""Which loaders run on our engine, on request."""

import json
from pathlib import Path

import pytest

from antifreeze.observe import usage


def test_a_line_says_what_carries_a_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTIFREEZE_USAGE", str(tmp_path / "usage"))
    usage.record(engine="antifreeze", stem="grown", reason=None)
    assert json.loads((tmp_path / "usage").read_text())["stem"] == "grown"


def test_a_file_that_cannot_be_written_is_told_of_once_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIFREEZE_USAGE", str(tmp_path / "missing" / "usage"))
    for _ in range(2):
        usage.record(engine="antifreeze", stem="grown", reason=None)
    assert capsys.readouterr().err.count("ANTIFREEZE_USAGE cannot be written") == 1
