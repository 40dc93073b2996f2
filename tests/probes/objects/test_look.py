"""One look tells all about a loader, in two seconds at most, and the program does not notice it."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler

from antifreeze.doctor.facts import Facts, Loader, Place
from antifreeze.probes.objects import look_at

MOST_S = 2.0
SLACK_S = 60.0  # of a busy machine; what hangs would take forever


class Samples(Dataset[int]):
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


class Order(Sampler[int]):
    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def collate(samples: list[int]) -> list[int]:
    return samples


def prepare(worker: int) -> None:
    """Nothing."""


def look(loader: Any) -> Loader:
    return look_at(loader, number=3, built_at=Place("train.py", 1), iterated_at=Place("train.py", 2))


def test_all_settings_are_told() -> None:
    loader = DataLoader(
        Samples(),
        batch_size=4,
        sampler=Order(),
        num_workers=2,
        prefetch_factor=5,
        persistent_workers=True,
        timeout=7,
        in_order=False,
        multiprocessing_context="spawn",
        collate_fn=collate,
        worker_init_fn=prepare,
    )
    facts = look(loader)
    assert facts.unseen == ()
    assert (facts.number, facts.built_at, facts.iterated_at) == (3, Place("train.py", 1), Place("train.py", 2))
    assert (facts.num_workers, facts.batch_size, facts.prefetch_factor) == (2, 4, 5)
    assert (facts.persistent_workers, facts.pin_memory, facts.timeout_s, facts.in_order) == (True, False, 7.0, False)
    assert (facts.start_method, facts.is_iterable) == ("spawn", False)
    assert (facts.samples, facts.batches) == (10, 3)
    assert facts.dataset.endswith("test_look.Samples") and facts.sampler.endswith("test_look.Order")
    assert facts.dataset_at is not None and facts.dataset_at.text == "class Samples(Dataset[int]):"
    assert not facts.has_default_collate
    assert facts.collate_at is not None and facts.collate_at.text.startswith("def collate(")
    assert facts.worker_init_at is not None and facts.worker_init_at.text.startswith("def prepare(")
    assert facts.obstacles == () and facts.crosses is True
    everything = Facts(loaders=(facts,))
    assert Facts.from_json(everything.to_json()) == everything


def test_what_is_torchs_own_is_not_told_as_the_users() -> None:
    facts = look(DataLoader(Samples(), num_workers=1))
    assert facts.has_default_collate and facts.collate_at is None and facts.worker_init_at is None
    assert (facts.sampler, facts.prefetch_factor) == ("", 2)
    facts = look(DataLoader(Samples(), batch_sampler=BatchSampler(SequentialSampler(range(10)), 5, drop_last=False)))
    assert (facts.batch_size, facts.sampler, facts.batches) == (5, "", 2)


def test_a_stream_has_no_number_of_samples() -> None:
    facts = look(DataLoader(Stream(), num_workers=1))
    assert facts.is_iterable and facts.samples is None and facts.batches is None


def test_asking_for_the_number_of_batches_of_a_stream_leaves_no_trace() -> None:
    class Counted(Stream):
        def __len__(self) -> int:
            return 7

    loader = DataLoader(Counted(), batch_size=2)
    assert look(loader).batches == 4
    assert loader._IterableDataset_len_called is None


# --- sick programs


class Hanging(Samples):
    def __len__(self) -> int:
        time.sleep(1000)
        return 10

    def __reduce__(self) -> Any:
        time.sleep(1000)


class Raising(Samples):
    def __len__(self) -> int:
        raise ValueError("how many?")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"do not ask for {name}")

    @property
    def trap(self) -> Any:
        raise RuntimeError("nor for this")


class Exiting(Samples):
    def __len__(self) -> int:
        raise SystemExit(3)

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


class Printing(Samples):
    def __len__(self) -> int:
        print("asked for its length")
        return 10

    def __reduce__(self) -> Any:
        print("asked to be pickled")
        return super().__reduce__()


def timed(loader: Any) -> Loader:
    began = time.monotonic()
    facts = look(loader)
    assert time.monotonic() - began < MOST_S + SLACK_S
    return facts


def test_what_hangs_is_left_unknown_in_time() -> None:
    facts = timed(DataLoader(Hanging(lock=multiprocessing.Lock()), num_workers=2))
    assert (facts.samples, facts.batches, facts.crosses, facts.obstacles) == (None, None, None, ())
    assert facts.unseen == ("obstacles",)
    assert facts.num_workers == 2
    assert [held.path for held in facts.held] == ["dataset.lock"]


def test_what_raises_is_left_unknown() -> None:
    facts = look(DataLoader(Raising(), sampler=Order(), num_workers=2))
    assert (facts.samples, facts.num_workers) == (None, 2)


def test_what_wants_to_leave_the_program_does_not() -> None:
    facts = look(DataLoader(Exiting(), sampler=Order(), num_workers=2))
    assert (facts.samples, facts.crosses) == (None, None)
    assert "obstacles" in facts.unseen


def test_what_prints_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(Printing(), sampler=Order(), num_workers=2)
    assert look(loader).samples == 10
    assert capfd.readouterr() == ("", "")


def test_a_loader_without_its_parts_is_looked_at_all_the_same() -> None:
    class Half(DataLoader[int]):
        def __init__(self) -> None:
            """Nothing of torch's."""

    facts = look(Half())
    assert "settings" in facts.unseen and facts.number == 3


