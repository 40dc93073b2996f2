"""A clean stem: forked from a fresh process, because the user asked for spawn or forkserver; the dataset crosses to it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from antifreeze import machine
from antifreeze.engine import forks
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.backends import interruptions, process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.clean_base import Order
from antifreeze.engine.backends.executable import why_no_fresh_process
from antifreeze.engine.backends.idle_watch import IdleWatch
from antifreeze.engine.backends.passing import passed
from antifreeze.engine.crossing import pickler
from antifreeze.engine.crossing.explain import explain
from antifreeze.engine.crossing.kinds.base import OnlyInherited
from antifreeze.engine.crossing.libraries import within_reach
from antifreeze.engine.crossing.main_module import describe_main
from antifreeze.engine.crossing.spawning import is_only_inherited
from antifreeze.engine.crossing.state import capture_surroundings
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Grow, Grown, Unborn
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import InternalError
from antifreeze.observe.say import say_once

# For so long a fresh process may do nothing while it starts. Importing torch takes 1.5 to 2 s on a quiet machine; where
# many ranks read it from one file server, it takes far more, but they work.
START_IDLE_S = 120.0
STOP_DEADLINE_S = 2.0
LOCK_SLICE_S = 0.1
# Until the trainer's environment is put in place, nothing in the base may start a thread.
_SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


class NoFreshProcess(Exception):
    """No fresh process can be started from this program."""


class InheritanceOnly(Exception):
    """The dataset holds something that only a fork can carry, such as a lock of multiprocessing."""


def grow_clean(recipe: Recipe) -> StemHandle:
    """A clean stem for this recipe, as it is now."""
    reason = why_no_fresh_process()
    if reason is not None:
        raise NoFreshProcess(reason)
    with interruptions.held(), contextlib.ExitStack() as sent:
        main = describe_main()
        crossing = interruptions.let_through_others(lambda: _pack(recipe, main.names))
        sent.callback(crossing.close)
        if crossing.copied:
            say_once(_tell_copied(crossing.copied))
        order = Order(
            surroundings=capture_surroundings(main),
            libraries=tuple(within_reach([*main.imports, *crossing.modules])),
            worker_threads=recipe.worker_threads,
            identity=recipe.identity,
        )
        ordered = memory.copy_of([pickle.dumps(order)], "antifreeze-state")
        sent.callback(os.close, ordered)
        parcel = sent.enter_context(passed(crossing.descriptors))
        ours, theirs = pair()
        sent.enter_context(theirs)
        with contextlib.ExitStack() as kept:
            kept.enter_context(ours)
            lifeline = os.pipe()
            for fd in lifeline:
                kept.callback(os.close, fd)
            pid, pidfd = _ask_base([ordered, theirs.fileno(), lifeline[0], parcel])
            kept.pop_all()
        return StemHandle(
            kind="clean",
            pid=pid,
            pidfd=pidfd,
            control=Channel(ours, blocking=False),
            lifeline=lifeline,
            is_child=False,
            find=crossing.by_value.__getitem__,
        )


def _tell_copied(count: int) -> str:
    return (
        f"{count} tensors of the dataset are copied instead of shared with its workers: neither sees what the other "
        "writes. This process may not have that many files open (ulimit -n), or has no shared memory left"
    )


def _pack(recipe: Recipe, main_names: frozenset[str]) -> pickler.Crossing:
    """The recipe on its way; if it cannot be sent, the error says which part of it is the reason."""
    parts = {"dataset": recipe.dataset, "collate_fn": recipe.collate_fn, "worker_init_fn": recipe.worker_init_fn}
    try:
        return pickler.send(recipe, main_names=main_names, workers=recipe.num_workers)
    except MemoryError:
        raise
    except Exception as error:  # of whatever the user's classes do when they are pickled
        if interruptions.behind(error) is not None:
            raise
        with pickler.asked(main_names=main_names) as asked:
            blame = explain(parts, error, asked=asked)
        if isinstance(error, OnlyInherited) or is_only_inherited(error):  # locks, values, queues …
            raise InheritanceOnly(str(error)) from error
        if blame is None:
            raise
        try:
            raise blame from error
        finally:
            del blame  # else it and this frame would keep each other, and the dataset


@dataclass(slots=True)
class _Base:
    popen: subprocess.Popen[bytes]
    control: Channel
    lifeline: int

    def grow(self, descriptors: list[int]) -> tuple[int, int]:
        """(pid, pidfd) of a new clean stem; ChannelClosed if the base is gone."""
        self.control.send(Grow(), descriptors)
        watch = IdleWatch(self.popen.pid, limit_s=START_IDLE_S)
        while not watch.is_idle_too_long():
            has_ended = self.popen.poll() is not None  # before it is heard: its last word comes first
            match self._next_message():
                case (Grown(pid), [_] as pidfds):
                    return pid, pidfds.pop()
                case (Unborn(_, why), _):
                    raise process.CannotFork(why)
                case None if has_ended:  # without an end of file: a stem that it was forking holds its channel
                    raise ChannelClosed(f"it ended with exit code {self.popen.returncode}")
                case None:
                    continue
                case unexpected:
                    raise InternalError(f"the clean base answered {unexpected!r}")
        raise InternalError(
            f"the clean base (pid {self.popen.pid}) has done nothing for {START_IDLE_S:.0f} s",
            why="importing torch in a fresh process is stuck",
            try_="multiprocessing_context='fork'",
        )

    def close(self) -> None:
        """Close our descriptors; the base dies of it."""
        self.control.close()
        os.close(self.lifeline)

    def _next_message(self) -> Any:
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN | (select.POLLOUT if self.control.has_unsent else 0))
        interruptions.let_through(lambda: poll.poll(process.SLICE_S * 1000))
        self.control.flush()
        return self.control.receive()


_the_base: _Base | None = None
_lock = threading.Lock()


def _ask_base(descriptors: list[int]) -> tuple[int, int]:
    """(pid, pidfd) of a new clean stem; one at a time, and from a new base if the old one has died."""
    global _the_base
    with _one_at_a_time():
        for attempt in (1, 2):
            if _the_base is None:
                _the_base = _start()
                atexit.register(stop_base)
            try:
                return _the_base.grow(descriptors)
            except BaseException as error:
                # Its answer may still come, and must not be taken for the answer to the next question.
                base, _the_base = _the_base, None
                _end(base)
                if not isinstance(error, ChannelClosed):
                    raise
                if attempt == 2:
                    raise InternalError("the clean base ended as soon as it was started", why=str(error)) from error
    raise AssertionError("not reached")


def _start() -> _Base:
    ours, theirs = pair()
    theirs_of_lifeline, lifeline = os.pipe()
    command = (
        f"import sys; sys.path[:] = {_import_path()!r}; "
        # first of all, for the imports take seconds
        f"from antifreeze.engine.backends.process import die_with; die_with({theirs_of_lifeline}); "
        "import torch; "  # before anything of ours that needs it: under `antifreeze run`, its import imports our iterator
        f"from antifreeze.engine.backends.clean_base import main; main({theirs.fileno()}, {os.getpid()})"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    try:
        popen = subprocess.Popen(
            [os.fsdecode(spawn.get_executable()), *flags, "-c", command],
            pass_fds=[theirs.fileno(), theirs_of_lifeline],
            env={**_SINGLE_THREADED, **os.environ, "PYTHONHASHSEED": _hash_seed()},
            process_group=0,
        )
    except BaseException:
        ours.close()
        os.close(lifeline)
        raise
    finally:
        theirs.close()
        os.close(theirs_of_lifeline)
    return _Base(popen, Channel(ours, blocking=False), lifeline)


def _import_path() -> list[str]:
    """The trainer's own, in its order, without the current directory, which may be anybody's and hold anything."""
    path = [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]
    source = str(Path(__file__).resolve().parents[3])
    return path if source in path else [*path, source]


@functools.cache
def _hash_seed() -> str:
    """What workers hash with: the same in every base, or sets would have another order in a worker that is replaced."""
    seed = machine.started_with("PYTHONHASHSEED")
    return seed if seed and seed != "random" else str(int.from_bytes(os.urandom(4), "big"))


def stop_base() -> None:
    """End the clean base of this process, if there is one; the next clean stem starts another."""
    global _the_base
    with interruptions.held():
        if not _lock.acquire(timeout=STOP_DEADLINE_S):
            return  # another thread is starting it, and this is the end of the program, which ends it as well
        try:
            base, _the_base = _the_base, None
            if base is not None:
                _end(base)
        finally:
            _lock.release()


def _end(base: _Base) -> None:
    atexit.unregister(stop_base)
    base.close()
    process.kill_group(base.popen.pid)  # it leads its group from the start, and may not have seen to its own end yet
    with contextlib.suppress(subprocess.TimeoutExpired):  # in uninterruptible sleep: dead as soon as it wakes
        base.popen.wait(STOP_DEADLINE_S)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """The lock, waited for in slices: another thread may be starting the base, which takes seconds."""
    forks.call_in_children(_forget_in_child)
    interruptions.let_through(_nothing)  # before the base is asked: an interruption while it answers costs the base
    while not _lock.acquire(timeout=LOCK_SLICE_S):
        interruptions.let_through(_nothing)
    try:
        yield
    finally:
        _lock.release()


def _nothing() -> None:
    """Only signal handlers are wanted."""


def base_pid() -> int | None:
    """The process id of the clean base, if there is one."""
    return _the_base.popen.pid if _the_base else None


def base_fds() -> frozenset[int]:
    """The descriptors of this process that belong to the clean base."""
    return frozenset([_the_base.control.fileno(), _the_base.lifeline]) if _the_base else frozenset()


def _forget_in_child() -> None:
    global _the_base, _lock
    _lock = threading.Lock()
    if _the_base is not None:
        _the_base.close()
        _the_base.popen.returncode = 0  # it is not our child: nothing to wait for, nothing to warn about
        _the_base = None
