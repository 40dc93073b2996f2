"""Where files go, who may read them, which are kept, and what happens where none can be written."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from antifreeze.observe import files
from antifreeze.observe.files import MOST_RUNS, run_folder, write_stacks

NO_PID = 1 << 30
"""Larger than any pid can be."""


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def made() -> Path:
    folder = run_folder()
    assert folder is not None
    return folder


def old_run(above: Path, number: int, *, pid: int = NO_PID, age_s: float) -> Path:
    """The folder of an earlier run, with a file in it, last changed so long ago."""
    folder = above / f"0101-{number:06}-{pid}"
    folder.mkdir(parents=True)
    (folder / "stall-1.txt").write_text("stacks")
    moment = time.time() - age_s
    os.utime(folder, (moment, moment))
    return folder


@contextmanager
def forked_children(count: int) -> Iterator[list[Path]]:
    """Children that have made their folders and live until the block ends."""
    said, say = os.pipe()
    wait, go = os.pipe()
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(go)
                os.write(say, f"{run_folder()}\n".encode())
                os.read(wait, 1)  # until the parent closes its end, or is gone
            finally:
                os._exit(0)
        children.append(pid)
    os.close(say)
    os.close(wait)
    try:
        with open(said, encoding="utf-8") as lines:
            yield [Path(next(lines).strip()) for _ in children]
    finally:
        os.close(go)
        for pid in children:
            os.waitpid(pid, 0)


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert made().parent == tmp_path / "state"
    monkeypatch.delenv("ANTIFREEZE_DIR")
    assert made().parent == tmp_path / "xdg" / "antifreeze"


@pytest.mark.parametrize("xdg", [None, "", "relative/path"])
def test_without_variables_it_is_the_state_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xdg: str | None
) -> None:
    monkeypatch.delenv("ANTIFREEZE_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_STATE_HOME", xdg)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert made().parent == tmp_path / ".local" / "state" / "antifreeze"


def test_a_relative_folder_stays_where_it_was_when_the_program_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIFREEZE_DIR", "here")
    monkeypatch.chdir(tmp_path)
    assert made().parent == tmp_path / "here"


def test_the_folder_is_named_after_time_and_process_and_made_once() -> None:
    folder = made()
    assert re.fullmatch(rf"\d{{4}}-\d{{6}}-{os.getpid()}", folder.name)
    assert made() == folder


def test_what_is_made_is_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path / "a" / "b"))
    path = write_stacks("stall-1.txt", "text")
    assert path is not None
    assert [mode_of(each) for each in (path, *path.parents[:3])] == [0o600, 0o700, 0o700, 0o700]


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    above = tmp_path / "state"
    above.mkdir()
    above.chmod(0o755)
    assert mode_of(made()) == 0o700
    assert mode_of(above) == 0o755


def test_a_folder_that_was_removed_is_made_again() -> None:
    made().rmdir()
    assert made().is_dir()


def test_a_forked_child_has_a_folder_of_its_own() -> None:
    ours = made()
    with forked_children(1) as (theirs,):
        assert theirs.is_dir() and theirs != ours


def test_the_newest_runs_are_kept(tmp_path: Path) -> None:
    above = tmp_path / "state"
    # the later in the year, the older: names do not tell the year
    runs = [old_run(above, number, age_s=1000.0 + number) for number in range(30)]
    folder = made()
    assert set(above.iterdir()) == {folder, *runs[: MOST_RUNS - 1]}


def test_nothing_is_removed_that_is_not_a_folder_of_a_run(tmp_path: Path) -> None:
    above, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    for number in range(MOST_RUNS):
        old_run(above, number, age_s=10.0)
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("data")
    foreign = [
        above / name for name in ("data", "0101-000000-1.bak", "x0101-000000-1", "0101-000000", "１１１１-000000-1")
    ]
    for folder in foreign:
        folder.mkdir()
    a_file, a_link = above / "0101-000001-1", above / "0101-000002-1"
    a_file.write_text("not a folder")
    a_link.symlink_to(elsewhere)
    for path in (*foreign, a_file):
        os.utime(path, (0, 0))
    os.utime(a_link, (0, 0), follow_symlinks=False)
    made()
    assert all(path.exists() for path in (*foreign, a_file, a_link, elsewhere / "precious"))


def test_a_link_in_an_old_run_is_removed_and_not_followed(tmp_path: Path) -> None:
    above, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("data")
    oldest = old_run(above, 0, age_s=5000.0)
    (oldest / "link").symlink_to(elsewhere)
    os.utime(oldest, (0, 0))
    for number in range(1, MOST_RUNS + 1):
        old_run(above, number, age_s=10.0)
    made()
    assert not oldest.exists()
    assert (elsewhere / "precious").read_text() == "data"


def test_the_folders_of_processes_that_live_are_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_RUNS", 2)
    with forked_children(5) as folders:
        made()
        assert len(set(folders)) == 5
        assert all(folder.is_dir() for folder in folders)


def test_a_pid_that_has_come_back_does_not_keep_an_old_folder(tmp_path: Path) -> None:
    above = tmp_path / "state"
    stale = old_run(above, 0, pid=os.getppid(), age_s=files.SPARED_S + 60)
    fresh = old_run(above, 1, pid=os.getppid(), age_s=files.SPARED_S - 60)
    for number in range(2, MOST_RUNS + 2):
        old_run(above, number, age_s=10.0)
    made()
    assert not stale.exists()
    assert fresh.exists()


@pytest.mark.parametrize("place", ["file/state", "file", "loop/state", "nul\0"])
def test_where_no_folder_can_be_made_there_is_none_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setattr(os, "environ", {**os.environ, "ANTIFREEZE_DIR": str(tmp_path / place)})
    assert run_folder() is None
    assert write_stacks("stall-1.txt", "text") is None
    assert capsys.readouterr().err.count("antifreeze: there is no folder for files of this run") == 1


def test_a_user_without_a_home_has_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ANTIFREEZE_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert run_folder() is None
    assert "home directory" in capsys.readouterr().err


def test_a_link_that_waits_in_the_place_of_our_folder_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files.time, "strftime", lambda form: "0814-101112")
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / f"0814-101112-{os.getpid()}").symlink_to(target)
    assert write_stacks("stall-1.txt", "text") is None
    assert list(target.iterdir()) == []
    assert "File exists" in capsys.readouterr().err


def test_stacks_are_written_and_nothing_is_written_over() -> None:
    paths = [write_stacks("stall-1.txt", f"stack {number}") for number in range(3)]
    assert [path.name for path in paths if path] == ["stall-1.txt", "stall-1-2.txt", "stall-1-3.txt"]
    assert [path.read_text() for path in paths if path] == ["stack 0", "stack 1", "stack 2"]


def test_any_text_can_be_written() -> None:
    path = write_stacks("stall-1.txt", "été \udc80")
    assert path is not None
    assert path.read_text(encoding="utf-8") == "été \\udc80"


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 3)
    assert [write_stacks("stall.txt", "") is not None for _ in range(5)] == [True, True, True, False, False]
    assert capsys.readouterr().err.count("no more are written") == 1


def test_a_full_disk_is_said_once(
    largest_file: Callable[[int], AbstractContextManager[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    made()
    with largest_file(0):
        assert write_stacks("stall-1.txt", "text") is None
        assert write_stacks("stall-2.txt", "text") is None
    assert capsys.readouterr().err.count("no stacks can be written") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(files, "say_once", said.append)
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path))
    os.chown(tmp_path, 12345, -1)
    assert run_folder() is None
    assert not list(tmp_path.iterdir())
    (what,) = said
    assert str(tmp_path) in what and "another user (uid 12345)" in what
    os.chown(tmp_path, 0, -1)
    assert made().parent == tmp_path


def test_a_folder_that_anybody_may_rename_things_in_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(files, "say_once", said.append)
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    assert run_folder() is None
    assert "every user may rename" in said[0]
    tmp_path.chmod(0o1777)
    assert made().parent == tmp_path
