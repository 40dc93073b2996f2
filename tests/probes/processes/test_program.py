"""Programs on stock torch that are frozen now, each in its own way: the doctor names worker, line and cause from outside.

All that are asked for are started at once, and looked at when they have come to where they freeze.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, ProcessPicture
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.probes.processes import look_at_program

TARGETS = Path(__file__).parent / "targets"
STARTS_WITHIN_S = 60.0
AT_ONCE = 3
# Those that tests ask for by name.
ALWAYS = {"silent_server", "held_lock", "lost_batch", "rank-0"}
# What waits for something outside may yet get it; the doctor is sure after ten seconds.
RIPE_S = {"silent_server": 12.0, "nobody_writes": 12.0}


@dataclass(frozen=True)
class TargetProcess:
    """A running program."""

    name: str
    process: "subprocess.Popen[bytes]"
    directory: Path

    @property
    def is_ripe(self) -> bool:
        """Whether it has been where it freezes for so long that nobody would expect it to go on."""
        reached = self.directory / "frozen"
        return reached.exists() and time.time() - reached.stat().st_mtime > RIPE_S.get(self.name, 0)

    @property
    def lines(self) -> list[str]:
        return (TARGETS / f"{self.name}.py").read_text().splitlines()

    def line(self, text: str) -> int:
        """The number of the line of the program that holds this."""
        return next(number for number, line in enumerate(self.lines, 1) if text in line)


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and how long that took."""

    target: TargetProcess
    facts: Facts
    findings: list[Finding]
    seconds: float

    def the(self, code: str) -> Finding:
        (found,) = [finding for finding in self.findings if finding.code == code]
        return found

    def worker(self, number: int) -> ProcessPicture:
        return next(each for each in self.facts.processes if each.worker == number)


def start(name: str, directory: Path, environment: Mapping[str, str] | None = None) -> TargetProcess:
    directory.mkdir(exist_ok=True)
    shutil.copy(TARGETS / f"{name}.py", directory)
    with (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, f"{name}.py"],
            cwd=directory,
            env={
                **os.environ,
                "ANTIFREEZE": "0",
                "OMP_NUM_THREADS": "2",
                "TMPDIR": str(directory),
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    return TargetProcess(name, process, directory)


def start_all(root: Path, wanted: set[str]) -> list[TargetProcess]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in (0, 1)
    ]
    alone = sorted(path.stem for path in TARGETS.glob("*.py") if path.stem != "lone_rank")
    return [
        *(start(name, root / name) for name in alone if name in wanted),
        *(start("lone_rank", root / f"rank-{rank['RANK']}", rank) for rank in ranks),
    ]


def end(target: TargetProcess) -> None:
    assert target.process.stdin is not None
    target.process.stdin.close()
    os.killpg(target.process.pid, signal.SIGKILL)
    target.process.wait()


def examine(target: TargetProcess) -> Diagnosis:
    began = time.monotonic()
    facts = Facts(processes=look_at_program(target.process.pid))
    return Diagnosis(target, facts, diagnose(facts), time.monotonic() - began)


@pytest.fixture(scope="module")
def targets(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TargetProcess]]:
    here = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module
    ]
    asked = {item.callspec.params["name"] for item in here if hasattr(item, "callspec")}
    started = start_all(tmp_path_factory.mktemp("targets"), ALWAYS | asked)
    try:
        deadline = time.monotonic() + STARTS_WITHIN_S
        waited_for = [target for target in started if target.directory.name != "rank-1"]
        while not all(target.is_ripe for target in waited_for):
            assert time.monotonic() < deadline, [each.name for each in waited_for if not each.is_ripe]
            time.sleep(0.1)
        yield {target.directory.name: target for target in started}
    finally:
        for target in started:
            end(target)


@pytest.fixture(scope="module")
def diagnoses(targets: dict[str, TargetProcess]) -> dict[str, Diagnosis]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(targets, pool.map(examine, targets.values()), strict=True))


@dataclass(frozen=True)
class Expected:
    code: str
    weight: Weight
    line: str
    worker: int | None = None
    sample: str | None = None
    says: str = ""


