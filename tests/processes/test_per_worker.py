"""Every worker opens its own resource and closes it when it ends, on our stems and on torch's own loader."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest
from torch.utils.data import Dataset

from antifreeze import per_worker
from drop_in.harness import TORCH, Maker, Way, observe, tidy_up
from leftovers import wait_until
from user_scripts import Ended


class Handle:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.pid = os.getpid()
        self.note("open")

    def note(self, word: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{word} {os.getpid()}\n")

    def close(self) -> None:
        self.note("close")


class Reads(Dataset[Any]):
    def __init__(self, factory: Callable[[], Handle]) -> None:
        self.handle = per_worker(factory)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return index, self.handle().pid, os.getpid()


def seen_by_workers(dataset: Reads, make: Maker) -> list[tuple[int, int, int]]:
    rows = [
        row for batch in make(dataset, batch_size=2) for row in zip(*(part.tolist() for part in batch), strict=True)
    ]
    assert [index for index, _, _ in rows] == list(range(16))
    return rows


def assert_each_worker_had_its_own(rows: list[tuple[int, int, int]], log: Path, *, already: list[str]) -> None:
    workers = {worker for _, _, worker in rows}
    assert len(workers) == 2 and os.getpid() not in workers
    assert all(owner == worker for _, owner, worker in rows)
    expected = sorted([*already, *(f"{word} {worker}" for word in ("open", "close") for worker in workers)])
    assert wait_until(lambda: sorted(log.read_text().splitlines()) == expected, 10), (log.read_text(), expected)


@pytest.mark.parametrize("is_open_here", [False, True], ids=["not open", "open in the trainer"])
def test_each_worker_opens_its_own_and_closes_it_at_its_end(way: Way, tmp_path: Path, is_open_here: bool) -> None:
    log = tmp_path / "log"
    dataset = Reads(lambda: Handle(log))
    already = [f"open {os.getpid()}"] if is_open_here else []
    if is_open_here:
        dataset.handle()
    rows = observe(way, partial(seen_by_workers, dataset))
    assert_each_worker_had_its_own(rows, log, already=already)
    dataset.handle.close()


def test_so_do_forked_workers_of_torch(tmp_path: Path) -> None:
    log = tmp_path / "log"
    dataset = Reads(lambda: Handle(log))
    dataset.handle()
    rows = observe(TORCH, partial(seen_by_workers, dataset))
    tidy_up()
    assert_each_worker_had_its_own(rows, log, already=[f"open {os.getpid()}"])
    dataset.handle.close()


SPAWNED = f"""
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from processes.test_per_worker import TORCH, Handle, Reads, assert_each_worker_had_its_own, seen_by_workers
import torch.utils.data

if __name__ == "__main__":
    log = Path(sys.argv[2])
    make = partial(torch.utils.data.DataLoader, num_workers=2, multiprocessing_context=sys.argv[1])
    rows = seen_by_workers(Reads(partial(Handle, log)), make)
    assert_each_worker_had_its_own(rows, log, already=[])
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_so_do_spawned_workers_of_torch(run_script: Callable[..., Ended], tmp_path: Path, method: str) -> None:
    run_script(SPAWNED, method, str(tmp_path / "log")).check()


AT_EXIT = """
import os, sys
import antifreeze

class Handle:
    def __init__(self, name): self.name = name
    def close(self): print("close", self.name, flush=True)

class Broken(Handle):
    def close(self): raise OSError("broken")

first, second, broken = (antifreeze.per_worker(lambda kind=kind, name=name: kind(name))
                         for kind, name in ((Handle, "first"), (Handle, "second"), (Broken, "broken")))
first(), second(), broken()
if os.fork() == 0:
    sys.exit()
os.wait()
print("end", flush=True)
"""


def test_a_plain_process_closes_its_own_at_exit_the_last_first(run_script: Callable[..., Ended]) -> None:
    ended = run_script(AT_EXIT)
    assert ended.stdout == "end\nclose second\nclose first\n"
    assert ended.stderr.count("OSError: broken") == 1


def open_read_only(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path), readonly=True)


class Database(Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.environment = per_worker(partial(open_read_only, path))

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        with self.environment().begin() as transaction:
            return int(transaction.get(str(index).encode()))


def test_an_lmdb_environment_that_is_open_in_the_trainer_is_opened_again_in_workers(way: Way, tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "numbers")) as environment, environment.begin(write=True) as transaction:
        for number in range(32):
            transaction.put(str(number).encode(), str(number * number).encode())
    dataset = Database(tmp_path / "numbers")
    with dataset.environment:
        assert dataset[3] == 9
        numbers = observe(way, lambda make: [each for batch in make(dataset, batch_size=8) for each in batch.tolist()])
        assert numbers == [number * number for number in range(32)]
        assert dataset[5] == 25
