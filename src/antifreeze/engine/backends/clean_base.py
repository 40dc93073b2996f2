"""The clean base: runs in a process of its own, holds torch and nothing of the user's, and forks clean stems.

There is at most one per trainer; it is started when it is first needed, and lives as long as the trainer.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import select
import socket
from collections.abc import Iterable, Iterator
from typing import NoReturn

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.backends import process
from antifreeze.engine.backends.stem import Stem, quieten
from antifreeze.engine.crossing import pickler, results, state
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Grow, Grown, Settled, Unborn, Unfit
from antifreeze.engine.worker.recipe import Recipe, SealedRecipe


def main(control_fd: int, trainer_pid: int) -> None:
    """Entry point of the base; `clean.py` starts it, and it dies with the trainer."""
    trainer = process.open_pidfd(trainer_pid)
    quieten()
    control = Channel(socket.socket(fileno=control_fd), blocking=True, many_descriptors=True)
    with contextlib.suppress(ChannelClosed):
        _Base(control, trainer, trainer_pid).serve()


class _Base:
    def __init__(self, control: Channel, trainer: int, trainer_pid: int) -> None:
        self._control = control
        self._trainer = trainer
        self._trainer_pid = trainer_pid
        self._stems: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(trainer, select.POLLIN)

    def serve(self) -> None:
        while True:
            for fd, _ in self._poll.poll(process.SLICE_S * 1000):
                if fd == self._trainer:
                    return
                if fd in self._stems:
                    self._reap(fd)
                else:
                    self._obey()

    def _obey(self) -> None:
        match self._control.receive():
            case (Grow(), descriptors):
                self._grow(descriptors)

    def _grow(self, descriptors: list[int]) -> None:
        try:
            pid = process.fork()
            if pid == 0:
                self._be_stem(descriptors)
            pidfd = process.open_pidfd(pid)
        except OSError as error:  # other stems go on
            self._control.send_all(Unborn(None, f"{type(error).__name__}: {error}"))
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        self._stems[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        self._control.send_all(Grown(pid), [pidfd])

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        process.reap(self._stems.pop(pidfd))
        os.close(pidfd)

    def _be_stem(self, descriptors: list[int]) -> NoReturn:
        code = 1
        try:
            quieten()
            self._control.close()
            for pidfd in self._stems:
                os.close(pidfd)
            control_fd, lifeline, *payload = descriptors
            control = Channel(socket.socket(fileno=control_fd), blocking=True)
            with _dying_with(lifeline):
                recipe = _settle(control, payload)
            if recipe is not None:
                Stem(control, recipe, trainer=self._trainer, trainer_pid=self._trainer_pid).run()
                code = 0
        except BaseException:  # nobody else would hear of it
            process.print_last_words()
        finally:
            os._exit(code)


@contextlib.contextmanager
def _dying_with(lifeline: int) -> Iterator[None]:
    """While this lasts, the kernel ends us with the trainer; afterwards it is the stem that looks, and ends its workers."""
    own = machine.open_again(lifeline, os.O_RDONLY | os.O_NONBLOCK)
    os.close(lifeline)
    process.die_with(own)
    try:
        yield
    finally:
        os.close(own)


def _settle(control: Channel, payload: list[int]) -> Recipe | SealedRecipe | None:
    """Rebuild the trainer's state and the recipe; the trainer is told if that fails."""
    try:
        surroundings, crossing = payload[0], payload[1:]
        state.settle(pickle.loads(memory.read_all(surroundings)))
        parcel = pickler.Parcel(crossing)
        if not parcel.is_for_each_worker:
            return _open(parcel, control)
        _import(parcel.modules)
        control.send_all(Settled(()))
    except Exception as error:  # of whatever the user's modules and classes do when they are imported and rebuilt
        control.send_all(Unfit(_dump(error)))
        return None
    return SealedRecipe(functools.partial(_unseal, parcel))


def _open(parcel: pickler.Parcel, control: Channel) -> Recipe:
    """Rebuild the recipe, and the state of modules with it, in the stem or in a worker."""
    recipe: Recipe
    (recipe, modules), by_value = parcel.open()
    results.remember(by_value)
    control.send_all(Settled(tuple(state.settle_modules(modules))))
    return recipe


def _unseal(parcel: pickler.Parcel, control: Channel) -> Recipe | None:
    """In a worker: rebuild the recipe; the trainer is told if that fails."""
    try:
        return _open(parcel, control)
    except Exception as error:  # of whatever the user's classes do when they are rebuilt
        control.send_all(Unfit(_dump(error)))
        return None


def _import(modules: Iterable[str]) -> None:
    """Import once what every worker is going to need."""
    for name in modules:
        with contextlib.suppress(Exception):  # a worker meets the same when it opens the parcel, and tells the trainer
            importlib.import_module(name)


def _dump(error: Exception) -> bytes:
    from torch._utils import ExceptionWrapper  # noqa: PLC0415 - only when something went wrong

    where = "while the dataset was being rebuilt in a clean process"
    wrapper = ExceptionWrapper((type(error), error, error.__traceback__), where=where)
    return results.dump(wrapper)
