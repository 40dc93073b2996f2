"""How the code of a loader shows in a process that is looked at from outside: files, functions, variables, memory.

Nothing of it is imported: it would bring torch with it. tests/probes/processes/test_loader_code.py looks each name up in
the engine and in torch, and fails where one of them has been renamed.
"""

from __future__ import annotations

from dataclasses import dataclass

from antifreeze.torch_side.frames import FETCH_FILE, WORKER_FILE, WORKER_LOOP

OUR_STEM = "antifreeze/engine/backends/stem.py"
OUR_LOADER = ("antifreeze/iterator.py", "antifreeze/engine/epoch.py")
"""Files on the stack of a trainer that waits in our loader."""
OUR_MEMORY = "antifreeze-slot"
"""The name of the shared memory that our workers have mapped, and of the file that they write their stacks into."""
TORCH_LOADER = "torch/utils/data/dataloader.py"
WORKERS_NAME = "pt_data_worker"
"""What torch's workers call themselves, and ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCode:
    """Of the workers of one engine."""

    role: str
    """As `ProcessPicture.role`."""
    loop_file: str
    """The file of the function that never returns before the worker ends."""
    loop: str
    number: str
    """The variable in it that holds the worker's number."""
    waiting: str | None
    """The function of the same file that waits for work; None: the text of the line tells that."""
    fetch_file: str
    """The file that asks the dataset for samples."""
    fetching: str
    index: str
    """The variable in it that holds the index, or the indices of a batch."""
    sample: str
    """The one that holds the index of a single sample of a batch."""


TORCH = WorkerCode(
    role="worker",
    loop_file=WORKER_FILE,
    loop=WORKER_LOOP,
    number="worker_id",
    waiting=None,
    fetch_file=FETCH_FILE,
    fetching="_MapDatasetFetcher.fetch",
    index="possibly_batched_index",
    sample="idx",
)
OURS = WorkerCode(
    role="our-worker",
    loop_file="antifreeze/engine/worker/main.py",
    loop="run_worker",
    number="worker",
    waiting="orders",
    fetch_file="antifreeze/engine/worker/fetch.py",
    fetching="Fetcher.fetch",
    index="index",
    sample="i",
)
ENGINES = (TORCH, OURS)
