"""Ten thousand batches of every structure cost no more descriptors and no more memory than the first hundred.

That kept batches cost no descriptors either, and that large ones pass where `/dev/shm` is small, is in
`processes/test_memory.py`.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from torch.utils.data import Dataset

from drop_in.harness import Way
from user_scripts import Ended

pytestmark = [pytest.mark.usefixtures("not_for_torch")]

BATCHES = {"grown": 10_000, "clean": 2_000}


class Everyday(Dataset[Any]):
    """Dicts of small tensors; now and then something else, and now and then something large."""

    def __getitem__(self, index: int) -> Any:
        sample: dict[str, Any] = {f"field {k}": torch.full((32,), float(index)) for k in range(4)}
        if index % 7 == 3:
            sample["name"] = f"sample {index}"
        if index % 11 == 5:
            sample["strided"] = torch.full((2, 3), float(index)).t()
        if index % 501 == 500 or 100 <= index < 200:  # so many at first that there are as many slots as there will be
            sample["large"] = torch.full((30_000 + index % 97,), float(index))
        return sample


def processes() -> list[int]:
    """This one, the stem and the workers."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def mapped_bytes(pid: int, what: str) -> int:
    spans = re.findall(rf"^(\w+)-(\w+) .*{what}", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


class Usage(NamedTuple):
    """What one process has of things that could run out."""

    descriptors: int
    slot_bytes: int
    shm_bytes: int
    """Of torch's segments; semaphores lie there, too, of whoever ran in this process before."""


def usage() -> dict[int, Usage]:
    found = {}
    for pid in processes():
        with contextlib.suppress(OSError):  # one of an earlier loader, about to end
            found[pid] = Usage(descriptors(pid), mapped_bytes(pid, "/memfd:"), mapped_bytes(pid, "/dev/shm/torch"))
    return found


def test_ten_thousand_batches_cost_no_more_than_the_first_hundreds(ours: Way) -> None:
    count = BATCHES[ours.name]
    early: dict[int, Usage] = {}
    late: dict[int, Usage] = {}
    for number, batch in enumerate(ours.make(Everyday(), batch_sampler=[[number] for number in range(count)])):
        assert batch["field 3"][0, 31] == number
        if number == 600:
            early = usage()
        if number == count - 20:
            late = usage()
        del batch
    assert len(early.keys() & late.keys()) >= 4, "this process, a stem and two workers"
    for pid in early.keys() & late.keys():
        assert late[pid].descriptors <= early[pid].descriptors, f"process {pid}: {early[pid]}, then {late[pid]}"
        assert late[pid].slot_bytes <= early[pid].slot_bytes + (1 << 20), (
            f"process {pid}: {early[pid]}, then {late[pid]}"
        )
        assert late[pid].shm_bytes == 0, f"process {pid} has {late[pid].shm_bytes} bytes of /dev/shm"


SMALL = f"""
import os, sys, warnings
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
warnings.simplefilter("ignore")
from antifreeze import DataLoader
from drop_in.kinds import KINDS, LARGE, Index, Kinds, as_it_is

SHARED = ("tensor: in shared memory", "tensor: meta")
WANTED = [Index(name, LARGE) for name in KINDS if name not in SHARED]


def run(**options):
    batches, raised = iter(DataLoader(Kinds(), num_workers=2, multiprocessing_context="fork", **options)), []
    for index in WANTED:
        try:
            next(batches)
        except StopIteration:
            raise AssertionError("a batch is missing")
        except Exception as error:
            raised.append((index.name, type(error).__name__, str(error)))
    return raised


if __name__ == "__main__":
    about = os.statvfs("/dev/shm")
    assert about.f_blocks * about.f_frsize <= 1 << 16, "the small /dev/shm is not there"
    told = run(sampler=WANTED, batch_size=None, collate_fn=as_it_is) + run(batch_sampler=[[one, one] for one in WANTED])
    for name, kind, text in told:
        assert "No space" not in text and "shm" not in text and "Bus error" not in text, (name, kind, text)
    print("OK")
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a mount namespace needs root")
def test_no_kind_of_batch_needs_room_in_dev_shm(run_script: Callable[..., Ended]) -> None:
    """64 KiB are less than any of the tensors."""
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    wrapper = ("unshare", "-m", "--", "sh", "-c", mount, "sh")
    assert run_script(SMALL, wrapper=wrapper).check().stdout == "OK\n"
