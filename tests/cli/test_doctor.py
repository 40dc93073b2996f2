"""`antifreeze doctor`: what it is asked, what it prints where, and how it ends."""

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.cli.main import main
from antifreeze.doctor.checks.shm_too_small import shm_too_small
from antifreeze.doctor.checks.small_shm import small_shm
from antifreeze.doctor.facts import Facts
from doctor.frozen import FROZEN
from leftovers import wait_until

STARTS_WITHIN_S = 0.15


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "facts.json"
    file.write_text(shm_too_small.sick.to_json())
    return file


def doctor(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["doctor", *words]) == status
    said = capsys.readouterr()
    return said.err if status == 2 else said.out


# --- what it ends with


def test_without_a_patient_it_looks_at_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    said = doctor(capsys)
    for area in ("processors", "memory", "/dev/shm", "descriptors", "settings", "versions"):
        assert area in said


def test_what_is_certain_is_status_1(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    said = doctor(capsys, "--facts", str(saved), status=1)
    assert "AF204 shm-too-small" in said
    assert said.splitlines()[-1].startswith("1 finding (1 certain)")


def test_what_is_only_possible_is_said_and_is_status_0(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    saved.write_text(small_shm.sick.to_json())
    assert "AF902 small-shm" in doctor(capsys, "--facts", str(saved))


def test_a_loader_that_freezes_is_status_1_also_if_all_findings_are_ignored(
    capsys: pytest.CaptureFixture[str], saved: Path
) -> None:
    saved.write_text(FROZEN.to_json())
    assert "freezes" in doctor(capsys, "--facts", str(saved), "--ignore", "AF", status=1)


def test_selected_and_ignored_codes(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    saved.write_text(dataclasses.replace(small_shm.sick, loaders=()).to_json())
    assert "AF902" in doctor(capsys, "--facts", str(saved), "--select", "af9")
    assert "AF902" not in doctor(capsys, "--facts", str(saved), "--select", "AF1,AF204")
    assert "AF902" not in doctor(capsys, "--facts", str(saved), "--ignore", "AF902")


def test_saved_facts_are_the_facts(capsys: pytest.CaptureFixture[str], saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    doctor(capsys, "--facts", str(saved), "--save", str(again), status=1)
    assert Facts.from_json(again.read_text()) == shm_too_small.sick


# --- what it prints where


def test_json_is_all_that_is_on_stdout(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    report = json.loads(doctor(capsys, "--facts", str(saved), "--format", "json", status=1))
    assert [finding["code"] for finding in report["findings"]] == ["AF204"]


def test_annotations_are_all_that_is_on_stdout(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    said = doctor(capsys, "--facts", str(saved), "--format", "github", status=1)
    assert [line.split(" ")[0] for line in said.splitlines()] == ["::error"]


# --- what it refuses


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no.py"], "there is no such file"),
        (["--select", "AF99", "no.py"], "there is no code AF99"),
        (["--timeout", "soon", "train.py"], "soon"),
        (["--batches", "0", "train.py"], "--batches 0"),
        (["--facts", "no.json"], "no.json"),
        (["--facts", "train.py"], "cannot read facts"),
        (["--facts", "facts.json", "train.py"], "two programs"),
        (["--static", "no.such:loader"], "cannot find no.such:loader"),
        (["--static", "-m", "no.such"], "cannot find -m no.such"),
        (["torchrun"], "one process"),
        (["-m", "torch.distributed.run", "train.py"], "one process"),
        (["--save", "no/where.json", "--facts", "facts.json"], "cannot write"),
    ],
)
def test_what_cannot_work_is_status_2_and_a_reason(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    saved: Path,
    words: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(saved.parent)
    for name in ("train.py", "torchrun"):
        (saved.parent / name).write_text("print('run')\n")
    assert reason in doctor(capsys, *words, status=2)


def test_in_a_job_of_several_processes_it_refuses_and_says_what_to_run_instead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = doctor(capsys, str(script), status=2)
    assert "WORLD_SIZE=2" in said
    assert "antifreeze doctor PID" in said


# --- a script that it runs

HEALTHY = """
import os, sys, time
from pathlib import Path
from torch.utils.data import DataLoader

if __name__ == "__main__":
    Path("started").write_text(f"{os.getpid()} {sys.argv[1:]}")
    if "stay" in sys.argv:
        time.sleep(60)
    for batch in DataLoader(range(64), batch_size=8, num_workers=1):
        Path("trained").touch()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(HEALTHY)
    return file


@pytest.mark.fallback
def test_a_healthy_script_is_run_with_its_own_words_up_to_its_first_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: Path
) -> None:
    monkeypatch.chdir(script.parent)
    report = script.with_name("facts.json")
    said = doctor(capsys, "--timeout", "90s", "--save", str(report), "train.py", "--format", "json")
    assert said.splitlines()[0] == "runs train.py up to its first batch (its side effects happen); --static only reads"
    assert "healthy" in said
    assert script.with_name("started").read_text().endswith("['--format', 'json']")
    assert not script.with_name("trained").exists()
    assert [loader.num_workers for loader in Facts.from_json(report.read_text()).loaders] == [1]


def test_static_runs_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: Path) -> None:
    monkeypatch.chdir(script.parent)
    said = doctor(capsys, "--static", "train.py")
    assert said.splitlines()[0] == "reads train.py and runs nothing"
    assert not script.with_name("started").exists()


@pytest.mark.parametrize("words", [["-m", "pack.train", "--lr", "1"], ["pack.train:make"]])
def test_files_of_a_module_are_named_from_this_directory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "train.py").write_text("from pack.data import Numbers\n")
    (tmp_path / "pack" / "data.py").touch()
    saved = tmp_path / "facts.json"
    said = doctor(capsys, "--static", "--save", str(saved), *words)
    assert said.startswith(f"reads {' '.join(words[:2])} and runs nothing\n")
    source = Facts.from_json(saved.read_text()).source
    assert source is not None and source.files == ("pack/train.py", "pack/data.py")


def test_interrupted_it_leaves_nothing_behind(script: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "antifreeze", "doctor", "--format", "json", "train.py", "stay"],
        cwd=script.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = script.with_name("started")
    assert wait_until(started.exists, 40)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=120)
    assert (program.returncode, out) == (130, "")
    assert err == "runs train.py up to its first batch (its side effects happen); --static only reads\n"
    # that its process is gone is what the fixture of all tests sees to


# --- how fast it starts


def processor_time_s(*words: str) -> float:
    program = subprocess.Popen([sys.executable, "-m", "antifreeze", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("words", [["--help"], ["explain", "AF204"]])
def test_the_command_line_starts_at_once(words: list[str]) -> None:
    """By the processor's clock: it waits for nothing, and what else this machine does while tests run is not its fault."""
    assert statistics.median(processor_time_s(*words) for _ in range(5)) < STARTS_WITHIN_S


@pytest.mark.parametrize("words", [["--help"], ["explain", "AF204"], ["doctor"]])
def test_the_command_line_starts_without_torch(words: list[str]) -> None:
    program = (
        "import contextlib, sys\n"
        "from antifreeze.cli.main import main\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    main({words})\n"
        "sys.exit(bool({'torch', 'numpy', 'rich'} & set(sys.modules)))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL, timeout=150)
