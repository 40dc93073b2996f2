"""A grown stem: forked from the trainer, so that it holds the program exactly as torch's forked workers would see it."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from multiprocessing import util
from typing import NoReturn

from antifreeze.engine.backends import interruptions, process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.stem import Stem, quieten
from antifreeze.engine.crossing.results import find_inherited
from antifreeze.engine.wire.channel import Channel, pair
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.threads import end_openmp_pools


def grow(recipe: Recipe) -> StemHandle:
    """Fork a stem off this process, as it is now."""
    interruptions.let_through(util._flush_std_streams)  # type: ignore[attr-defined]  # which waits for whoever reads them
    with interruptions.held():
        end_openmp_pools()
        return _fork_off(recipe)


def _fork_off(recipe: Recipe) -> StemHandle:
    trainer_pid = os.getpid()
    with contextlib.ExitStack() as ends:
        trainer = _closing(ends, process.open_pidfd(trainer_pid))
        ours, theirs = pair()
        ends.enter_context(theirs)
        with contextlib.ExitStack() as kept:
            kept.enter_context(ours)
            lifeline = tuple(_closing(kept, fd) for fd in os.pipe())
            pid = process.fork()
            if pid == 0:
                _be_stem(ours, theirs, lifeline, recipe, trainer, trainer_pid)
            pidfd = process.watch_child(pid)
            kept.pop_all()
    return StemHandle(
        kind="grown",
        pid=pid,
        pidfd=pidfd,
        control=Channel(ours, blocking=False),
        lifeline=lifeline,
        is_child=True,
        find=functools.cache(find_inherited),  # it looks at every object of the program
    )


def _closing(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _be_stem(
    ours: socket.socket,
    theirs: socket.socket,
    lifeline: tuple[int, ...],
    recipe: Recipe,
    trainer: int,
    trainer_pid: int,
) -> NoReturn:
    code = 1
    try:
        quieten()
        ours.close()
        for fd in lifeline:
            os.close(fd)
        Stem(Channel(theirs, blocking=True), recipe, trainer=trainer, trainer_pid=trainer_pid).run()
        code = 0
    except BaseException:  # nobody else would hear of it
        process.print_last_words()
    finally:
        os._exit(code)
