"""A grown stem: forked from the trainer, so that it holds the program exactly as torch's forked workers would see it."""

from __future__ import annotations

import functools
import os
from multiprocessing import util
from typing import NoReturn

from antifreeze.engine.backends import process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.stem import Stem, quieten
from antifreeze.engine.crossing.results import find_inherited
from antifreeze.engine.wire.channel import Channel, pair
from antifreeze.engine.worker.recipe import Recipe


def grow(recipe: Recipe) -> StemHandle:
    """Fork a stem off this process, as it is now."""
    trainer_pid = os.getpid()
    trainer = process.open_pidfd(trainer_pid)
    ours, theirs = pair()
    lifeline = os.pipe()
    util._flush_std_streams()  # type: ignore[attr-defined]
    pid = process.fork()
    if pid == 0:
        ours.close()
        os.close(lifeline[0])
        os.close(lifeline[1])
        _be_stem(Channel(theirs, blocking=True), recipe, trainer, trainer_pid)
    theirs.close()
    os.close(trainer)
    return StemHandle(
        kind="grown",
        pid=pid,
        pidfd=process.open_pidfd(pid),
        control=Channel(ours, blocking=False),
        lifeline=lifeline,
        is_child=True,
        find=functools.cache(find_inherited),  # it looks at every object of the program
    )


def _be_stem(control: Channel, recipe: Recipe, trainer: int, trainer_pid: int) -> NoReturn:
    code = 1
    try:
        quieten()
        Stem(control, recipe, trainer=trainer, trainer_pid=trainer_pid).run()
        code = 0
    finally:
        os._exit(code)
