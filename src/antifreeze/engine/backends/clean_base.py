"""The clean base: runs in a process of its own, holds torch and nothing of the user's, and forks clean stems.

There is at most one per trainer; it is started when it is first needed, and lives as long as the trainer.

A clean stem is one of two things. Where the user asked for `spawn` or `forkserver`, it holds library modules and the memory
of big arrays: each worker imports user modules and unpickles the dataset itself. In the place of a fork, it is
made like the trainer, and unpickles the dataset once for all workers, if what is in it survives a fork.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import pickle
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import process as processes
from multiprocessing import util
from typing import NoReturn

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.backends import process
from antifreeze.engine.backends.passing import receive_descriptors
from antifreeze.engine.backends.stem import Stem, quieten
from antifreeze.engine.crossing import libraries, pickler, results, state
from antifreeze.engine.crossing.main_module import MainModule
from antifreeze.engine.showing import text_of
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Grow, Grown, Settled, Unborn, Unfit
from antifreeze.engine.worker.birth import seed_from_entropy
from antifreeze.engine.worker.recipe import Identity, Recipe, SealedRecipe

# The exit code of a process that has told by itself why the dataset cannot be rebuilt.
_TOLD = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What a clean stem is to be."""

    surroundings: state.Surroundings
    settings: state.Settings | None
    """The trainer's, for one that stands in the place of a fork; None: it holds nothing of the user's."""
    libraries: tuple[str, ...]
    """Modules to import once for all workers."""
    worker_threads: int | None
    identity: Identity


def main(control_fd: int, trainer_pid: int) -> None:
    """Entry point of the base; `clean.py` starts it, and it dies with the trainer."""
    trainer = process.open_pidfd(trainer_pid)
    quieten()
    with (
        contextlib.closing(Channel(socket.socket(fileno=control_fd), blocking=True)) as control,
        contextlib.suppress(ChannelClosed),
    ):
        _Base(control, trainer, trainer_pid).serve()


class _Base:
    def __init__(self, control: Channel, trainer: int, trainer_pid: int) -> None:
        self._control = control
        self._trainer = trainer
        self._trainer_pid = trainer_pid
        self._stems: dict[int, int] = {}
        self._hazardous: set[str] = set()
        """Libraries that every worker has to import itself."""
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
            case (Grow(), [order, *descriptors]):
                self._grow(pickle.loads(memory.read_all(order)), descriptors)

    def _grow(self, order: Order, descriptors: list[int]) -> None:
        refused = ""
        try:
            pidfd = self._fork(order, descriptors)
        except OSError as error:  # other stems go on
            refused = f"{type(error).__name__}: {error}"
        for (
            fd
        ) in descriptors:  # not in a `finally`: a worker may leave this way, in which the numbers mean other things
            os.close(fd)
        if refused:
            self._control.send_all(Unborn(None, refused))
            return
        self._poll.register(pidfd, select.POLLIN)
        self._control.send_all(Grown(self._stems[pidfd]), [pidfd])

    def _fork(self, order: Order, descriptors: list[int]) -> int:
        """A stem that has imported what it may; one that has imported what it may not is replaced by another."""
        while True:
            wanted = [name for name in order.libraries if name not in self._hazardous]
            ours, theirs = os.pipe()
            pid = process.fork()
            if pid == 0:
                os.close(ours)
                self._be_stem(order, wanted, theirs, descriptors)
            os.close(theirs)
            pidfd = process.open_pidfd(pid)
            self._stems[pidfd] = pid
            with open(ours, "rb") as report:
                told = report.read()
            hazardous = set(pickle.loads(told)) if told else set(wanted)  # it died of one of them
            if not hazardous:
                return pidfd
            self._hazardous |= hazardous
            process.wait_ended([pidfd], deadline=math.inf)
            self._reap(pidfd)

    def _reap(self, pidfd: int) -> None:
        with contextlib.suppress(KeyError):  # it was never announced
            self._poll.unregister(pidfd)
        process.reap(self._stems.pop(pidfd))
        os.close(pidfd)

    def _be_stem(self, order: Order, wanted: Iterable[str], report: int, descriptors: list[int]) -> NoReturn:
        code = 1
        try:
            quieten()
            self._control.close()
            for pidfd in self._stems:
                os.close(pidfd)
            control_fd, lifeline, parcel = descriptors
            control = Channel(socket.socket(fileno=control_fd), blocking=True)
            with _dying_with(lifeline):
                recipe = _settle(order, wanted, report, parcel, control)
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


