"""`antifreeze dump`: what it prints, of programs that are there, are not there, or may not be looked into."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from antifreeze.cli.main import main
from antifreeze.probes.processes import program

NOBODY = 65534
SCRIPT = """\
import sys, threading

def wait_for_word(word):
    print("ready", flush=True)
    return sys.stdin.readline() == word

threading.Thread(target=threading.Event().wait, name="spare", daemon=True).start()
wait_for_word("go")
"""


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these programs are at can be seen at once."""
    monkeypatch.setattr(program, "LOOKS_AT_S", (0.0, 0.1))


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A program that waits for a line which never comes."""
    (tmp_path / "train.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_it_shows_where_a_program_is_what_it_waits_for_and_what_to_do_next(
    waiting: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", str(waiting.pid)]) == 0
    said = capsys.readouterr().out
    assert "waits for a pipe" in said
    assert "train.py:5 in wait_for_word    return sys.stdin.readline() == word" in said
    assert "train.py:8 in <module>" in said
    assert f"next: antifreeze doctor {waiting.pid}" in said


def test_variables_and_other_threads_are_shown_on_request(
    waiting: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", "--locals", "-v", str(waiting.pid)]) == 0
    said = capsys.readouterr().out
    assert 'word = "go"' in said
    assert "thread spare" in said


def test_programs_get_facts(waiting: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--json", str(waiting.pid)]) == 0
    (picture,) = json.loads(capsys.readouterr().out)["processes"]
    assert (picture["pid"], picture["waits_in"], picture["place"]["line"]) == (waiting.pid, "pipe", 5)
    assert picture["threads"][0]["values"] == {}


def test_a_process_that_is_not_there_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for command in ("dump", "doctor"):
        assert main([command, str(ended.pid)]) == 2
        assert f"there is no process {ended.pid}" in capsys.readouterr().err
    assert main(["dump", "train.py"]) == 2
    assert "not a number of a process" in capsys.readouterr().err


def test_a_program_that_is_not_python_is_shown_without_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert main(["dump", str(process.pid)]) == 1
        process.kill()
    said = capsys.readouterr().out
    assert "sleep 60" in said
    assert "no Python stack: it is not a Python program" in said


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can give rights away")
def test_without_rights_it_says_what_the_kernel_tells_everybody_and_which_command_would_help(
    waiting: "subprocess.Popen[str]",
) -> None:
    without_rights = ["setpriv", f"--reuid={NOBODY}", "--inh-caps=-all", sys.executable, "-m", "antifreeze"]
    seen = subprocess.run(
        [*without_rights, "dump", str(waiting.pid)], capture_output=True, text=True, check=False, timeout=30
    )
    assert seen.returncode == 1, seen.stderr
    assert "sleeps" in seen.stdout
    assert "no Python stack: it belongs to another user" in seen.stdout
    assert f"dump {waiting.pid}" in seen.stdout.partition("to see it: ")[2]
    judged = subprocess.run(
        [*without_rights, "doctor", str(waiting.pid)], capture_output=True, text=True, check=False, timeout=30
    )
    assert judged.returncode == 1, judged.stderr
    assert "it belongs to another user; to see it: " in judged.stdout


def test_the_program_is_left_as_it_was(waiting: "subprocess.Popen[str]") -> None:
    assert main(["dump", str(waiting.pid)]) == 0
    assert waiting.stdin is not None
    waiting.stdin.write("go\n")
    waiting.stdin.flush()
    assert waiting.wait(10) == 0
