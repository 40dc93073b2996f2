"""What a kind is: a type of live handle, and a plan from which a handle is opened again on the other side.

A plan is what pickle calls a reduction: a function and its arguments, to be called in the other process. It is made from
the handle in the trainer, and carries the handle's settings and position.

What always holds: a copy only reads. Nothing is created, truncated, written or deleted, and what is opened is the very
file (by device and inode) that the trainer has open. A handle that cannot be had on these terms is refused.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import util
from typing import Any, NoReturn, Protocol

from antifreeze import machine
from antifreeze.errors import CannotCross

Reduced = tuple[Any, ...]
"""A function, its arguments and perhaps a state, as `object.__reduce__` gives them; or NotImplemented: as any object."""

FORK = "multiprocessing_context='fork', which keeps what a fork means for it"


class OnlyInherited(TypeError):
    """Only a fork can carry this object to a worker."""


class SentFile(Protocol):
    """An open file on its way."""

    def open(self) -> int:
        """On the other side: a descriptor of its own, for reading, at the beginning of the file."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How handles of one type are opened again."""

    plan: Callable[[Any, Luggage], Any]
    close: Callable[[Any], object] | None = None
    """Called with the copy when its worker leaves."""

    def reduce(self, handle: Any, luggage: Luggage) -> Any:
        """The plan for this handle, noted in the luggage."""
        reduced = self.plan(handle, luggage)
        if reduced is NotImplemented:
            return NotImplemented
        if self.close is not None:
            return open_until_exit, (reduced[0], reduced[1], self.close), *reduced[2:]
        return reduced


@dataclass(slots=True)
class Luggage:
    """What goes with one crossing beside its pickle."""

    most: int
    """How many descriptors there is room for."""
    descriptors: list[int] = field(default_factory=list)
    """Ours to close, but for those that were borrowed."""
    borrowed: set[int] = field(default_factory=set)
    """Numbers of descriptors that belong to tensors."""
    kept: list[Any] = field(default_factory=list)
    """Tensors that must live until it has arrived."""
    memo: dict[Any, Any] = field(default_factory=dict)
    """What plans keep for each other; it lives as long as the pickle is being made."""

    def close(self) -> None:
        """It has been sent, or is not going to be."""
        for number, fd in enumerate(self.descriptors):
            if number not in self.borrowed:
                os.close(fd)

    def borrow(self, fd: int, owner: Any) -> int:
        """The number of a descriptor that goes along and stays the owner's."""
        self.descriptors.append(fd)
        self.kept.append(owner)
        self.borrowed.add(len(self.descriptors) - 1)
        return len(self.descriptors) - 1

    def pack_file(self, fd: int) -> SentFile:
        """A regular file that is open here: its descriptor goes along, or its name if there are too many."""
        found = os.fstat(fd)
        key = "file", found.st_dev, found.st_ino
        if key not in self.memo:
            if len(self.descriptors) < self.most:
                self.descriptors.append(os.dup(fd))
                self.memo[key] = PassedFile(len(self.descriptors) - 1)
            else:
                self.memo[key] = named_file(machine.path_of(fd), found)
        sent: SentFile = self.memo[key]
        return sent


@dataclass(frozen=True, slots=True)
class PassedFile:
    """A file whose descriptor goes along: no name is looked up, so it may be renamed or deleted by now."""

    number: int

    def __reduce__(self) -> Reduced:
        return descriptor_at, (self.number,)

    def open(self) -> int:
        raise NotImplementedError  # what arrives is a ReceivedFile


def descriptor_at(number: int) -> NoReturn:
    """A passed file: stands in the pickle; the other side puts its own method in its place."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A passed file on the other side; its descriptor is open while the crossing is being unpacked."""

    fd: int

    def open(self) -> int:
        """With an offset of its own."""
        return machine.open_again(self.fd, os.O_RDONLY)

    def detach(self) -> int:
        """The very descriptor, as `multiprocessing` wants it of a socket or a pipe."""
        return os.dup(self.fd)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file by its name, and what it must be."""

    path: str
    device: int
    inode: int

    def open(self) -> int:
        """CannotCross if the name stands for another file by now."""
        # Not to wait for the other end, should it be a pipe by now.
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.check(os.fstat(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def check(self, found: os.stat_result | None = None) -> None:
        """CannotCross unless this (or what the name stands for now) is the file."""
        found = found or os.stat(self.path)
        if (found.st_dev, found.st_ino) != (self.device, self.inode) or not stat.S_ISREG(found.st_mode):
            raise CannotCross(
                f"{self.path} is not the file that the program has open",
                why="it has been deleted, or replaced by another, since it was opened",
                try_=f"open it again before iter(loader), or {FORK}",
            )


def named_file(path: str, expected: os.stat_result | None = None) -> NamedFile:
    """The file of this name, which must be open in this process; CannotCross if another one has taken its name."""
    try:
        found = os.stat(path)
    except OSError:
        found = None
    if expected is None and found is not None and machine.has_open(found):
        expected = found
    if found is None or expected is None or (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino):
        raise CannotCross(
            f"{path} cannot be opened again in a worker",
            why="it has been deleted, or replaced by another file, since it was opened",
            try_=FORK,
        )
    return NamedFile(os.path.abspath(path), found.st_dev, found.st_ino)


def refuse_writing(what: str, mode: str) -> CannotCross:
    """The error for a handle that is open for writing: two processes that write through copies ruin the file."""
    return CannotCross(
        f"{what} is open for writing (mode {mode!r}) and cannot be opened again in a worker",
        why="only what is open for reading is opened again: a copy must never change a file",
        try_=f"open it for reading, or in the worker (in __getitem__ or worker_init_fn), or {FORK}",
    )


def fresh(cls: type[Any]) -> Any:
    """An instance of a handle type or of a subclass, before it is opened."""
    return cls.__new__(cls)  # type: ignore[call-overload]  # of a type, mypy thinks of the type of types


def with_attributes(handle: Any, function: Any, *arguments: Any, but: frozenset[str] = frozenset()) -> Reduced:
    """A plan that ends with putting on the copy what a user, or a user's subclass, has put on the handle.

    Last, as state: an attribute may lead back to the handle.
    """
    attributes = {name: value for name, value in getattr(handle, "__dict__", {}).items() if name not in but}
    return function, arguments, attributes or None, None, None, put_attributes


def put_attributes(handle: Any, attributes: dict[str, Any]) -> None:
    """Set those that opening has not set."""
    for name, value in attributes.items():
        if name not in vars(handle):
            setattr(handle, name, value)


def open_until_exit(function: Callable[..., Any], arguments: Reduced, close: Callable[[Any], object]) -> Any:
    """In a worker: open a handle, and have it closed when the worker leaves (it leaves without Python's own end)."""
    handle = function(*arguments)
    try:
        find = weakref.ref(handle)
    except TypeError:  # some types cannot be referred to weakly: those stay until then
        find = lambda: handle  # type: ignore[assignment]  # noqa: E731
    util.Finalize(None, _close_if_there, args=(find, close), exitpriority=0)
    return handle


def _close_if_there(find: Callable[[], Any], close: Callable[[Any], object]) -> None:
    handle = find()
    if handle is not None:
        close(handle)
