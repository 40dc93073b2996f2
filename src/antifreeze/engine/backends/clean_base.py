"""The clean base: runs in a process of its own, holds torch and nothing of the user's, and forks clean stems.

There is at most one per trainer; it is started when it is first needed, and lives as long as the trainer.

A clean stem holds library modules and the memory of big arrays. Each worker imports user modules and unpickles the dataset
itself, as a worker that torch spawns does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import process as processes
from typing import NoReturn

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.backends import process
from antifreeze.engine.backends.passing import receive_descriptors
from antifreeze.engine.backends.stem import Stem, quieten
from antifreeze.engine.crossing import libraries, pickler, results, state
from antifreeze.engine.crossing.main_module import MainModule
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Grow, Grown, Unborn, Unfit
from antifreeze.engine.worker.birth import seed_from_entropy
from antifreeze.engine.worker.recipe import Identity, Recipe, SealedRecipe

# So long a stem that is of no use may take to end by itself.
LEAVING_S = 10.0
# So long a stem may import libraries. The trainer ends a base that is idle long before.
IMPORTING_S = 3600.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a clean stem is to be."""

    surroundings: state.Surroundings
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
        # Not in a `finally`: a worker may leave this way, in which the numbers mean other things.
        for fd in descriptors:
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
            pidfd = process.watch_child(pid)
            self._stems[pidfd] = pid
            report = _read_report(ours, pidfd, deadline=time.monotonic() + IMPORTING_S)
            os.close(ours)
            hazardous = set(wanted) if report is None else set(report)
            if not hazardous:
                return pidfd
            self._hazardous |= hazardous
            if process.wait_ended([pidfd], deadline=time.monotonic() + LEAVING_S):
                process.kill(pidfd)
                process.wait_ended([pidfd], deadline=time.monotonic() + LEAVING_S)
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
                recipe = _settle(order, wanted, report, parcel)
            if recipe is not None:
                Stem(control, recipe, trainer=self._trainer, trainer_pid=self._trainer_pid).run()
                code = 0
        except BaseException:  # nobody else would hear of it
            process.print_last_words()
        finally:
            os._exit(code)


def _read_report(report: int, stem: int, *, deadline: float) -> list[str] | None:
    """Return the libraries that the stem must not hold; None if it died or was too late before it named them.

    The report is one line. It is not read up to the end of the file, because a library that forked a process at import
    may hold the pipe open.
    """
    line = b""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    poll.register(stem, select.POLLIN)
    while not line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        ready = [fd for fd, _ in poll.poll(1000 * max(0.0, min(left_s, process.SLICE_S)))]
        if report in ready:
            part = os.read(report, 1 << 16)
            if not part:
                return None
            line += part
        elif stem in ready or left_s <= 0:
            return None
    return list(json.loads(line))


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


def _settle(order: Order, wanted: Iterable[str], report: int, parcel: int) -> SealedRecipe | None:
    """Make this process the stem that was ordered; None if it is of no use, which is reported."""
    state.settle(order.surroundings)
    hazardous = sorted(libraries.import_libraries(wanted))
    with open(report, "w") as told:
        told.write(json.dumps(hazardous) + "\n")
    if hazardous:
        return None
    unseal = functools.partial(_be_spawned, pickler.Parcel(receive_descriptors(parcel)), order.surroundings.main)
    return SealedRecipe(order.worker_threads, order.identity, unseal)


def _be_spawned(parcel: pickler.Parcel, main: MainModule, control: Channel) -> Recipe | None:
    """In a worker: import the program and rebuild the recipe as a spawned process does; the trainer is told of errors."""
    recipe: Recipe
    try:
        with _bootstrapping():
            seed_from_entropy()
            state.import_program(main)
            recipe, by_value = parcel.open()
    except Exception as error:  # of whatever the user's modules and classes do when they are imported and rebuilt
        control.send_all(_unfit(error))
        return None
    results.remember(by_value)
    return recipe


@contextlib.contextmanager
def _bootstrapping() -> Iterator[None]:
    """While this lasts, multiprocessing refuses to start processes: the main module would start them in every worker."""
    current = processes.current_process()
    current._inheriting = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del current._inheriting  # type: ignore[attr-defined]


def _unfit(error: Exception) -> Unfit:
    from antifreeze.torch_side.workers import ExceptionWrapper  # noqa: PLC0415 - only when something went wrong

    where = "while the dataset was being rebuilt in a clean process"
    wrapper = ExceptionWrapper((type(error), error, error.__traceback__), where=where)
    return Unfit(results.dump(wrapper))
