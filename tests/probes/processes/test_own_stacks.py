"""A worker of ours tells where it is, without anybody looking into it; nobody else is asked."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antifreeze import machine
from antifreeze.probes.processes.own_stacks import ask_worker
from antifreeze.probes.processes.program import look_at_program

SCRIPT = """\
import os
from pathlib import Path

from antifreeze import DataLoader


class Piped:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        Path("frozen").write_text(str(os.getpid()))
        os.read(os.pipe()[0], 1)


if __name__ == "__main__":
    for _ in DataLoader(Piped(), num_workers=1):
        pass
"""
STARTS_WITHIN_S = 25.0


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[int]:
    """One of ours that waits for a pipe which nobody writes into."""
    (tmp_path / "train.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, "ANTIFREEZE": "require"}
    ) as trainer:
        try:
            deadline = time.monotonic() + STARTS_WITHIN_S
            reached = tmp_path / "frozen"
            while not (reached.exists() and machine.wait_of(int(reached.read_text() or os.getpid())).kind == "pipe"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield int(reached.read_text())
        finally:
            trainer.kill()


@pytest.mark.long
def test_a_worker_of_ours_writes_its_stack_when_asked_and_lives_on(worker: int) -> None:
    told = ask_worker(worker)
    assert told is not None
    main = told.main(worker)
    assert main is not None
    assert (main.calls[0].frame.function, main.calls[0].frame.line) == ("__getitem__", 13)
    assert ask_worker(worker) is not None
    stem = machine.kin_of(worker)
    assert stem is not None
    assert ask_worker(stem.parent) is None
    pictures = {picture.pid: picture for picture in look_at_program(worker)}
    assert (pictures[worker].role, pictures[worker].stage) == ("our-worker", "fetch")
    assert (pictures[stem.parent].role, pictures[stem.parent].threads != ()) == ("stem", True)


def test_a_process_that_did_not_learn_it_is_not_asked() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert ask_worker(process.pid) is None
        assert process.poll() is None
        process.kill()
