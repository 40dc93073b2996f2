"""A small epoch on our engine and on torch's own, compared bit for bit.

Two workers; batches that are stacked and batches that are pickled; nested containers, texts, strided and sparse tensors;
random numbers of torch, `random` and numpy. All of it is made anew in each worker, from its seed.

Where torch's own workers cannot do that (`/dev/shm` is full, there are too few descriptors), our engine is needed most.
There its batches are compared with those that torch loads in one process, with the seeds of workers.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.worker.birth import new_generator, seed_worker
from antifreeze.torch_side.loaders import LocalIterator, WorkersIterator
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

WORKERS = 2
# Four batches: each worker makes two, so that the second one shows what the first has left behind.
SAMPLES = 8
BATCH_SIZE = 2
# A batch of it is larger than what is copied out of a slot (64 KiB): it is lent.
LARGE = (96, 128)
SEED = 20_110_111
# So long torch's workers may take for a batch. With little room in `/dev/shm` they hang.
TORCHS_BATCH_S = 5.0


class Comparison(NamedTuple):
    """What a trial has found."""

    difference: str | None
    """The first one, in words; None: there is none."""
    torchs_failure: str | None
    """Why torch's own workers have given no batches to compare with; None: they have."""


class Samples(Dataset[Any]):
    """A little of everything that datasets give."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        drawn = torch.rand(3), random.random(), float(np.random.random()) if HAS_NUMPY else 0.0
        image = torch.arange(LARGE[0] * LARGE[1], dtype=torch.float32).reshape(LARGE) + index
        return {
            "index": index,
            "name": f"sample {index}",
            "drawn": drawn,
            "image": image,
            "flags": [index % 2 == 0, None],
        }


def unusual(samples: list[dict[str, Any]]) -> Any:
    """A batch that `default_collate` would not make: strided views, shared and sparse tensors, whatever can be pickled."""
    images = torch.stack([sample["image"] for sample in samples])
    rows = images[:, :4, :6]
    return (
        [(sample["index"], sample["name"], sample["drawn"], sample["flags"]) for sample in samples],
        {"strided": images.transpose(1, 2)[:, ::7], "shared": (rows, rows[0].t())},
        {"coo": (rows[0] - rows[0, 0, 0]).to_sparse(), "csr": (rows[0] % 3).to_sparse_csr(), "none": torch.empty(0, 3)},
        b"bytes",
        torch.ones(2, requires_grad=True),
    )


class Stackable(Samples):
    """The same, for `default_collate`."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: value for name, value in super().__getitem__(index).items() if name != "flags"}


def run(ours: Callable[[Any], Any]) -> Comparison:
    """Compare the batches of our iterator with torch's; raises what our engine raises."""
    has_other_device = torch.get_default_device().type != "cpu"
    device = torch.device("cpu") if has_other_device else contextlib.nullcontext()
    failure: str | None = None
    with warnings.catch_warnings(), device, torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")
        torch.set_default_dtype(torch.float32)
        for dataset, collate_fn in ((Stackable(), None), (Samples(), unusual)):
            mine = list(ours(_loader(dataset, collate_fn)))
            reference: list[Any] = []
            if failure is None:
                try:
                    reference = list(WorkersIterator(_loader(dataset, collate_fn, timeout=TORCHS_BATCH_S)))
                except Exception as error:  # of the machine, most likely
                    failure = f"{type(error).__name__}: {error}"
            if failure is not None:
                reference = _loaded_here(dataset, collate_fn)
            found = difference(mine, reference, "batches")
            if found is not None:
                return Comparison(found, failure)
    return Comparison(None, failure)


def _loader(dataset: Any, collate_fn: Any, *, workers: int = WORKERS, timeout: float = 0) -> Any:
    return DataLoader(
        dataset,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=workers,
        collate_fn=collate_fn,
        multiprocessing_context="fork" if workers else None,
        generator=new_generator(SEED),
        timeout=timeout,
    )


def _loaded_here(dataset: Any, collate_fn: Any) -> list[Any]:
    """The batches of torch's workers, made by torch in this process, with the seeds of each worker."""
    batches: dict[int, Any] = {}
    for worker in range(WORKERS):
        iterator: Any = LocalIterator(_loader(dataset, collate_fn, workers=0))
        seed_worker(int(iterator._base_seed), WorkerNo(worker))
        for number, indices in enumerate(iterator._sampler_iter):
            if number % WORKERS == worker:
                batches[number] = iterator._dataset_fetcher.fetch(indices)
    return [batches[number] for number in sorted(batches)]


def difference(ours: Any, torchs: Any, where: str) -> str | None:
    """Where two batches differ, and how; None: they are the same."""
    if type(ours) is not type(torchs):
        return f"{where} is a {type(ours).__name__}, and torch's is a {type(torchs).__name__}"
    if isinstance(ours, torch.Tensor):
        return _difference_of_tensors(ours, torchs, where)
    if isinstance(ours, Mapping):
        if list(ours) != list(torchs):
            return f"{where} has the keys {list(ours)}, and torch's {list(torchs)}"
        return _first(difference(ours[key], torchs[key], f"{where}[{key!r}]") for key in ours)
    if isinstance(ours, Sequence) and not isinstance(ours, str | bytes):
        if len(ours) != len(torchs):
            return f"{where} has {len(ours)} elements, and torch's {len(torchs)}"
        pairs = enumerate(zip(ours, torchs, strict=True))
        return _first(difference(one, other, f"{where}[{number}]") for number, (one, other) in pairs)
    return None if ours == torchs else f"{where} is {ours!r}, and torch's is {torchs!r}"


def _difference_of_tensors(ours: torch.Tensor, torchs: torch.Tensor, where: str) -> str | None:
    found = difference(_traits(ours), _traits(torchs), where)
    if found is not None:
        return found
    return None if torch.equal(ours.to_dense(), torchs.to_dense()) else f"{where} has other numbers than torch's"


def _traits(tensor: torch.Tensor) -> dict[str, str]:
    traits: dict[str, Any] = {"dtype": tensor.dtype, "layout": tensor.layout, "shape": tuple(tensor.shape)}
    traits |= {"device": tensor.device, "requires_grad": tensor.requires_grad}
    traits["stride"] = tensor.stride() if tensor.layout is torch.strided else None
    return {name: str(value) for name, value in traits.items()}


def _first(found: Any) -> str | None:
    return next((each for each in found if each is not None), None)
