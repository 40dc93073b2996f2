"""What becomes of a batch when it is copied, saved, moved or sent to another process: the same as with torch's."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from drop_in.harness import TORCH, Way, assert_same, tidy_up, torch_may_fork
from drop_in.kinds import LARGE, SMALL, as_it_is, floats, with_attribute
from drop_in.portrait import Portrait, Raised, differences, portrait
from drop_in.user_types import Labelled, Plain
from user_scripts import Ended, Script


class Relatives(Dataset[Any]):
    """Tensors that share memory, one that does not, and an array."""

    def __getitem__(self, size: int) -> Any:
        whole = floats(2, size)
        return {
            "whole": whole,
            "row": whole[1],
            "turned": whole.t(),
            "again": whole,
            "alone": floats(size),
            "label": torch.tensor(7),
            "array": np.arange(size),
            "leaf": floats(size).requires_grad_(),
            "labelled": with_attribute(floats(size).as_subclass(Labelled), label="kept"),
            "object": Plain(floats(3), ["text"]),
        }


def through_torch_save(thing: Any) -> Any:
    stream = io.BytesIO()
    torch.save(thing, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def resized(tensor: torch.Tensor, *shape: int) -> torch.Tensor:
    """As far as it is filled; the rest is anybody's guess."""
    before = tensor.numel()
    return tensor.resize_(shape).flatten()[:before].clone()


def set_to(batch: Any) -> Any:
    batch["alone"].set_(batch["whole"])
    return batch


def in_place(batch: Any) -> Any:
    batch["whole"].mul_(2)
    batch["row"].add_(1)
    batch["array"] += 1
    batch["labelled"].neg_()
    with torch.no_grad():
        batch["leaf"].zero_()
    return batch


def shared(batch: Any) -> Any:
    return {name: part.share_memory_() for name, part in batch.items() if isinstance(part, torch.Tensor)}


def shared_and_changed(batch: Any) -> Any:
    batch["whole"].share_memory_()
    batch["whole"].fill_(5)
    return batch


def moved(batch: Any) -> Any:
    return {name: part.to(torch.float64).to("cpu", copy=True) for name, part in batch.items() if torch.is_tensor(part)}


def given_away(batch: Any) -> Any:
    """A model that takes the tensors of a batch for its own."""
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight = torch.nn.Parameter(batch["alone"][:4].view(2, 2))
    return copy.deepcopy(layer.state_dict())


def swapped(batch: Any) -> Any:
    batch["alone"].data, batch["label"].data = batch["label"].float(), batch["alone"].long()
    return batch


def apart(batch: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    return pickle.loads(pickle.dumps(batch, 5, buffer_callback=buffers.append), buffers=buffers)


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda batch: batch,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "pickle, with buffers apart": apart,
    "deepcopy": lambda batch: copy.deepcopy({name: part for name, part in batch.items() if name != "labelled"}),
    "copy": lambda batch: {name: copy.copy(part) for name, part in batch.items()},
    "torch.save": through_torch_save,
    "clone": lambda batch: {name: part.clone() for name, part in batch.items() if torch.is_tensor(part)},
    "in place": in_place,
    "share_memory_": shared,
    "share_memory_, then a change": shared_and_changed,
    "to": moved,
    "set_": set_to,
    "swapped": swapped,
    "a model's": given_away,
    "resize_ to less": lambda batch: resized(batch["alone"], 3),
    "resize_ to as much": lambda batch: resized(batch["alone"], batch["alone"].numel(), 1),
    "resize_ to more": lambda batch: resized(batch["alone"], 10 * LARGE),
    "resize_ of a small one": lambda batch: resized(batch["label"], 100),
    "storage resized": lambda batch: batch["alone"].untyped_storage().resize_(10 * LARGE).nbytes(),
    "storage emptied": lambda batch: batch["alone"].untyped_storage().resize_(0).nbytes(),
    "array resized": lambda batch: np.resize(batch["array"], 20),
    "unsqueezed in place": lambda batch: batch["alone"].unsqueeze_(0).t_(),
    "as strided": lambda batch: batch["row"].as_strided((2, 2), (1, 1)),
}


def look(way: Way) -> dict[tuple[str, int], Portrait | Raised]:
    """What every action comes to."""
    wanted = [(name, size) for name in ACTIONS for size in (SMALL, LARGE)]
    options = {"sampler": [size for _, size in wanted], "batch_size": None, "collate_fn": as_it_is, "num_workers": 1}
    seen = {}
    for (name, size), batch in zip(wanted, way.make(Relatives(), **options), strict=True):
        try:
            seen[name, size] = portrait(ACTIONS[name](batch))
        except RuntimeError as error:
            seen[name, size] = Raised(type(error), tuple(str(error).splitlines()))
    return seen


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, int], Portrait | Raised]:
    with torch_may_fork():
        seen = look(TORCH)
    tidy_up()
    return seen


def test_whatever_is_done_to_a_batch_has_the_same_result(ours: Way, expected: Any) -> None:
    found = []
    for action, have in look(ours).items():
        want = expected[action]
        if isinstance(want, Raised) or isinstance(have, Raised):
            found += [f"{action}: {have} instead of {want}"] if type(want) is not type(have) else []
        else:
            found += [f"{action}: {line}" for line in differences(want, have)[:3]]
    assert not found, "\n" + "\n".join(found)


PREAMBLE = f"""
import itertools
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
import torch.multiprocessing as mp
from antifreeze import DataLoader
from drop_in.kinds import LARGE, SMALL, as_it_is
from drop_in.test_batch_elsewhere import Relatives

SIZES = [SMALL, LARGE] * 8


def make():
    options = dict(sampler=SIZES, batch_size=None, collate_fn=as_it_is, num_workers=2, multiprocessing_context="fork")
    return DataLoader(Relatives(), **options)
"""

