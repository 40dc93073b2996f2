"""The check that nothing is left behind would notice: one case per kind of thing."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from leftovers import (
    Incarnation,
    Session,
    is_running,
    kill,
    leftovers,
    new_processes,
    reap,
    stop_base_process,
    take,
    wait_until,
)
from user_scripts import Script


def found(session: Session, before: object) -> list[str]:
    return leftovers(before, session.mark)  # type: ignore[arg-type]


def assert_found_and_ended(session: Session, before: object, count: int) -> None:
    """That many processes are noticed; then they are ended, so that this test leaves none."""

    def noticed() -> list[Incarnation]:
        return [who for who in new_processes(before, session.mark) if is_running(who)]  # type: ignore[arg-type]

    seen = wait_until(lambda: len(noticed()) == count, 5)
    processes = noticed()
    kill(processes)
    reap(processes)
    assert seen, processes


def test_nothing_new_is_nothing_to_tell(session: Session) -> None:
    assert found(session, take()) == []


def test_a_descriptor_is_noticed(session: Session) -> None:
    before = take()
    ours, theirs = os.pipe()
    lines = found(session, before)
    os.close(ours)
    os.close(theirs)
    assert [line.split()[:2] for line in lines] == [["descriptor", str(ours)], ["descriptor", str(theirs)]]


def test_a_thread_is_noticed(session: Session) -> None:
    before = take()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(20,), name="lingering", daemon=True)
    thread.start()
    lines = found(session, before)
    stop.set()
    thread.join(5)
    assert lines == ["thread 'lingering'"]


def test_a_temporary_file_is_noticed(session: Session) -> None:
    before = take()
    path = Path(tempfile.mkdtemp(prefix="lingering-"))
    lines = found(session, before)
    path.rmdir()
    assert lines == [str(path)]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_shared_memory_is_noticed(session: Session) -> None:
    before = take()
    path = Path("/dev/shm") / session.mark.name
    path.touch()
    lines = found(session, before)
    path.unlink()
    assert lines == [str(path)]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_what_a_killed_manager_of_shared_memory_leaves_is_noticed_by_its_folder(session: Session) -> None:
    before = take()
    child = os.fork()
    if child == 0:
        torch.multiprocessing.set_sharing_strategy("file_system")
        shared = torch.ones(1).share_memory_()  # noqa: F841
        threading.Event().wait(20)
    assert wait_until(lambda: any("/torch-shm-dir-" in line for line in found(session, before)), 20)
    assert wait_until(lambda: any(name.startswith(f"torch_{child}_") for name in os.listdir("/dev/shm")), 20)
    processes = new_processes(before, session.mark)
    kill(processes)
    reap(processes)
    lines = found(session, before)
    for name in take().shm - before.shm:
        if name.startswith(f"torch_{child}_"):
            Path("/dev/shm", name).unlink()
    for folder in Path(tempfile.gettempdir()).glob("torch-shm-dir-*"):
        shutil.rmtree(folder)
    assert [line for line in lines if "/torch-shm-dir-" not in line] == []
    assert len(lines) == 1


def test_an_orphan_that_was_only_forked_is_noticed(session: Session) -> None:
    before = take()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.setsid()
            threading.Event().wait(20)
        os._exit(0)
    os.waitpid(child, 0)
    assert_found_and_ended(session, before, 1)


def test_an_orphan_that_was_executed_is_noticed(session: Session) -> None:
    before = take()
    inner = "import subprocess; subprocess.Popen(['sleep', '20'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", inner], check=True, timeout=150)
    assert_found_and_ended(session, before, 1)


def test_a_child_that_nobody_waited_for_is_noticed(session: Session) -> None:
    before = take()
    child = os.fork()
    if child == 0:
        os._exit(0)
    noticed = wait_until(lambda: any("state Z" in line for line in found(session, before)), 5)
    os.waitpid(child, 0)
    assert noticed


def test_what_a_script_leaves_behind_is_noticed(start_script: Callable[..., Script]) -> None:
    script = start_script("import subprocess\nsubprocess.Popen(['sleep', '20'], start_new_session=True)\n")
    assert script.wait_exit(within_s=60).returncode == 0
    with pytest.raises(AssertionError, match="left behind after"):
        script.assert_gone(within_s=0.3)


def test_a_script_that_hangs_says_where(start_script: Callable[..., Script]) -> None:
    script = start_script("import threading\n\ndef hang():\n    threading.Event().wait(20)\n\nhang()\n")
    with pytest.raises(AssertionError, match=r"(?s)still running after .* in hang"):
        script.wait_exit(within_s=1)


def test_stopping_the_clean_base_is_harmless_when_there_is_none() -> None:
    stop_base_process()
