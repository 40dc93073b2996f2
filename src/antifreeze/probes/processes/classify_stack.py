"""What a stack says of its process: its role, and for torch's workers and the trainer what they are at. Pure.

Told by the files and functions of torch and of ours that are on it, and by the text of their lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from antifreeze.engine.supervise.stacks import Frame
from antifreeze.probes.processes.loader_code import (
    ENGINES,
    OUR_LOADER,
    OUR_STEM,
    OURS,
    TORCH,
    TORCH_LOADER,
    WORKERS_NAME,
)
from antifreeze.probes.processes.spy import Call
from antifreeze.torch_side.frames import CLOSING, STARTING

ReadLine = Callable[[str, int], str]
"""File and number → the text of that line."""

_ROLES = {**{each.loop_file: each.role for each in ENGINES}, OUR_STEM: "stem"}
# What a worker's own line says it is at; the first that fits.
_STAGES = {"index_queue.get": "idle", "is_alive(": "idle", "data_queue.": "send", "init_fn(": "init"}
_QUEUES = "multiprocessing/queues.py"
_IN_QUEUE = {"get": "idle", "put": "send"}
_BELOW_EVERYTHING = ("libc.", "libc-", "libpthread", "ld-", "libpython", "python")
_MOST_INDICES = 8
_LONGEST_NAME = 60


def role_by_stack(calls: Sequence[Call]) -> str | None:
    """`worker`, `our-worker` or `stem`; None: it is none of these."""
    return next((role for file, role in _ROLES.items() if _in(file, calls)), None)


def role_by_name(name: str, command: Iterable[str], *, maps_our_memory: bool) -> str | None:
    """What it calls itself, for processes whose stack cannot be seen."""
    words = " ".join(command)
    if name == WORKERS_NAME:
        return "our-worker" if maps_our_memory else "worker"
    if "multiprocessing.resource_tracker" in words:
        return "resource-tracker"
    return "fork-server" if "multiprocessing.forkserver" in words else None


def own_part(calls: Sequence[Call]) -> tuple[Call, ...]:
    """As `own_frames`."""
    return tuple(calls[: len(own_frames([call.frame for call in calls]))])


def own_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """What the process itself called: the rest of a forked worker's stack is the trainer's, from before it was there."""
    loop = next((frame.file for frame in frames if frame.file.endswith(tuple(_ROLES))), None)
    borders = [at for at, frame in enumerate(frames) if frame.file == loop]
    return frames[: borders[-1] + 1] if borders else frames


def worker_number(calls: Sequence[Call]) -> int | None:
    """The number that the loader gave it."""
    told = (call.values.get(each.number, "") for each in ENGINES for call in _in(each.loop_file, calls))
    return next((int(number) for number in told if number.isdigit()), None)


def rank_in(calls: Sequence[Call]) -> int | None:
    """The rank that `torch.multiprocessing.spawn` gave it."""
    spawned = [call for call in _in("torch/multiprocessing/spawn.py", calls) if call.frame.function == "_wrap"]
    started = [call.values.get("i", "") for call in spawned]
    return next((int(rank) for rank in started if rank.isdigit()), None)


def stage_of_worker(calls: Sequence[Call], read_line: ReadLine) -> str | None:
    """As `Stuck.stage`."""
    fetching = [call for each in ENGINES for call in _in(each.fetch_file, calls)]
    if fetching:
        lines = (read_line(call.frame.file, call.frame.line) for call in fetching)
        return "collate" if any("collate" in line for line in lines) else "fetch"
    for call in _in(TORCH.loop_file, calls):
        line = read_line(call.frame.file, call.frame.line)
        if not line:  # a file that is not there for us, as in a container
            return next((_IN_QUEUE.get(each.frame.function) for each in _in(_QUEUES, calls)), None)
        return next((stage for part, stage in _STAGES.items() if part in line), "init")
    return "idle" if any(call.frame.function == OURS.waiting for call in _in(OURS.loop_file, calls)[:1]) else None


def stage_of_trainer(calls: Sequence[Call]) -> str:
    """As `ProcessPicture.stage`."""
    if _in(TORCH.fetch_file, calls):
        return "fetch"
    functions = {call.frame.function for call in _in(TORCH_LOADER, calls)}
    if not functions.isdisjoint(CLOSING):
        return "close"
    if functions - set(STARTING) or any(_in(file, calls) for file in OUR_LOADER):
        return "next"
    return "start" if functions else "step"


def sample_at(calls: Sequence[Call]) -> str | None:
    """The index that is being fetched."""
    for each in ENGINES:
        for call in _in(each.fetch_file, calls):
            if each.sample in call.values:
                return call.values[each.sample]
            if not call.values.get(each.index, "[").startswith(("[", "(")):
                return call.values[each.index]
    return None


def batch_at(calls: Sequence[Call]) -> tuple[str, ...]:
    """The indices of the batch that is being made, the first few."""
    told = (call.values.get(each.index, "") for each in ENGINES for call in _in(each.fetch_file, calls))
    text = next((text for text in told if text.startswith("[")), "")
    indices = [each.strip() for each in text.strip("[]").split(",")]
    return tuple(each for each in indices if each and "..." not in each)[:_MOST_INDICES]


def users_frames(calls: Sequence[Call]) -> list[Frame]:
    """Those of the user's own code, the innermost first."""
    return [call.frame for call in calls if not call.is_native and call.frame.is_user_code]


def natives(calls: Sequence[Call]) -> tuple[str, ...]:
    """The native functions below the innermost Python frame, those without a name by their library.

    Without those of C and of Python itself, which are below everything.
    """
    found = []
    for call in itertools.takewhile(lambda call: call.is_native, calls):
        library = PurePath(call.frame.file).name
        if not library.startswith(_BELOW_EVERYTHING):
            name = call.frame.function[:_LONGEST_NAME]  # those of templates can fill a screen
            found.append(library if name.startswith("0x") else f"{name} ({library})")
    return tuple(found)


def _in(file: str, calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if call.frame.file.endswith("/" + file)]
