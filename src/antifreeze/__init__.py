"""A drop-in for PyTorch's DataLoader, for training that freezes or dies with num_workers > 0.

Three ways in::

    antifreeze run train.py             an unmodified script, every loader in it on our engine
    from antifreeze import DataLoader   torch's signature, on our engine
    antifreeze.install()                our engine behind every loader of this process; `uninstall()` takes it away

The path of a batch, and where to read about each step:

    plan      sampler → tickets, each the order for one batch         engine/plan/          parent, pure
    dispatch  choose a worker; hold back when the window is full      engine/flow/          parent, pure
    send      one message down the worker's own channel               engine/wire/          parent
    fetch     indices → samples → batch, written into a slot          engine/worker/        worker
    report    `Filled` or `Failed` comes back                         engine/wire/          both
    deliver   back into plan order, tensors laid over the slot        engine/flow/, arena/  parent
    release   the last tensor dies → the slot is free                 engine/arena/         parent

    engine/epoch.py      the loop that names these steps; start reading here
    engine/supervisor.py what is done about workers that are lost or stuck; decided in engine/supervise/, pure
    engine/hedging.py    a second worker for one that is stuck; engine/succession.py: how another takes over
    engine/marks.py      where workers were, for those who take a pass up another time
    engine/witness.py    what can be learned about a worker from outside
    engine/chronicle.py  what happened to workers, as records, reports and errors
    engine/backends/     where workers come from and how they end
    engine/crossing/     how a dataset reaches a worker that was not forked from the trainer
    engine/pool/         a worker's life
    observe/             the ledger, the statistics, what is printed, where files go
    iterator.py          the engine behind torch's iterator interface
    loader.py            DataLoader
    stateful.py          StatefulDataLoader; resuming.py: its iterators; drawing.py: samplers and generators, begun again
    packing.py           packed: millions of objects that workers read without copying their memory
    resources.py         per_worker: a resource that every process opens for itself
    options.py           every option, once; option_values.py what they can be; policy.py on_error= and Retry
    torch_side/          the only package that uses torch's private names; whether the engine can run on this torch
    install.py           the engine behind loaders that others build
    adoption.py          a loader of ours that a library takes apart stays ours
    bootstrap/, cli/     `antifreeze run` and the other commands
    doctor/              facts about a sick program → its problem, by code; pure, and asked by the engine, too
    probes/              where the facts come from: machine, source, live objects, trials, running processes
    errors.py            every exception

Public and stable: the names below and `antifreeze.errors`. They are loaded when first used, so that the command line
starts without torch.
"""

from __future__ import annotations

# Not lazy: `antifreeze.install` is a function and also a module. Bound here, the function stays bound, whoever imports
# the module later.
from antifreeze.install import install, uninstall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from antifreeze.engine.crossing.kinds.registry import register_kind
    from antifreeze.errors import (
        AntifreezeError,
        ArenaError,
        CannotCross,
        CheckpointError,
        ConfigError,
        Fallback,
        InternalError,
        SampleFailed,
        WorkerCrashed,
        WorkerFrozen,
        WorkerKilled,
        WorkerLost,
    )
    from antifreeze.loader import DataLoader
    from antifreeze.packing import packed
    from antifreeze.policy import Retry
    from antifreeze.resources import per_worker
    from antifreeze.stateful import StatefulDataLoader

__version__ = "0.1.0"

__all__ = [
    "AntifreezeError",
    "ArenaError",
    "CannotCross",
    "CheckpointError",
    "ConfigError",
    "DataLoader",
    "Fallback",
    "InternalError",
    "Retry",
    "SampleFailed",
    "StatefulDataLoader",
    "WorkerCrashed",
    "WorkerFrozen",
    "WorkerKilled",
    "WorkerLost",
    "__version__",
    "install",
    "packed",
    "per_worker",
    "register_kind",
    "uninstall",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {
        "DataLoader": "antifreeze.loader",
        "Retry": "antifreeze.policy",
        "StatefulDataLoader": "antifreeze.stateful",
        "packed": "antifreeze.packing",
        "per_worker": "antifreeze.resources",
        "register_kind": "antifreeze.engine.crossing.kinds.registry",
    }
    home = import_module(homes.get(name, "antifreeze.errors"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