SEND = """
def answer(wanted, answers):
    for batch in iter(wanted.get, None):
        value = float(batch["whole"][1, -1])
        batch["row"].mul_(-1)
        answers.put((value, float(batch["whole"][1, -1]), int(batch["array"][-1]), batch["labelled"].label))
        del batch


def last(batch):
    return float(batch["whole"][1, -1]), batch["alone"] + 1, batch["array"] * 2


def send(strategy):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    wanted, answers = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=(wanted, answers), daemon=True)
    child.start()
    kept = []
    for size, batch in zip(SIZES, make()):
        value = 2.0 * size - 1
        wanted.put(batch)
        assert answers.get(timeout=20) == (value, -value, size - 1, "kept"), "what the other process sees"
        assert float(batch["whole"][1, -1]) == -value, "what the other process did: a tensor that is sent is shared"
        assert float(batch["row"][-1]) == -value
        kept.append((size, batch))
    for size, batch in kept:
        assert float(batch["row"][-1]) == 1 - 2.0 * size and float(batch["whole"][0, -1]) == size - 1, "later"
        assert torch.equal(batch["alone"], torch.arange(size, dtype=torch.float32))
    wanted.put(None)
    child.join(20)
    assert child.exitcode == 0
    with context.Pool(1) as pool:
        for size, batch in zip(SIZES, make()):
            part = {name: batch[name] for name in ("whole", "alone", "array")}
            value, alone, array = pool.apply_async(last, (part,)).get(20)
            assert value == 2.0 * size - 1
            assert torch.equal(alone, batch["alone"] + 1) and (array == batch["array"] * 2).all()
            del alone, array


if __name__ == "__main__":
    for strategy in ("file_descriptor", "file_system"):
        send(strategy)
    print("OK")
"""

INHERIT = """
def check(batch, size, go_on, answers):
    go_on.wait(20)
    answers.put(torch.equal(batch["whole"].flatten(), torch.arange(2.0 * size)) and int(batch["array"].sum()))


if __name__ == "__main__":
    context = mp.get_context("fork")
    answers, go_on = context.SimpleQueue(), context.Event()
    children = []
    for number, (size, batch) in enumerate(zip(SIZES, make())):
        if number < 4:
            children.append(context.Process(target=check, args=(batch, size, go_on, answers), daemon=True))
            children[-1].start()  # and it alone holds the batch from now on
        else:
            batch["whole"].fill_(-3)
            batch["array"].fill(-3)
    go_on.set()
    assert sorted(answers.get() for _ in children) == sorted(sum(range(size)) for size in SIZES[:4])
    for child in children:
        child.join(20)
        assert child.exitcode == 0
    print("OK")
"""


def test_a_batch_may_be_sent_to_another_process(start_script: Callable[..., Script]) -> None:
    script = start_script(PREAMBLE + SEND)
    ended = script.wait_exit(within_s=60)
    script.assert_gone()  # torch's manager of shared files takes its time to clean up
    assert ended.check().stdout == "OK\n"


def test_a_batch_that_another_process_has_inherited_is_not_written_over(run_script: Callable[..., Ended]) -> None:
    assert run_script(PREAMBLE + INHERIT).check().stdout == "OK\n"


PRIVATE = """
if __name__ == "__main__":
    context = mp.get_context("fork")
    held = [batch["array"] for batch in itertools.islice(make(), 4)]
    before = [array.copy() for array in held]
    child_may = context.Event()
    answers = context.SimpleQueue()

    def change():
        for array in held:
            array += 5
        child_may.wait(20)
        answers.put(all((array == was + 5).all() for array, was in zip(held, before)))

    child = context.Process(target=change, daemon=True)
    child.start()
    for array, was in zip(held, before):
        array *= 2
    child_may.set()
    assert answers.get()
    child.join(20)
    assert all((array == was * 2).all() for array, was in zip(held, before))
    print("OK")
"""


def test_arrays_of_a_batch_are_not_shared_with_a_process_that_inherits_them(run_script: Callable[..., Ended]) -> None:
    """As with torch, whose tensors are shared then, but not its arrays."""
    assert run_script(PREAMBLE + PRIVATE).check().stdout == "OK\n"


class Shared(Dataset[Any]):
    """Gives tensors that were shared before there were workers, and one that the worker shares itself."""

    def __init__(self) -> None:
        self.counts = torch.zeros(4).share_memory_()
        self.table = torch.zeros(3, 40_000).share_memory_()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        made_here = torch.full((5,), float(index)).share_memory_()
        return {"counts": self.counts, "row": self.table[index], "turned": self.table.t(), "made here": made_here}


def test_what_was_shared_before_the_workers_began_arrives_as_the_same_memory(ours: Way) -> None:
    """As with torch: so a trainer can write into what its workers read."""

    def case(make: Any) -> Any:
        dataset = Shared()
        loader = make(dataset, batch_size=None, num_workers=1, persistent_workers=True)
        seen = []
        for _ in range(2):
            for index, batch in enumerate(loader):
                seen.append((batch["counts"].clone(), batch["row"][:3].clone(), batch["made here"].clone()))
                batch["counts"] += 1
                batch["row"][0] += index + 1
                assert batch["counts"].is_shared() and batch["row"].is_shared()
                assert batch["turned"].untyped_storage().data_ptr() == batch["row"].untyped_storage().data_ptr()
        return [tuple(part.tolist() for part in parts) for parts in seen[3:]], dataset.counts, dataset.table[:, :2]

    assert_same(ours, case)
