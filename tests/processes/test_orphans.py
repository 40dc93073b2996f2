"""Whichever way the trainer dies, nothing of it is left two seconds later."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drop_in.harness import our_way
from leftovers import Session, describe, new_processes, reap, take, wait_until
from processes import datasets
from processes.datasets import Numbers, Stuck
from user_scripts import Script

pytestmark = pytest.mark.usefixtures("not_for_torch")

SCRIPT = """
import os, sys, threading, time
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Sleeping(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        print("sleeping", flush=True)
        time.sleep(1000)


class Reading(Sleeping):
    def __getitem__(self, index):
        ours, theirs = os.pipe()
        print("reading", flush=True)
        os.read(ours, 1)


class Idle(Sleeping):
    def __getitem__(self, index):
        return index


def start(dataset, iterators):
    iterators.append(iter(DataLoader(dataset, num_workers=1, multiprocessing_context=sys.argv[1])))


if __name__ == "__main__":
    iterators = []
    start(Sleeping(), iterators)
    start(Reading(), iterators)
    thread = threading.Thread(target=start, args=(Idle(), iterators))
    thread.start()
    thread.join()
    assert int(next(iterators[2])) == 0
    print("idle", flush=True)
    time.sleep(1000)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("stem", "signal_number"), [("grown", signal.SIGKILL), ("grown", signal.SIGTERM), ("clean", signal.SIGKILL)]
)
def test_no_worker_survives_the_death_of_the_trainer(
    stem: str, signal_number: signal.Signals, start_script: Callable[..., Script]
) -> None:
    """Workers asleep, in a long read, and idle ones whose loader was started by a thread that is gone."""
    script = start_script(SCRIPT, our_way(stem).context or "fork")
    for line in ("sleeping", "reading", "idle"):
        script.wait_line(line, within_s=60)
    assert len(script.alive()) >= 4
    script.process.send_signal(signal_number)
    assert script.wait_exit(within_s=60).returncode == -signal_number
    script.assert_gone()


@pytest.mark.long
@pytest.mark.parametrize("delay_s", [0.05, 0.5, 1.5])
def test_nothing_is_left_when_the_trainer_dies_while_a_clean_stem_starts(
    start_script: Callable[..., Script], delay_s: float
) -> None:
    script = start_script(
        SCRIPT.replace("    start(Sleeping()", "    print('starting')\n    start(Sleeping()"), "spawn"
    )
    script.wait_line("starting", within_s=60)
    time.sleep(delay_s)  # not to wait for something, but to hit another moment of the start
    script.process.kill()
    script.assert_gone()


@contextmanager
def forked_trainer(train: Callable[[], Any]) -> Iterator[int]:
    """A trainer forked from this process: its pid. It never comes back."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            train()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def assert_nobody_left(session: Session, before: Any) -> None:
    gone = wait_until(lambda: not new_processes(before, session.mark), 2)
    left = [describe(who.pid) for who in new_processes(before, session.mark)]
    reap(new_processes(before, session.mark))
    assert gone, left


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("delay_ms", [0, 5, 10, 20, 40, 80])
def test_nothing_is_left_when_the_trainer_dies_while_a_grown_stem_starts(session: Session, delay_ms: int) -> None:
    before = take()

    def train() -> None:
        loader = our_way("grown").make(Numbers(1000), num_workers=3)
        while True:
            list(loader)

    with forked_trainer(train) as trainer:
        time.sleep(delay_ms / 1000)  # another moment of the start each time
        os.kill(trainer, signal.SIGKILL)
    assert_nobody_left(session, before)


@pytest.mark.long(but=1)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", [datasets.hold_the_gil, datasets.ignore_sigterm, datasets.wait_for_a_child])
def test_no_stuck_worker_survives_the_death_of_the_trainer(
    session: Session, tmp_path: Path, kind: Callable[[], None]
) -> None:
    before = take()
    dataset = Stuck(tmp_path, kind)

    def train() -> None:
        next(iter(our_way("grown").make(dataset)))

    with forked_trainer(train):
        dataset.wait_stuck(2)
    assert_nobody_left(session, before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_nothing_is_left_when_the_stem_is_killed_too(session: Session, tmp_path: Path) -> None:
    """The stem first: its workers lose their parent while the trainer still lives."""
    before = take()
    dataset = Stuck(tmp_path, datasets.sleep)

    def train() -> None:
        batches = iter(our_way("grown").make(dataset))
        stems = datasets.children_of([os.getpid()])
        assert dataset.wait_stuck(2)
        for stem in stems:
            os.kill(stem, signal.SIGKILL)
        next(batches)

    with forked_trainer(train):
        dataset.wait_stuck(2)
    assert_nobody_left(session, before)


TAKES_ORPHANS = """
import ctypes, os, signal, sys, torch
from antifreeze import DataLoader
from antifreeze.observe.accounts import account_of
from torch.utils.data import TensorDataset

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # as for the first process of a container

loader = DataLoader(TensorDataset(torch.arange(40)), batch_size=2, num_workers=2, multiprocessing_context="fork")
batches = iter(loader)
next(batches)
first, _ = [worker.pid for worker in batches._workers]  # both have been born: else there is one more to record
os.kill(batches._epoch._pool.stem.pid, signal.SIGKILL)
os.kill(first, signal.SIGKILL)
assert len(list(batches)) == 19
assert [record.exitcode for record in account_of(loader).ledger] == [-9], list(account_of(loader).ledger)
del batches
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none left")
"""


@pytest.mark.long
def test_a_trainer_that_takes_orphans_reaps_the_workers_of_a_stem_that_was_killed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TAKES_ORPHANS], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "none left\n", ended
