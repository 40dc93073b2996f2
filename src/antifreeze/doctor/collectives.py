"""Whether a process of a distributed training is in an operation that all ranks have to come to. Pure."""

from __future__ import annotations

import re

from antifreeze.doctor.facts import ProcessPicture

_TORCHS = re.compile(r"(^|/)torch/(distributed/|nn/parallel/distributed\.py)")
_NATIVE = re.compile(r"c10d::|nccl|gloo|TCPStore", re.IGNORECASE)
_AROUND = ("wrapper", "_wrap", "main", "run", "launch_agent", "__call__")
"""Functions of torch.distributed that the user's code is called by, or that only stand between it and an operation."""


def collective_of(trainer: ProcessPicture) -> str | None:
    """The operation that it is in, by its name in Python or else in native code; None: it is in none."""
    frames = next((thread.frames for thread in trainer.threads if thread.is_main), ())
    for at, frame in enumerate(frames):
        if trainer.place is not None and (frame.file, frame.line) == (trainer.place.file, trainer.place.line):
            frames = frames[:at]  # what the user's code called
            break
    inside = [frame for frame in frames if _TORCHS.search(frame.file) and frame.function not in _AROUND]
    if inside:
        return inside[-1].function
    native = next((name for name in trainer.native if _NATIVE.search(name)), None)
    return native.partition("<")[0].partition(" (")[0] if native else None
