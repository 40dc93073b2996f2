"""Where memory runs short: workers wait for it, give it back, and are ended before the trainer."""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from antifreeze import machine
from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.supervise import watchdog
from antifreeze.observe.ledger import Kind
from drop_in.harness import our_way
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")


class Rows(Dataset[Any]):
    """Rows of 200 kB that hold random numbers, after the index."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.cat([torch.tensor([float(index)]), torch.rand(50_000)])


class Score(Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return oom_score()


def oom_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


@pytest.mark.parametrize("stem", ["grown", "clean"])
def test_the_kernel_ends_a_worker_before_the_trainer(stem: str) -> None:
    (batch,) = our_way(stem).make(Score(), batch_size=2, num_workers=1)
    assert batch.tolist() == [min(1000, oom_score() + 500)] * 2


class Headroom:
    """Workers find no memory until the trainer has given back what is free, if that is to help."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, comes_back: bool) -> None:
        self._shared = mmap.mmap(-1, 1)
        trainer, available, give_back = os.getpid(), machine.available_memory, Arena.give_back_free
        monkeypatch.setattr(
            machine, "available_memory", lambda: available() if os.getpid() == trainer or self._shared[0] else 0
        )

        def give(arena: Arena) -> None:
            give_back(arena)
            self._shared[0] = comes_back

        monkeypatch.setattr(Arena, "give_back_free", give)


def rows() -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(5)
    loader = our_way("grown").make(Rows(), batch_size=2, num_workers=2)
    return loader, [batch.clone() for batch in loader]


def test_a_shortage_that_passes_costs_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected = rows()
    Headroom(monkeypatch, comes_back=True)
    loader, batches = rows()
    assert torch.stack(batches).equal(torch.stack(expected))
    assert set(loader.ledger.counts) == {Kind.MEMORY_SHORT}


def test_after_a_shortage_that_does_not_pass_the_rest_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected = rows()
    Headroom(monkeypatch, comes_back=False)
    monkeypatch.setattr(watchdog, "STARVED_S", 1.0)
    loader, batches = rows()
    assert torch.stack(batches).equal(torch.stack(expected))
    assert loader.ledger.counts[Kind.IN_PROCESS] == 1


TIGHT = """
import sys
from pathlib import Path

import torch
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Rows(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.full((2_500_000,), float(index))


if __name__ == "__main__":
    limit, used = map(Path, sys.argv[1:])
    limit.write_text(str(int(used.read_text()) + (300 << 20)))  # for workers, and for batches of 20 MB
    loader = DataLoader(Rows(), batch_size=2, num_workers=4, multiprocessing_context="fork")
    assert [float(batch[1, -1]) for batch in loader] == [float(index) for index in range(1, 40, 2)]
    print("OK")
"""


@pytest.fixture
def memory_cgroup() -> Iterator[tuple[Path, Path, Path]]:
    """A cgroup of the script's own, the file of its limit, and that of what it uses."""
    above = Path("/sys/fs/cgroup/memory")
    names = "memory.limit_in_bytes", "memory.usage_in_bytes"
    if not above.is_dir():
        above, names = Path("/sys/fs/cgroup"), ("memory.max", "memory.current")
    cgroup = above / f"antifreeze-test-{os.getpid()}"
    limit, used = (cgroup / name for name in names)
    try:
        cgroup.mkdir()
    except OSError as why:
        pytest.skip(f"no memory cgroup can be made here: {why}")
    try:
        if not limit.exists():
            pytest.skip("cgroups cannot limit memory here")
        yield cgroup / "cgroup.procs", limit, used
    finally:
        cgroup.rmdir()


@pytest.mark.long
def test_a_tight_memory_cgroup_costs_workers_and_never_the_trainer(
    run_script: Callable[..., Ended], memory_cgroup: tuple[Path, Path, Path]
) -> None:
    members, limit, used = memory_cgroup
    enter = f'echo $$ > {members} && exec "$@"'
    ended = run_script(TIGHT, str(limit), str(used), wrapper=("sh", "-c", enter, "sh"))
    assert ended.check().stdout == "OK\n"
