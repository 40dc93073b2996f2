"""A forked process becomes a worker: seeds, threads, `get_worker_info()`, `worker_init_fn`, as torch does it.

The only file that seeds.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import random
import sys
from collections.abc import Mapping
from multiprocessing import util
from typing import Any

import torch

from antifreeze.engine.arena import shared
from antifreeze.engine.crossing.ways import Steps
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.worker.kinds import Shared, kind_of, seed_bits
from antifreeze.engine.worker.notices import Notices, watch_questions
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.threads import settle_threads
from antifreeze.torch_side import workers as torch_side
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:  # torch works without it
    import numpy as np

_stacks: int | None = None
"""The descriptor that this worker's stacks are written into; None in any other process."""


def become_worker(recipe: Recipe, worker: WorkerNo, notices: Notices) -> None:
    """All that must be so before the first sample; an error of `worker_init_fn` passes through."""
    torch_side.name_thread("pt_data_worker")
    shared.begin()
    settle_threads(recipe.worker_threads)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.base_seed + worker)  # of all devices
    watch_questions(notices)
    play_worker(recipe, worker)


def play_worker(recipe: Recipe, worker: WorkerNo) -> None:
    """What of a birth can be undone: seeds of this process's generators, `get_worker_info()`, `worker_init_fn`."""
    seed = seed_worker(recipe.base_seed, worker)
    seed_pipe(recipe.dataset, recipe.shared_seed)
    info = torch_side.new_worker_info(id=worker, num_workers=recipe.num_workers, seed=seed, dataset=recipe.dataset)
    torch_side.set_worker_info(info)
    if recipe.worker_init_fn is not None:
        recipe.worker_init_fn(worker)


def seed_ticket(seed: int, held: Mapping[Steps, Any]) -> None:
    """Have all random numbers follow from this seed: those of torch, `random` and numpy, and of what the dataset holds."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed devices, too, which are the trainer's
    if HAS_NUMPY:
        np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    reseed(held, f"{seed}")


def ticket_state(seed: int) -> Shared:
    """The state that `seed_ticket` gives to the generators that all of a process shares, without touching them."""
    of_numpy = np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32]).get_state() if HAS_NUMPY else None
    return new_generator(seed).get_state(), random.Random(seed).getstate(), of_numpy


def reseed(held: Mapping[Steps, Any], source: str) -> None:
    """Give every generator that the dataset holds a seed of its own, which follows from this source and its place alone.

    Not from its number: which others there are may depend on what a worker has fetched before.
    """
    for steps, generator in held.items():
        place = repr(steps).replace("__mp_main__", "__main__")  # as it is called where the program was imported anew
        seed = random.Random(f"{source} {place}").getrandbits(63)
        kind = kind_of(generator)
        match kind and kind.name:
            case "torch":
                generator.manual_seed(seed)
            case "random":
                generator.seed(seed)
            case "numpy":
                seed_bits(generator.bit_generator, seed)
            case "numpy, old":
                generator.seed(seed & 0xFFFFFFFF)
            case "numpy, bits":
                seed_bits(generator, seed)


def new_generator(seed: int) -> torch.Generator:
    """A generator of our own."""
    return torch.Generator().manual_seed(seed)


def end_like_a_program(inherited: frozenset[str]) -> None:
    """What the end of Python does for user code: `atexit` functions run, and objects are ended, which flushes their files.

    The modules that this process was forked with are left alone: to take torch apart takes half a second.
    """
    atexit._run_exitfuncs()
    torch_side.set_worker_info(None)
    for name in [*(sys.modules.keys() - inherited), "__main__"]:
        sys.modules.pop(name, None)
    gc.collect()
    util._flush_std_streams()  # type: ignore[attr-defined]


def seed_from_entropy() -> None:
    """Give the generators that all share the seeds that they have in a process that has just been started: any."""
    random.seed()
    torch.default_generator.seed()
    if HAS_NUMPY:
        np.random.seed()


def seed_pipe(dataset: Any, shared_seed: int | None) -> None:
    """Give the random stages of a data pipe the seed that all its workers have."""
    if shared_seed is not None:
        generator = torch.Generator()
        generator.manual_seed(shared_seed)
        torch_side.seed_pipe_stages(dataset, generator)


def seed_worker(base_seed: int, worker: WorkerNo) -> int:
    """Seed the generators that all of a process shares as torch does in this worker; returns its seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if HAS_NUMPY:
        np.random.seed(torch_side.generate_state(base_seed, worker))
    return seed


def write_stacks(fd: int, *, on_signal: int) -> None:
    """Have the Python stacks of all threads written into this descriptor at a crash, and when this signal comes.

    That works whatever the worker is doing, also while C code holds the interpreter's lock: it is all done by the
    signal's handler. The descriptor is the worker's from now on.
    """
    global _stacks
    _stacks = fd
    had_own = faulthandler.is_enabled()
    faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(on_signal, file=fd, all_threads=True, chain=False)

    def let_go() -> None:
        """In a child of the worker: what becomes of it is no news of the worker."""
        global _stacks
        if _stacks is None:  # a child of such a child; the number may stand for another file now
            return
        faulthandler.unregister(on_signal)
        if had_own:
            faulthandler.enable(file=2)  # where it writes unless told otherwise
        else:
            faulthandler.disable()
        os.close(_stacks)
        _stacks = None

    os.register_at_fork(after_in_child=let_go)
