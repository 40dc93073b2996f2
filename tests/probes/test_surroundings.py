"""What the machine is like, of this one and of made-up ones."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.doctor.facts import Facts
from antifreeze.machine import limits, reading
from antifreeze.probes import surroundings
from antifreeze.probes.surroundings import look_at_machine


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """All the files that there are for the kernel's to be read from."""
    made_up: dict[str, str] = {}

    class MadeUp(type(Path())):  # type: ignore[misc]
        def read_text(self, *_: object, **__: object) -> str:
            if str(self) not in made_up:
                raise FileNotFoundError(str(self))
            return made_up[str(self)]

    monkeypatch.setattr(reading, "Path", MadeUp)
    return made_up


def test_this_machine_is_seen_as_it_is() -> None:
    seen = look_at_machine()
    assert seen.cpus == os.cpu_count()
    assert 1 <= seen.usable_cpus <= len(os.sched_getaffinity(0))
    assert seen.descriptors_soft == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert seen.shm_total_bytes is not None and 0 <= (seen.shm_free_bytes or 0) <= seen.shm_total_bytes
    assert seen.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert seen.versions["torch"].startswith("2.")
    assert Facts.from_json(Facts(machine=seen).to_json()).machine == seen


def test_settings_are_those_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in surroundings.THREAD_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert look_at_machine().thread_settings == {"OMP_NUM_THREADS": "3"}


def test_it_imports_nothing_of_what_it_looks_at_and_leaves_the_start_method_open() -> None:
    program = (
        "import sys, multiprocessing\n"
        "from antifreeze.probes.surroundings import look_at_machine\n"
        "assert look_at_machine().start_method in multiprocessing.get_all_start_methods()\n"
        "assert multiprocessing.get_start_method(allow_none=True) is None\n"
        "assert not {'torch', 'numpy', 'cv2'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=150)


def test_a_start_method_that_was_set_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: "spawn")
    assert surroundings.start_method() == "spawn"


@pytest.mark.parametrize(
    ("cgroup", "there", "quota"),
    [
        ("0::/", {"/sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ("0::/job", {"/sys/fs/cgroup/job/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"/sys/fs/cgroup/a/b/cpu.max": "max 100000", "/sys/fs/cgroup/a/cpu.max": "200000 100000"}, 2.0),
        (
            "4:cpu,cpuacct:/docker/1",
            {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            4.0,
        ),
        (
            "4:cpu,cpuacct:/",
            {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
        ("", {}, None),
    ],
)
def test_the_quota_is_the_least_that_a_cgroup_grants(
    files: dict[str, str], cgroup: str, there: dict[str, str], quota: float | None
) -> None:
    files.update(there)
    if cgroup:
        files["/proc/self/cgroup"] = cgroup
    assert limits.cpu_quota() == quota


@pytest.mark.parametrize(("quota", "allowed", "usable"), [(None, 8, 8), (1.5, 8, 2), (0.2, 8, 1), (16.0, 8, 8)])
def test_usable_processors_are_what_quota_and_affinity_leave(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, allowed: int, usable: int
) -> None:
    monkeypatch.setattr(limits, "cpu_quota", lambda: quota)
    monkeypatch.setattr(limits, "allowed_cpus", lambda: allowed)
    assert limits.usable_cpus() == usable


@pytest.mark.parametrize(("text", "scope"), [("1\n", 1), (None, None)])
def test_the_rights_to_look_into_others_are_yamas(files: dict[str, str], text: str | None, scope: int | None) -> None:
    if text is not None:
        files["/proc/sys/kernel/yama/ptrace_scope"] = text
    assert limits.ptrace_scope() == scope


def test_where_there_is_no_shared_memory_there_is_none(tmp_path: Path) -> None:
    assert limits.shared_memory_room(str(tmp_path / "no")) is None
    room = limits.shared_memory_room(str(tmp_path))
    assert room is not None and 0 < room.free_bytes <= room.total_bytes
