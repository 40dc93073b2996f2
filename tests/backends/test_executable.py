"""Which programs can be started again as a Python interpreter."""

import sys
from multiprocessing import spawn
from pathlib import Path

import pytest

from antifreeze.engine.backends.executable import why_no_fresh_process


def test_this_program_can() -> None:
    assert why_no_fresh_process() is None


def test_a_frozen_program_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "frozen" in str(why_no_fresh_process())


@pytest.mark.parametrize("executable", ["/opt/blender/blender", "", None])
def test_a_program_with_python_inside_cannot(monkeypatch: pytest.MonkeyPatch, executable: str | None) -> None:
    monkeypatch.setattr(spawn, "_python_exe", executable)
    assert why_no_fresh_process() is not None


def test_a_link_to_an_interpreter_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link = tmp_path / "trainer"
    link.symlink_to(sys.executable)
    monkeypatch.setattr(spawn, "_python_exe", str(link))
    assert why_no_fresh_process() is None
