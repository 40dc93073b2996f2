"""What torch does in a worker: worker info, seeds, exceptions, collate functions."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from antifreeze.torch_side.names import note_missing, optional, required

try:
    from torch._utils import ExceptionWrapper  # an exception on its way to the trainer
except ImportError:
    from antifreeze.torch_side.stand_ins import NoWrapper as ExceptionWrapper  # type: ignore[assignment]

    note_missing("torch._utils:ExceptionWrapper")

__all__ = ["ExceptionWrapper"]

# The module that holds a worker's info, its seeds and its loop.
_worker: Any = required("torch.utils.data._utils.worker:")

# The module of `default_collate`: the table of collate functions, which users extend, and torch's own functions for it.
collating: Any = required("torch.utils.data._utils.collate:")

# Whether torch's workers seed numpy.
HAS_NUMPY: bool = optional("torch.utils.data._utils:HAS_NUMPY", False)

# The numbers that torch seeds a worker's numpy with: of the seed of the pass and the number of the worker.
generate_state: Callable[[int, int], list[int]] = required("torch.utils.data._utils.worker:_generate_state")

# Names a thread as `top` and `ps` show it. A torch that cannot leaves the name as it is.
name_thread: Callable[[str], None] = optional("torch.multiprocessing:_set_thread_name", lambda name: None)

# Gives the random stages of a data pipe their seeds. Where torch has no data pipes, there are none.
seed_pipe_stages: Callable[[Any, torch.Generator], Any] = optional(
    "torch.utils.data.graph_settings:apply_random_seed", lambda pipe, generator: pipe
)

# Whether CUDA was in use when this process was forked, and cannot be used in it.
is_cuda_lost_in_fork: Callable[[], bool] = optional("torch.cuda:_is_in_bad_fork", lambda: False)


# --- which worker this is


def worker_info() -> Any:
    """What `get_worker_info()` gives here; None in a process that is no worker."""
    return _worker._worker_info


def set_worker_info(info: Any) -> None:
    """Have `get_worker_info()` give this."""
    _worker._worker_info = info


# Makes an answer to `get_worker_info()`.
new_worker_info: Callable[..., Any] = required("torch.utils.data._utils.worker:WorkerInfo")


def watch_questions(note: Callable[[], None]) -> Callable[[], None] | None:
    """Call `note` when somebody first calls `get_worker_info`; returns what ends the watch, None if there can be none.

    The function has been imported by its name, everywhere, before this process was started: only the code inside it can
    still be exchanged. It is put back when the question has come.
    """
    asked = _torchs_own(_worker.get_worker_info)
    if asked is None:
        return None
    original = asked.__code__

    def stop() -> None:
        asked.__code__ = original

    def stop_and_note() -> None:
        stop()
        note()

    vars(_worker)["_antifreeze_note_question"] = stop_and_note
    asked.__code__ = _answer_and_note.__code__
    return stop


def _torchs_own(function: Any) -> FunctionType | None:
    """Torch's function, also from behind wrappers that name what they wrap; None if it is not there."""
    with contextlib.suppress(Exception):  # a mock or a proxy may raise anything
        function = inspect.unwrap(function)
        if type(function) is FunctionType and function.__globals__ is vars(_worker) and not function.__closure__:
            return function
    return None


def _answer_and_note() -> Any:
    # Runs as torch's function, in torch's module: these are names there.
    _antifreeze_note_question()  # type: ignore[name-defined]  # noqa: F821
    return _worker_info  # type: ignore[name-defined]  # noqa: F821


# --- for the doctor, which watches torch's own workers


def worker_loop() -> Callable[..., None]:
    """The function that runs in each of torch's workers, now."""
    loop: Callable[..., None] = _worker._worker_loop
    return loop


def set_worker_loop(loop: Callable[..., None]) -> None:
    """Have torch's workers run another function."""
    _worker._worker_loop = loop


def dataset_given(arguments: dict[str, Any]) -> Any:
    """The dataset, from the arguments of the worker loop: torch 2.15 gives a list to take it out of."""
    return arguments["dataset"] if "dataset" in arguments else arguments["dataset_holder"][0]


def forget_death_signal() -> None:
    """Have the next loader install torch's handler of SIGCHLD again, which raises when a worker has died."""
    handling = optional("torch.utils.data._utils:signal_handling", None)
    if handling is not None:
        handling._SIGCHLD_handler_set = False
