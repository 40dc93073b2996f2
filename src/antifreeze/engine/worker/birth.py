"""A forked process becomes a worker: seeds, threads, `get_worker_info()`, `worker_init_fn`, as torch does it.

The only file that seeds.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
from typing import Any

import torch
from torch.utils.data._utils import HAS_NUMPY
from torch.utils.data._utils import worker as torch_worker

from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.worker.recipe import Recipe

_stacks: int | None = None
"""The descriptor that this worker's stacks are written into; None in any other process."""
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")


def become_worker(recipe: Recipe, worker: WorkerNo) -> None:
    """All that must be so before the first sample; an error of `worker_init_fn` passes through."""
    torch.multiprocessing._set_thread_name("pt_data_worker")
    torch.set_num_threads(1)
    seed = _seed(recipe.base_seed, worker)
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker, num_workers=recipe.num_workers, seed=seed, dataset=recipe.dataset
    )
    if recipe.worker_init_fn is not None:
        recipe.worker_init_fn(worker)


def cap_threads(limit: int | None) -> None:
    """Limit the thread pools of native libraries; a setting of the user's own is left alone."""
    if limit is None or any(name in os.environ for name in _THREAD_SETTINGS):
        return
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - only where it is used: the stem

    threadpool_limits(limit)


def _seed(base_seed: int, worker: WorkerNo) -> int:
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    if HAS_NUMPY:
        import numpy as np  # noqa: PLC0415 - torch works without it

        np.random.seed(torch_worker._generate_state(base_seed, worker))
    return seed


def set_worker_signals() -> None:
    """What is sent to all processes of a job is the trainer's to judge; a worker's own children get the usual back.

    (Workers are in groups of their own; but a scheduler that ends a job does not go by groups.)
    """
    for number in _TRAINERS:
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.register_at_fork(after_in_child=_give_signals_back)


_TRAINERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _do_nothing(*_: Any) -> None:
    # Not SIG_IGN: that would be inherited by every program that a dataset starts.
    pass


def _give_signals_back() -> None:
    for number in _TRAINERS:
        if signal.getsignal(number) is _do_nothing:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)


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