FREEZES = {
    "executor": Expected("AF101", Weight.LIKELY, "sum(self.pool.map(", 0, "5", "thread"),
    "silent_server": Expected("AF103", Weight.LIKELY, "line.recv(100)", 1, "3", "network"),
    "held_lock": Expected("AF104", Weight.LIKELY, "with self.lock:", 0, "0", "locked when the worker was forked"),
    "stopped_worker": Expected("AF112", Weight.CERTAIN, "signal.SIGSTOP)", 1, "2", "SIGSTOP"),
    "nobody_writes": Expected("AF103", Weight.LIKELY, "with open(", 1, "6", "another process to write"),
    "lost_threads": Expected("AF102", Weight.LIKELY, "return KMeans(", 0, "0", "gomp"),
    "lost_batch": Expected("AF305", Weight.POSSIBLE, "for _ in DataLoader(", says="idle"),
    "endless_step": Expected("AF111", Weight.POSSIBLE, "touch()", says="all 2 workers are idle"),
    "rank-0": Expected("AF601", Weight.LIKELY, "dist.barrier()", says="rank 1"),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", FREEZES)
def test_a_freeze_is_named_with_worker_line_and_cause(name: str, diagnoses: dict[str, Diagnosis]) -> None:
    diagnosis, expected = diagnoses[name], FREEZES[name]
    found = diagnosis.the(expected.code)
    assert found.weight is expected.weight
    assert found.where is not None
    script = f"{diagnosis.target.name}.py"
    assert (found.where.file, found.where.line) == (script, diagnosis.target.line(expected.line))
    assert (found.worker, found.sample) == (expected.worker, expected.sample)
    assert expected.says in f"{found.what} {found.why}"


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", FREEZES)
def test_no_other_cause_is_named_beside_it(name: str, diagnoses: dict[str, Diagnosis]) -> None:
    beside = [finding for finding in diagnoses[name].findings if finding.code != FREEZES[name].code]
    assert [finding for finding in beside if finding.code != "AF111"] == []


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["healthy", "slow_samples"])
def test_a_training_that_gets_on_has_nothing(name: str, diagnoses: dict[str, Diagnosis]) -> None:
    assert diagnoses[name].findings == []


def test_who_waits_for_whom_is_told(diagnoses: dict[str, Diagnosis]) -> None:
    trainer, *_ = diagnoses["silent_server"].facts.processes
    idle, stuck = diagnoses["silent_server"].worker(0), diagnoses["silent_server"].worker(1)
    assert (trainer.role, trainer.stage, trainer.waits_for) == ("trainer", "next", (stuck.pid,))
    assert (idle.stage, idle.waits_for) == ("idle", (trainer.pid,))
    assert (stuck.stage, stuck.waits_in) == ("fetch", "socket")
    assert stuck.peer.startswith("127.0.0.1:")


def test_where_all_workers_are_idle_the_trainer_waits_for_a_batch_that_nobody_makes(
    diagnoses: dict[str, Diagnosis],
) -> None:
    trainer, *workers = diagnoses["lost_batch"].facts.processes
    assert trainer.stage == "next"
    assert {worker.stage for worker in workers} == {"idle"}


def test_the_other_rank_is_looked_at_too_and_blamed_if_it_does_not_move(diagnoses: dict[str, Diagnosis]) -> None:
    there, missing = (each for each in diagnoses["rank-0"].facts.processes if each.role == "trainer")
    assert (there.rank, missing.rank, there.world_size) == (0, 1, 2)
    blamed = diagnoses["rank-0"].the("AF111")
    assert blamed.pid == missing.pid
    assert str(blamed.where).endswith(f"lone_rank.py:{diagnoses['rank-0'].target.line('sys.stdin.readline()')}")


def test_facts_of_a_running_program_survive_json(diagnoses: dict[str, Diagnosis]) -> None:
    for diagnosis in diagnoses.values():
        assert Facts.from_json(diagnosis.facts.to_json()) == diagnosis.facts


def test_asked_about_a_worker_it_looks_at_the_whole_program(diagnoses: dict[str, Diagnosis]) -> None:
    known = [picture.pid for picture in diagnoses["held_lock"].facts.processes]
    again = look_at_program(diagnoses["held_lock"].worker(1).pid)
    assert [picture.pid for picture in again] == known


def test_how_long_a_process_has_slept_is_known_from_before_we_looked(diagnoses: dict[str, Diagnosis]) -> None:
    assert diagnoses["silent_server"].worker(1).still_s >= RIPE_S["silent_server"]
