"""Programs on stock torch that are frozen now, each in its own way: the doctor names worker, line and cause from outside.

All of them are started at once, and looked at when they have come to where they freeze.
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

PATIENTS = Path(__file__).parent / "patients"
STARTS_WITHIN_S = 60.0
NAMED_WITHIN_S = 10.0
AT_ONCE = 3


@dataclass(frozen=True)
class Patient:
    """A running program."""

    name: str
    process: "subprocess.Popen[bytes]"
    directory: Path

    @property
    def has_come_there(self) -> bool:
        return (self.directory / "frozen").exists()

    def line(self, text: str) -> int:
        """The number of the line of the program that holds this."""
        lines = (PATIENTS / f"{self.name}.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and how long that took."""

    patient: Patient
    facts: Facts
    findings: list[Finding]
    seconds: float

    def the(self, code: str) -> Finding:
        (found,) = [finding for finding in self.findings if finding.code == code]
        return found

    def worker(self, number: int) -> ProcessPicture:
        return next(each for each in self.facts.processes if each.worker == number)


def start(name: str, directory: Path, environment: Mapping[str, str] | None = None) -> Patient:
    directory.mkdir(exist_ok=True)
    shutil.copy(PATIENTS / f"{name}.py", directory)
    process = subprocess.Popen(
        [sys.executable, f"{name}.py"],
        cwd=directory,
        env={**os.environ, "ANTIFREEZE": "0", "OMP_NUM_THREADS": "2", **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=(directory / "stderr").open("wb"),
        start_new_session=True,
    )
    return Patient(name, process, directory)


def start_all(root: Path) -> list[Patient]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in (0, 1)
    ]
    alone = sorted(path.stem for path in PATIENTS.glob("*.py") if path.stem != "lone_rank")
    return [
        *(start(name, root / name) for name in alone),
        *(start("lone_rank", root / f"rank-{rank['RANK']}", rank) for rank in ranks),
    ]


def end(patient: Patient) -> None:
    assert patient.process.stdin is not None
    patient.process.stdin.close()
    os.killpg(patient.process.pid, signal.SIGKILL)
    patient.process.wait()


def examine(patient: Patient) -> Diagnosis:
    began = time.monotonic()
    facts = Facts(processes=look_at_program(patient.process.pid))
    return Diagnosis(patient, facts, diagnose(facts), time.monotonic() - began)


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Patient]]:
    started = start_all(tmp_path_factory.mktemp("patients"))
    try:
        deadline = time.monotonic() + STARTS_WITHIN_S
        waited_for = [patient for patient in started if patient.directory.name != "rank-1"]
        while not all(patient.has_come_there for patient in waited_for):
            assert time.monotonic() < deadline, [each.name for each in waited_for if not each.has_come_there]
            time.sleep(0.1)
        yield {patient.directory.name: patient for patient in started}
    finally:
        for patient in started:
            end(patient)


@pytest.fixture(scope="module")
def diagnoses(patients: dict[str, Patient]) -> dict[str, Diagnosis]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(patients, pool.map(examine, patients.values()), strict=True))