def _settle(
    order: Order, wanted: Iterable[str], report: int, parcel: int, control: Channel
) -> Recipe | SealedRecipe | None:
    """Make this process the stem that was ordered; None if it is of no use, which is told."""
    with open(report, "wb") as told:
        if order.settings is None:
            state.settle(order.surroundings)
            hazardous = libraries.import_libraries(wanted)
            told.write(pickle.dumps(hazardous))
            if hazardous:
                return None
        else:
            told.write(pickle.dumps(()))
    try:
        received = receive_descriptors(parcel)
        if order.settings is None:
            return _seal(order, functools.partial(_be_spawned, pickler.Parcel(received), order.surroundings.main))
        state.settle_like_a_fork(order.surroundings, order.settings)
        return _settle_like_a_fork(order, pickler.Parcel(received), control)
    except Exception as error:  # of whatever the user's modules and classes do when they are imported and rebuilt
        control.send_all(_unfit(error))
        return None


def _seal(order: Order, unseal: Callable[[Channel], Recipe | None]) -> SealedRecipe:
    return SealedRecipe(order.worker_threads, order.identity, unseal)


# --- in the place of a fork


def _settle_like_a_fork(order: Order, parcel: pickler.Parcel, control: Channel) -> Recipe | SealedRecipe | None:
    if not parcel.is_for_each_worker:
        return _open(parcel, control)
    _import(parcel.modules)
    if not _is_openable(parcel, control):
        return None
    control.send_all(Settled(()))
    return _seal(order, functools.partial(_unseal, parcel))


def _is_openable(parcel: pickler.Parcel, control: Channel) -> bool:
    """Whether workers are going to be able to open it, tried in a child; if not, the trainer is told."""
    lifeline, held = os.pipe()
    pid = process.fork()
    if pid == 0:
        os.close(held)
        _try_to_open(parcel, control, lifeline)
    os.close(lifeline)
    pidfd = process.open_pidfd(pid)
    process.wait_ended([pidfd], deadline=math.inf)
    os.close(pidfd)
    os.close(held)
    process.kill_group(pid)  # what it started and did not end itself
    code = process.reap(pid)
    if code not in (0, _TOLD):
        what = f"the process {process.how_it_ended(code)}"
        control.send_all(_unfit(RuntimeError(what), what))
    return code == 0


def _try_to_open(parcel: pickler.Parcel, control: Channel, lifeline: int) -> NoReturn:
    code = 1
    try:
        quieten()
        process.die_with(lifeline)  # with the stem, which may be killed because this takes too long
        parcel.open()
        util._run_finalizers()  # type: ignore[attr-defined]  # which close what was opened
        code = 0
    except Exception as error:  # of whatever the user's classes do when they are rebuilt
        control.send_all(_unfit(error))
        code = _TOLD
    finally:
        os._exit(code)


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
        control.send_all(_unfit(error))
        return None


def _import(modules: Iterable[str]) -> None:
    """Import once what every worker is going to need."""
    for name in modules:
        with contextlib.suppress(Exception):  # a worker meets the same when it opens the parcel, and tells the trainer
            importlib.import_module(name)


# --- where the user asked for a fresh process


def _be_spawned(parcel: pickler.Parcel, main: MainModule, control: Channel) -> Recipe | None:
    """In a worker: import the program and rebuild the recipe as a spawned process does; the trainer is told of errors."""
    try:
        with _bootstrapping():
            seed_from_entropy()
            state.import_program(main)
            return _open(parcel, control)
    except Exception as error:  # of whatever the user's modules and classes do when they are imported and rebuilt
        control.send_all(_unfit(error))
        return None


@contextlib.contextmanager
def _bootstrapping() -> Iterator[None]:
    """While this lasts, multiprocessing refuses to start processes: the main module would start them in every worker."""
    current = processes.current_process()
    current._inheriting = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del current._inheriting  # type: ignore[attr-defined]


def _unfit(error: Exception, what: str | None = None) -> Unfit:
    from torch._utils import ExceptionWrapper  # noqa: PLC0415 - only when something went wrong

    where = "while the dataset was being rebuilt in a clean process"
    wrapper = ExceptionWrapper((type(error), error, error.__traceback__), where=where)
    return Unfit(results.dump(wrapper), what or f"{type(error).__name__}: {text_of(error)}".splitlines()[0].rstrip("."))
