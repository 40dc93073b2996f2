"""Workers of every engine read a packed sequence, which is in memory once."""

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, get_worker_info

from antifreeze import packed
from antifreeze.packing import Packed
from drop_in.harness import TORCH, Way, observe, tidy_up
from user_scripts import Ended

ELEMENTS = [{"path": f"/data/{number}.jpg", "label": number} for number in range(64)]


class Records(Dataset[Any]):
    def __init__(self, records: Packed[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        record = self.records[index]
        return record["path"], record["label"], is_memory_without_a_name(), get_worker_info() is not None


def is_memory_without_a_name() -> bool:
    return bool(re.search(r"rw-s .*/memfd:antifreeze-packed", Path("/proc/self/maps").read_text()))


def seen_by_workers(make: Callable[..., Any]) -> list[Any]:
    return [row for batch in make(Records(packed(ELEMENTS)), batch_size=8) for row in zip(*batch, strict=True)]


def test_workers_of_ours_read_it_where_it_lies(way: Way) -> None:
    rows = observe(way, seen_by_workers)
    assert [(path, int(label)) for path, label, _, _ in rows] == [(each["path"], each["label"]) for each in ELEMENTS]
    assert all(is_shared and is_worker for _, _, is_shared, is_worker in rows)


def test_forked_workers_of_torch_read_it_where_it_lies() -> None:
    rows = observe(TORCH, seen_by_workers)
    tidy_up()
    assert [int(label) for _, label, _, _ in rows] == list(range(64))
    assert all(is_shared and is_worker for _, _, is_shared, is_worker in rows)


SPAWNED = f"""
import json, os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch.utils.data
from processes.test_packed import seen_by_workers

if __name__ == "__main__":
    def make(dataset, **options):
        return torch.utils.data.DataLoader(dataset, num_workers=1, multiprocessing_context=sys.argv[1], **options)

    own = f"torch_{{os.getpid()}}_"
    rows = [[path, int(label), bool(is_shared), bool(is_worker)] for path, label, is_shared, is_worker in
            seen_by_workers(make)]
    print(json.dumps([rows, [name for name in os.listdir("/dev/shm") if name.startswith(own)]]))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_of_torch_read_it_where_it_lies(run_script: Callable[..., Ended], method: str) -> None:
    ended = run_script(SPAWNED, method).check()
    rows, in_shm = json.loads(ended.stdout)
    assert rows == [[each["path"], each["label"], True, True] for each in ELEMENTS]
    assert in_shm == []


OWN_CLASSES = textwrap.dedent("""
    import dataclasses
    import antifreeze, torch

    @dataclasses.dataclass
    class Box:
        left: int

    class Boxes(torch.utils.data.Dataset):
        def __init__(self):
            self.boxes = antifreeze.packed(Box(number) for number in range(8))
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return self.boxes[index].left

    loader = antifreeze.DataLoader(Boxes(), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
""")


@pytest.mark.long
@pytest.mark.usefixtures("not_for_torch")
def test_elements_of_classes_of_a_script_without_a_guard_reach_a_clean_stem(run_script: Callable[..., Ended]) -> None:
    ended = run_script(OWN_CLASSES, env={"ANTIFREEZE": "require"}).check()
    assert ended.stdout == "[[0, 1, 2, 3], [4, 5, 6, 7]]\n"