def test_two_million_dicts_and_a_gigabyte_on_disk_take_no_longer(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 30)
    images = np.memmap(tmp_path / "big", np.uint8, "r")
    items = [{"number": i, "name": "x"} for i in range(2_000_000)]
    facts = timed(DataLoader(Samples(images=images, items=items), num_workers=2))
    assert facts.unseen == ()
    assert [(bulk.path, bulk.count) for bulk in facts.bulks] == [("dataset.items", 2_000_000)]
    assert facts.obstacles == ()


# --- the program stays as it is

UNCHANGED = """
import json, os, random, sys, threading, multiprocessing, gc
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Lines(Dataset):
    def __init__(self):
        self.file = open(__file__)
        self.file.readline()
        self.rng = np.random.default_rng(0)
        self.items = [str(i) for i in range(200_000)]
        self.transform = lambda x: x
    def __len__(self):
        random.random(); np.random.rand(); torch.rand(1)
        return 10
    def __getstate__(self):
        self.file.read(); self.rng.random()
        return self.__dict__
    def __getitem__(self, i):
        return i

def state():
    return json.dumps([
        random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
        str(ds.rng.bit_generator.state),
        sorted(os.listdir("/proc/self/fd")), ds.file.tell(), os.lseek(ds.file.fileno(), 0, os.SEEK_CUR),
        sorted(map(str, ds.__dict__)), threading.active_count(),
        torch.get_num_threads(), dict(os.environ), [str(sys.getrefcount(ds.transform))],
    ])

ds = Lines()
loader = DataLoader(ds, num_workers=2)
before, modules = state(), set(sys.modules)
from antifreeze.probes.objects import look_at
facts = look_at(loader, number=0)
assert before == state()
new = {name.partition(".")[0] for name in set(sys.modules) - modules if not name.startswith("_sysconfigdata")}
new -= sys.stdlib_module_names
assert new <= {"antifreeze", "cloudpickle", "threadpoolctl", "torch"}, new  # torch imports some of its parts late
assert facts.start_method == "fork" and facts.samples == 10, facts
multiprocessing.set_start_method("spawn")  # which is refused once it has been settled
assert look_at(loader, number=0).start_method == "spawn"
assert sum(len(batch) for batch in DataLoader(range(10), num_workers=1, multiprocessing_context="fork")) == 10
for each in (*facts.held, *facts.bulks, *facts.obstacles):
    print(each.path)
print(facts.dataset_at)
"""


@pytest.mark.long
@pytest.mark.fallback
def test_the_program_is_as_it_was(run_script: Callable[..., Any]) -> None:
    ended = run_script(UNCHANGED).check()
    *paths, dataset_at = ended.stdout.splitlines()
    assert set(paths) == {"dataset.file", "dataset.rng", "dataset.items", "dataset.transform"}
    assert dataset_at == "script_0.py:7"
    assert ended.stderr == ""


def test_a_look_from_another_thread_tells_the_threads() -> None:
    end = threading.Event()
    found: list[Loader] = []
    threads = [
        threading.Thread(target=end.wait, args=(10,), name="reader"),
        threading.Thread(target=lambda: found.append(look(DataLoader(Samples()))), name="trainer"),
        threading.Thread(target=end.wait, args=(10,), name="antifreeze-watch"),  # ours is not the program's
    ]
    for thread in threads:
        thread.start()
    threads[1].join(10)
    end.set()
    for thread in threads:
        thread.join(10)
    assert (found[0].samples, set(found[0].threads)) == (10, {"reader", "trainer"})


def test_torch_is_not_asked_to_initialise_a_gpu() -> None:
    assert look(DataLoader(Samples())).is_cuda_initialized is torch.cuda.is_initialized()
