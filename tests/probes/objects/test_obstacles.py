"""What stands in the way of spawn is named by path and line; what does not is not."""

import multiprocessing
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import lmdb
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from antifreeze.doctor.facts import Loader, Obstacle
from antifreeze.probes.objects import look_at
from antifreeze.probes.objects.obstacles import MOST_OBSTACLES, hidden_names


class Samples(Dataset[int]):
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class Locked(Samples):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Refusing:
    def __reduce__(self) -> Any:
        raise TypeError("not this one\nfor a reason")


def looked_at(dataset: Any, **options: Any) -> Loader:
    return look_at(DataLoader(dataset, num_workers=2, **options), number=0)


def only_obstacle(dataset: Any, **options: Any) -> Obstacle:
    loader = looked_at(dataset, **options)
    assert "obstacles" not in loader.unseen
    (found,) = loader.obstacles
    return found


def test_a_lock_is_named_with_the_line_that_makes_it() -> None:
    found = only_obstacle(Locked())
    assert (found.path, found.what) == ("dataset.lock", "a _thread.lock")
    assert found.why == "TypeError: cannot pickle '_thread.lock' object"
    assert found.place is not None and found.place.text == "self.lock = threading.Lock()"
    assert not found.is_main_guard


def test_a_lambda_is_named_with_its_own_line_and_in_the_words_of_pickle() -> None:
    found = only_obstacle(Samples(transform=[lambda x: x]))
    assert found.path == "dataset.transform[0]"
    assert found.what.startswith("the function test_a_lambda_") and "test_obstacles.py:" in found.what
    assert "Can't pickle" in found.why and "0x" not in found.why
    assert found.place is not None and "lambda x: x" in found.place.text


def test_a_local_class_is_named() -> None:
    class Local(Samples):
        pass

    found = only_obstacle(Local())
    assert "<locals>.Local" in found.what
    assert found.place is not None and found.place.text == "class Local(Samples):"


def test_the_collate_function_is_looked_at_as_well() -> None:
    found = only_obstacle(Samples(), collate_fn=lambda samples: samples)
    assert found.path == "collate_fn"


def test_what_refuses_by_itself_is_named_with_the_first_line_of_its_words() -> None:
    found = only_obstacle(Samples(thing=Refusing()))
    assert (found.path, found.why) == ("dataset.thing", "TypeError: not this one")


def test_several_obstacles_are_told_the_first_first_and_each_once() -> None:
    lock = threading.Lock()
    steps = [lambda x: x for _ in range(3)]
    found = looked_at(Samples(a=lock, b=steps, c=lock)).obstacles
    assert [each.path for each in found] == ["dataset.a", "dataset.b[0]"]
    many = {f"a{i}": threading.Lock() for i in range(2 * MOST_OBSTACLES)}
    assert len(looked_at(Samples(**many)).obstacles) == MOST_OBSTACLES


class Pooled(Samples):
    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(1)


def test_of_something_with_several_bad_parts_only_the_first_is_told() -> None:
    found = only_obstacle(Pooled())
    assert found.path == "dataset.pool._work_queue"
    assert found.place is not None and found.place.text == "self.pool = ThreadPoolExecutor(1)"


def connections() -> Any:
    one, other = multiprocessing.get_context("spawn").Pipe()
    return [one, other]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(10),
        lambda: torch.zeros(10),
        lambda: torch.nn.Linear(2, 2),
        lambda: multiprocessing.get_context("fork").Lock(),
        connections,
        socket.socketpair,
        lambda: {"a": {1: [Path("/"), len, np.random.default_rng(0), torch.float32, torch.Generator()]}},
    ],
)
def test_what_multiprocessing_and_torch_can_send_is_no_obstacle(make: Callable[[], Any]) -> None:
    thing = make()
    assert looked_at(Samples(thing=thing), multiprocessing_context="fork").obstacles == ()
    for each in thing if isinstance(thing, list | tuple) else ():
        each.close()


def test_a_lock_made_for_forks_is_an_obstacle_where_workers_are_spawned() -> None:
    lock = multiprocessing.get_context("fork").Lock()
    found = only_obstacle(Samples(lock=lock), multiprocessing_context="spawn")
    assert found.path.startswith("dataset.lock") and "fork context" in found.why


def test_tensors_stay_where_they_are() -> None:
    tensor = torch.zeros(1000)
    address = tensor.data_ptr()
    assert looked_at(Samples(tensor=tensor)).obstacles == ()
    assert not tensor.is_shared() and tensor.data_ptr() == address


def test_a_tensor_in_the_middle_of_a_computation_is_an_obstacle() -> None:
    found = only_obstacle(Samples(tensor=torch.zeros(2, requires_grad=True) * 2))
    assert found.path == "dataset.tensor" and "non-leaf" in found.why


def test_our_crossing_is_asked_too(tmp_path: Path) -> None:
    assert looked_at(Locked()).crosses is True
    assert looked_at(Samples(transform=lambda x: x)).crosses is True
    assert looked_at(Samples(thing=Refusing())).crosses is False
    assert looked_at(Samples(lines=(line for line in "ab"))).crosses is False
    with lmdb.open(str(tmp_path / "db")) as environment:
        loader = looked_at(Samples(env=environment))
        assert loader.crosses is True
        assert [each.path for each in loader.obstacles] == ["dataset.env"]


def test_of_a_notebook_another_process_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert hidden_names() is None


SCRIPT = """
import multiprocessing
import sys
from torch.utils.data import DataLoader, Dataset
from antifreeze.probes.objects import look_at

class Base(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return i

class Outside(Base):
    pass

if sys.argv:
    class Somewhere(Base):
        pass

def collate(samples):
    return samples

if __name__ == "__main__":
    class Guarded(Base):
        pass

    def collate_here(samples):
        return samples

    if sys.argv:
        def collate(samples):
            return samples

    spawn = multiprocessing.get_context("spawn")  # whose locks and memory can be sent, and need a process beside them
    outside = Outside()
    outside.held = spawn.Lock(), spawn.Value("i", 1), spawn.Queue()
    assert not look_at(DataLoader(outside, num_workers=1, multiprocessing_context="spawn"), number=0).obstacles
    for kind, function in ((Outside, None), (Somewhere, collate), (Guarded, collate_here)):
        for each in look_at(DataLoader(kind(), collate_fn=function), number=0).obstacles:
            print(each.path, "|", each.what, "|", each.place, "|", each.is_main_guard)
"""


@pytest.mark.fallback
def test_what_is_defined_under_the_main_guard_cannot_be_found_by_a_new_process(run_script: Callable[..., Any]) -> None:
    ended = run_script(SCRIPT).check()
    assert ended.stdout.splitlines() == [
        "dataset.__class__ | the class Guarded at script_0.py:24 | script_0.py:24 | True",
        "collate_fn | the function collate_here at script_0.py:27 | script_0.py:27 | True",
    ]
